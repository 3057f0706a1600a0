/** Loads stored messages for followers that missed them. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { OCTET_STREAM, SENML_JSON } from '../ingest/content.ts'
import { parseEnvelopes } from '../model/envelope.ts'
import type { Envelope } from '../model/envelope.ts'
import type { RecordRow as ReadRow } from '../reader/window.ts'
import { encodeRecords } from '../senml/index.ts'
import type { ResolvedRecord } from '../senml/index.ts'
import type { Follower } from './follower.ts'
import type { LiveMessage } from './live-message.ts'
import { encodeDocuments, protocolOf } from './live-message.ts'

type RecordRow = ReadRow & {
  batch_seq: number
  message: number
  channel_key: number
  received_at: number
  publisher_key: number | null
}

type PayloadRow = {
  batch_seq: number
  message: number
  channel_key: number
  protocol: number
  received_at: number
  publisher_key: number | null
  publisher_id: string
  subtopic: string
  content_type: string
  document: string | null
  body: Buffer | null
}

/** A row of the changelog of batches; without envelopes its messages have none. */
export type StoredBatch = { seq: number; xid?: bigint; arrivedAt: string; envelopes?: string | null }

/** The messages of these batches for the follower, in order. */
export async function loadWanted(
  db: Queryable,
  follower: Follower,
  batches: readonly StoredBatch[],
): Promise<LiveMessage[]> {
  const { channelKey, channelId } = follower.access
  const messages = await loadMessages(db, batches, new Map([[channelKey, channelId]]))
  return messages.filter((message) => follower.wants(message))
}

/** The channels of stored messages of these batches. */
export async function loadChannels(db: Queryable, batches: readonly StoredBatch[]): Promise<number[]> {
  if (batches.length === 0) return []
  const where = isIn(batches)
  const { rows } = await sql<{ channel_key: number }>`
    SELECT m.channel_key FROM records m WHERE ${where} UNION SELECT m.channel_key FROM payloads m WHERE ${where}`.execute(
    db,
  )
  return rows.map((row) => row.channel_key)
}

/** Numbers of a range for each batch in it, at most. */
const MAX_SPREAD = 2

/** A message by its place: its batch, and its number in the batch. */
export type StoredPlace = { seq: number; xid: bigint; message: number; arrivedAt: string }

/** The messages at these places that are still stored, in no particular order, without what their publishers said beside their content. */
export async function loadPlaces(
  db: Queryable,
  places: readonly StoredPlace[],
  channels: ReadonlyMap<number, string>,
): Promise<LiveMessage[]> {
  const batches = [...new Map(places.map((place) => [place.seq, place])).values()]
  const isMeant = sql`(m.batch_seq, m.message) IN (SELECT * FROM unnest(${places.map(({ seq }) => seq)}::bigint[], ${places.map(({ message }) => message)}::int[]))`
  return [...(await loadWhere(db, batches, channels, isMeant)).values()].flat()
}

/** The messages of these channels in these batches by batch, in the order of their numbers. */
export function loadBatches(
  db: Queryable,
  batches: readonly StoredBatch[],
  channels: ReadonlyMap<number, string>,
): Promise<Map<number, LiveMessage[]>> {
  return loadWhere(db, batches, channels, sql`true`)
}

/** A place between two messages: before the one with this number in this batch. */
export type Edge = { seq: number; message: number }

/** The messages of these channels in these batches, in order, from an edge in the first batch to one in the last. */
export async function loadBetween(
  db: Queryable,
  batches: readonly StoredBatch[],
  channels: ReadonlyMap<number, string>,
  [from, to]: readonly [Edge, Edge],
): Promise<LiveMessage[]> {
  const isBetween = ({ batchSeq, index }: LiveMessage) =>
    (batchSeq !== from.seq || index >= from.message) && (batchSeq !== to.seq || index < to.message)
  const isMeant = sql`(m.batch_seq <> ${from.seq} OR m.message >= ${from.message}) AND (m.batch_seq <> ${to.seq} OR m.message < ${to.message})`
  const loaded = await loadWhere(db, batches, channels, isMeant)
  // Messages that only envelopes have are found in the whole batch.
  return inOrder(batches, loaded).filter(isBetween)
}

