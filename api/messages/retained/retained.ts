/** Retained messages of topics: search, listing and deletion (MQTT 5.0 section 3.3.1.3). */
import { Keyset, readPage } from '#core/database/index.ts'
import type { Queryable } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import { inTurns } from '#core/turns.ts'
import type { Envelope } from '../model/envelope.ts'
import { parseEnvelope } from '../model/envelope.ts'
import { createSubtopicMatcher } from '../model/topics.ts'

export type RetainedMessage = {
  subtopic: string
  publisherId: string
  qos: 0 | 1 | 2
  envelope: Envelope
  payload: Buffer
  /** Timestamp text of the database. */
  storedAt: string
}

type Row = {
  subtopic: string
  publisher_id: string
  qos: 0 | 1 | 2
  envelope: string | null
  payload: Buffer
  stored_at: string
}

/** The maximum number of retained messages that one subscription receives. */
const MAX_FOUND = 10_000

function fromRow(row: Row): RetainedMessage {
  return {
    subtopic: row.subtopic,
    publisherId: row.publisher_id,
    qos: row.qos,
    envelope: parseEnvelope(row.envelope),
    payload: row.payload,
    storedAt: row.stored_at,
  }
}

/** A filter from `parseSubtopicFilter`, in a channel. */
export type RetainedQuery = { channelKey: number; filter: string }

/** The part of the filter before its first wildcard narrows the search. */
function beginningOf(filter: string): { text: string; isWhole: boolean } {
  const fixed = /^[^*>]*/.exec(filter)?.[0] ?? ''
  const isWhole = fixed === filter
  return { text: isWhole ? fixed : fixed.replace(/\.$/, ''), isWhole }
}

/**
 * Returns for each query whether a retained message may match it. One statement answers all of them, because few subscriptions have any.
 */
export async function mayMatchRetained(db: Queryable, queries: readonly RetainedQuery[]): Promise<boolean[]> {
  const beginnings = queries.map(({ filter }) => beginningOf(filter))
  const { rows } = await sql<{ place: number }>`
    SELECT asked.place FROM unnest(${[...queries.keys()]}::integer[], ${queries.map(({ channelKey }) => channelKey)}::bigint[],
        ${beginnings.map(({ text }) => text)}::text[], ${beginnings.map(({ isWhole }) => isWhole)}::boolean[])
        AS asked (place, channel_key, beginning, is_whole)
     WHERE EXISTS (SELECT FROM mqtt_retained r WHERE r.channel_key = asked.channel_key AND r.subtopic = asked.beginning)
        OR NOT asked.is_whole AND EXISTS (
          SELECT FROM mqtt_retained r WHERE r.channel_key = asked.channel_key AND starts_with(r.subtopic, asked.beginning))`.execute(
    db,
  )
  const found = new Set(rows.map(({ place }) => place))
  return queries.map((_, place) => found.has(place))
}

/** The retained messages of a filter, in the order of their subtopics. */
export async function findRetained(db: Queryable, { channelKey, filter }: RetainedQuery): Promise<RetainedMessage[]> {
  const { text, isWhole } = beginningOf(filter)
  const wanted = isWhole ? sql`subtopic = ${text}` : sql`starts_with(subtopic, ${text})`
  const { rows } = await sql<Row>`
    SELECT subtopic, publisher_id, qos, envelope, payload, stored_at FROM mqtt_retained
     WHERE channel_key = ${channelKey} AND ${wanted} AND (expires_at IS NULL OR expires_at > now())
     ORDER BY subtopic LIMIT ${MAX_FOUND}`.execute(db)
  const matches = createSubtopicMatcher(filter)
  const found: RetainedMessage[] = []
  // Thousands of subtopics of hundreds of levels would hold the event loop.
  await inTurns(rows, (row) => {
    if (matches(row.subtopic)) found.push(fromRow(row))
  })
  return found
}

export async function listRetained(
  db: Queryable,
  channelKey: number,
  range: PageRange,
): Promise<{ total: number; messages: RetainedMessage[]; next: PageEnd }> {
  const where = sql<boolean>`channel_key = ${channelKey} AND (expires_at IS NULL OR expires_at > now())`
  const { rows: counted } = await sql<{ total: number }>`
    SELECT count(*) AS total FROM mqtt_retained WHERE ${where}`.execute(db)
  const columns = sql`subtopic, publisher_id, qos, envelope, payload, stored_at`
  const source = { columns, from: sql`mqtt_retained`, where, keyset: BY_SUBTOPIC }
  const { rows, next } = await readPage<Row>(db, source, range)
  return { total: counted[0]?.total ?? 0, messages: rows.map(fromRow), next }
}

const BY_SUBTOPIC = new Keyset([{ by: sql`subtopic`, type: 'text' }])

/** One subtopic, or all of the channel. */
export async function clearRetained(db: Queryable, channelKey: number, subtopic: string | undefined): Promise<void> {
  const which = subtopic === undefined ? sql`` : sql`AND subtopic = ${subtopic}`
  await sql`DELETE FROM mqtt_retained WHERE channel_key = ${channelKey} ${which}`.execute(db)
}
