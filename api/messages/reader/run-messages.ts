/** The messages that a run of a task published: their batches say so, as long as they are kept. */
import type { Queryable } from '#core/database/index.ts'
import { refusedField } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { BUCKET_SECONDS } from '../store/record-chunks.ts'
import type { TimeRange } from './time-range.ts'

/** Each message by its batch and its number in it. */
export type RunMessages = {
  batches: readonly number[]
  messages: readonly number[]
  /** When the first and the last of the batches arrived. */
  arrivals: readonly [string, string]
  /** Contains the times of their records. */
  times: TimeRange
}

/** Messages of a run that are looked up for one read. */
const MAX_RUN_MESSAGES = 10_000

/** In all channels. Undefined: none. Throws `malformed` for a run with more messages in the range than are looked up. */
export async function messagesOfRun(
  db: Queryable,
  runId: string,
  { fromSeconds, toSeconds }: TimeRange,
): Promise<RunMessages | undefined> {
  const inRange: Sql<boolean>[] = []
  if (fromSeconds !== undefined) inRange.push(sql`AND b.max_time >= to_timestamp(${fromSeconds}::float8)`)
  if (toSeconds !== undefined) inRange.push(sql`AND b.min_time < to_timestamp(${toSeconds}::float8)`)
  const { rows } = await sql<{ seq: number; message: number; arrived_at: string; first: number; last: number }>`
    SELECT b.seq, e.number::integer AS message, b.arrived_at, extract(epoch FROM b.min_time)::float8 AS first,
           extract(epoch FROM b.max_time)::float8 AS last
      FROM ingest_batches b CROSS JOIN LATERAL json_each(b.envelopes::json) e (number, envelope)
     WHERE b.task_runs IS NOT NULL AND b.task_runs @> ARRAY[${runId}]::uuid[] AND e.envelope -> 'run' ->> 'id' = ${runId}
       ${sql.join(inRange, sql` `)}
     ORDER BY b.arrived_at LIMIT ${MAX_RUN_MESSAGES + 1}`.execute(db)
  if (rows.length > MAX_RUN_MESSAGES)
    throw refusedField('run', `published more than ${MAX_RUN_MESSAGES} messages: shorten the range with from and to`)
  const [oldest, newest] = [rows[0], rows.at(-1)]
  if (oldest === undefined || newest === undefined) return undefined
  const earliest = rows.reduce((time, { first }) => Math.min(time, first), Infinity)
  const latest = rows.reduce((time, { last }) => Math.max(time, last), -Infinity)
  return {
    batches: rows.map(({ seq }) => seq),
    messages: rows.map(({ message }) => message),
    arrivals: [oldest.arrived_at, newest.arrived_at],
    // A bucket more at both ends, because times of the distant past and future are rounded.
    times: { fromSeconds: earliest - BUCKET_SECONDS, toSeconds: latest + BUCKET_SECONDS },
  }
}

/** About a row `m` of `records`: it belongs to one of the messages. The ranges are what indexes and partitions answer. */
export function isPublishedAs({ batches, messages, arrivals }: RunMessages): Sql<boolean> {
  const first = batches.reduce((low, seq) => Math.min(low, seq))
  const last = batches.reduce((high, seq) => Math.max(high, seq))
  return sql<boolean>`m.arrived_at BETWEEN ${arrivals[0]}::timestamptz AND ${arrivals[1]}::timestamptz
    AND m.batch_seq BETWEEN ${first} AND ${last}
    AND ((m.batch_seq, m.message) IN (SELECT * FROM unnest(${batches}::bigint[], ${messages}::integer[]))) IS TRUE`
}