async function loadWhere(
  db: Queryable,
  batches: readonly StoredBatch[],
  channels: ReadonlyMap<number, string>,
  isMeant: Sql,
): Promise<Map<number, LiveMessage[]>> {
  const found = new Map<number, LiveMessage[]>()
  if (batches.length === 0 || channels.size === 0) return found
  const where = sql`${isMeant} AND ${isIn(batches)} AND m.channel_key = ANY (${[...channels.keys()]}::bigint[])`
  const [records, payloads] = await Promise.all([
    // In the list of columns unnest costs a third of what it costs as a table, which is made for each row.
    sql<RecordRow>`
      SELECT r.batch_seq, r.message, r.channel_key, r.protocol, extract(epoch FROM r.arrived_at)::float8 AS received_at,
             s.publisher_key, s.publisher_id, s.subtopic, s.name, s.unit, extract(epoch FROM r.time)::float8 AS time,
             r.value, r.sum, r.update_time, r.bool_value, r.string_value, r.data_value
        FROM (SELECT m.batch_seq, m.message, m.chunk, m.channel_key, m.protocol, m.arrived_at, unnest(m.series_keys) AS series_key,
                     unnest(m.times) AS time, unnest(m."values") AS value, unnest(m.sums) AS sum, unnest(m.update_times) AS update_time,
                     unnest(m.bool_values) AS bool_value, unnest(m.string_values) AS string_value, unnest(m.data_values) AS data_value,
                     generate_subscripts(m.series_keys, 1) AS place FROM records m WHERE ${where}) r
        JOIN series s ON s.key = r.series_key ORDER BY r.batch_seq, r.message, r.chunk, r.place`.execute(db),
    sql<PayloadRow>`
      SELECT m.batch_seq, m.message, m.channel_key, m.protocol, extract(epoch FROM m.arrived_at)::float8 AS received_at,
             m.publisher_key, m.publisher_id, m.subtopic, m.content_type, m.document::text AS document, m.body
        FROM payloads m WHERE ${where} ORDER BY m.batch_seq, m.message, m.ordinal`.execute(db),
  ])
  const messages = [
    ...groups(records.rows).map((rows) => ofRecords(rows, channels)),
    ...groups(payloads.rows).map((rows) => ofPayloads(rows, channels)),
  ]
  for (const message of messages.toSorted((left, right) => left.index - right.index)) {
    const batch = found.get(message.batchSeq)
    if (batch === undefined) found.set(message.batchSeq, [message])
    else batch.push(message)
  }
  for (const batch of batches) {
    const { seq, xid } = batch
    addEnvelopes(found, batch, channels)
    if (xid !== undefined) for (const message of found.get(seq) ?? []) message.xid = xid
  }
  return found
}

/**
 * The partitions of the table that batches can be in are those of their arrival. The index of batches is searched once for a range, but once for
 * each number of a list: batches that are close together are a range, in which the list is compared row by row.
 */
function isIn(batches: readonly StoredBatch[]): Sql {
  const times = batches.map(({ arrivedAt }) => arrivedAt).toSorted()
  const numbers = batches.map(({ seq }) => seq)
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)]
  const isListed = sql`m.batch_seq = ANY (${numbers}::bigint[])`
  const isMeant =
    high - low < MAX_SPREAD * numbers.length
      ? sql`m.batch_seq BETWEEN ${low} AND ${high} AND (${isListed}) IS TRUE`
      : isListed
  return sql`${isMeant} AND m.arrived_at BETWEEN ${times[0]} AND ${times.at(-1)}`
}

