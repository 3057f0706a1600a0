/**
 * Finds the messages of one channel that a follower missed by the rows of the channel: the changelog of batches covers all channels,
 * and scanning it would cost as much as all of their messages.
 */
import type { Database } from '#core/database/index.ts'
import { translateDatabaseError } from '#core/database/index.ts'
import { kindOf } from '#core/errors/index.ts'
import { LOG_START, settledEnd } from '#core/changelog/index.ts'
import type { LogSnapshot } from '#core/changelog/index.ts'
import { sql } from '#core/sql.ts'
import type { StoredBatch } from './stored.ts'
import type { LiveToken } from './token.ts'

/** The maximum age of delivered messages; the changelog is kept a little longer. */
const MAX_AGE_DAYS = 7
/** The maximum duration of the search in a channel with very many rows. */
const SEARCH_DEADLINE_MS = 5000
/** The time of a batch is the start of its transaction, which may be before that of an earlier batch. */
const SLACK_SECONDS = 60

/** A batch with messages of the channel. */
export type MissedBatch = { seq: number; xid: bigint; messages: number }

export type MissedMessages = {
  /** All batches up to `end` except the skipped ones, in the order of the changelog. */
  batches: MissedBatch[]
  /** The position of a follower that has received them. */
  end: LiveToken
  /** The number of skipped messages: older than a week, or too many. */
  skipped: number
}

/**
 * The newest messages that a follower at `after` has not seen, at most `maxMessages` in whole batches. Undefined when the search takes
 * too long: the changelog must be read instead.
 */
export async function findMissedMessages(
  database: Database,
  channelKey: number,
  after: LiveToken,
  maxMessages: number,
): Promise<MissedMessages | undefined> {
  const settled = await settledEnd(database.db)
  const end: LiveToken = { snapshot: extendSnapshot(after, settled.xid), position: LOG_START }
  const { xmax, running } = after.snapshot
  const { xid, seq } = after.position
  const isUnseen = sql`(b.xid >= ${xmax}::xid8 OR b.xid = ANY (${[...running]}::xid8[]))
    AND (b.xid, b.seq) > (${xid.toString()}::xid8, ${seq}::bigint) AND b.xid <= ${settled.xid.toString()}::xid8`
  const oldest = [xmax, ...running].map(BigInt).reduce((one, other) => (other < one ? other : one))
  const from = oldest > xid ? oldest : xid
  try {
    return await database.transaction(async (tx) => {
      await sql.raw(`SET LOCAL statement_timeout = ${SEARCH_DEADLINE_MS}`).execute(tx)
      const { rows: first } = await sql<{ since: string }>`
        SELECT b.arrived_at - make_interval(secs => ${SLACK_SECONDS}) AS since FROM ingest_batches b
         WHERE b.xid >= ${from.toString()}::xid8 ORDER BY b.xid, b.seq LIMIT 1`.execute(tx)
      const [begin] = first
      if (begin === undefined) return { batches: [], end, skipped: 0 }
      // The first chunk of records, or the first part of a payload, represents its message.
      const { rows } = await sql<{ seq: number; xid: string; messages: number; is_old: boolean; total: number }>`
        SELECT b.seq, b.xid::text AS xid, m.messages::int AS messages, b.arrived_at < now() - make_interval(days => ${MAX_AGE_DAYS}) AS is_old,
               sum(m.messages) OVER () ::float8 AS total
          FROM (SELECT batch_seq, sum(messages) AS messages FROM (
                  SELECT batch_seq, count(*) AS messages FROM records
                   WHERE channel_key = ${channelKey} AND chunk = 0 AND arrived_at >= ${begin.since} GROUP BY 1
                  UNION ALL
                  SELECT batch_seq, count(*) FROM payloads
                   WHERE channel_key = ${channelKey} AND ordinal = 0 AND arrived_at >= ${begin.since} GROUP BY 1
                  UNION ALL
                  SELECT seq, 1 FROM ingest_batches
                   WHERE cleared_channels IS NOT NULL AND ${channelKey} = ANY (cleared_channels) AND xid >= ${from.toString()}::xid8
                ) found GROUP BY 1) m
          JOIN ingest_batches b ON b.seq = m.batch_seq
         WHERE ${isUnseen} ORDER BY b.xid DESC, b.seq DESC LIMIT ${maxMessages}`.execute(tx)
      const batches: MissedBatch[] = []
      let kept = 0
      for (const row of rows) {
        if (row.is_old || kept + row.messages > maxMessages) break
        kept += row.messages
        batches.push({ seq: row.seq, xid: BigInt(row.xid), messages: row.messages })
      }
      return { batches: batches.toReversed(), end, skipped: (rows[0]?.total ?? 0) - kept }
    })
  } catch (error) {
    if (kindOf(translateDatabaseError(error)) === 'timeout') return undefined
    throw error
  }
}

/** The snapshot of the token, extended by everything up to this transaction, below which no transaction is running. */
export function extendSnapshot({ snapshot: { xmax, running } }: LiveToken, settledXid: bigint): LogSnapshot {
  if (settledXid >= BigInt(xmax)) return { xmax: String(settledXid + 1n), running: [] }
  return { xmax, running: running.filter((one) => BigInt(one) > settledXid) }
}

/** The rows of these batches, in order. */
export async function loadLogRows(database: Database, batches: readonly MissedBatch[]): Promise<StoredBatch[]> {
  const { rows } = await sql<{ seq: number; xid: string; arrived_at: string; envelopes: string | null }>`
    SELECT seq, xid::text AS xid, arrived_at, envelopes FROM ingest_batches
     WHERE seq = ANY (${batches.map(({ seq }) => seq)}::bigint[]) ORDER BY xid, seq`.execute(database.db)
  return rows.map(({ seq, xid, arrived_at: arrivedAt, envelopes }) => ({ seq, xid: BigInt(xid), arrivedAt, envelopes }))
}