function addEnvelopes(
  found: Map<number, LiveMessage[]>,
  { seq, arrivedAt, envelopes }: StoredBatch,
  channels: ReadonlyMap<number, string>,
): void {
  if (envelopes === null || envelopes === undefined) return
  const ofBatch = parseEnvelopes(envelopes)
  for (const message of found.get(seq) ?? []) {
    const envelope = ofBatch[message.index]
    if (envelope !== undefined) message.envelope = envelope
  }
  const cleared = ofClearing(seq, arrivedAt, ofBatch, channels)
  if (cleared.length > 0)
    found.set(
      seq,
      [...(found.get(seq) ?? []), ...cleared].toSorted((left, right) => left.index - right.index),
    )
}

/** Returns the messages of the batches in the order of the batches. */
export async function loadMessages(
  db: Queryable,
  batches: readonly StoredBatch[],
  channels: ReadonlyMap<number, string>,
): Promise<LiveMessage[]> {
  return inOrder(batches, await loadBatches(db, batches, channels))
}

function inOrder(batches: readonly StoredBatch[], loaded: ReadonlyMap<number, LiveMessage[]>): LiveMessage[] {
  return batches.flatMap(({ seq }) => loaded.get(seq) ?? [])
}

/** Messages that are stored only in their envelopes. */
function ofClearing(
  batchSeq: number,
  arrivedAt: string,
  envelopes: Readonly<Record<number, Envelope>>,
  channels: ReadonlyMap<number, string>,
): LiveMessage[] {
  return Object.entries(envelopes).flatMap(([index, envelope]) => {
    const { clears } = envelope
    const channelId = clears === undefined ? undefined : channels.get(clears.channelKey)
    if (clears === undefined || channelId === undefined) return []
    return {
      ...clears,
      batchSeq,
      index: Number(index),
      channelId,
      protocol: 'mqtt' as const,
      receivedAtSeconds: Date.parse(arrivedAt) / 1000,
      contentType: OCTET_STREAM,
      payload: Buffer.alloc(0),
      envelope,
    }
  })
}

/** Groups adjacent rows of one message. */
function groups<Row extends { batch_seq: number; message: number }>(rows: readonly Row[]): Row[][] {
  const found: Row[][] = []
  for (const row of rows) {
    const [last] = found.at(-1) ?? []
    if (last?.batch_seq === row.batch_seq && last.message === row.message) found.at(-1)?.push(row)
    else found.push([row])
  }
  return found
}

function common(row: RecordRow | PayloadRow, channels: ReadonlyMap<number, string>) {
  return {
    batchSeq: row.batch_seq,
    index: row.message,
    channelKey: row.channel_key,
    channelId: channels.get(row.channel_key) ?? '',
    publisherKey: row.publisher_key,
    publisherId: row.publisher_id,
    subtopic: row.subtopic,
    protocol: protocolOf(row.protocol),
    receivedAtSeconds: row.received_at,
  }
}

function ofRecords(rows: RecordRow[], channels: ReadonlyMap<number, string>): LiveMessage {
  const records = rows.map((row): ResolvedRecord => ({
    name: row.name,
    unit: row.unit,
    timeSeconds: row.time,
    value: row.value ?? undefined,
    stringValue: row.string_value ?? undefined,
    boolValue: row.bool_value ?? undefined,
    dataValue: row.data_value ?? undefined,
    sum: row.sum ?? undefined,
    updateTimeSeconds: row.update_time ?? undefined,
  }))
  return { ...common(rows[0] as RecordRow, channels), contentType: SENML_JSON, payload: encodeRecords(records) }
}

function ofPayloads(rows: PayloadRow[], channels: ReadonlyMap<number, string>): LiveMessage {
  const first = rows[0] as PayloadRow
  const payload = first.body ?? encodeDocuments(rows.map((row) => row.document as string))
  return { ...common(first, channels), contentType: first.content_type, payload }
}
