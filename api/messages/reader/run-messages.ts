/** The messages that a run of a task published: their batches say so, as long as they are kept. */
import type { Queryable } from '#core/database/index.ts'
import { refusedField } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { BUCKET_SECONDS } from '../store/record-chunks.ts'
import type { ArrivedBatch, BatchRange } from './batch-range.ts'
import { rangeOfBatches } from './batch-range.ts'
import type { TimeRange } from './time-range.ts'

/** Each message by its batch and its number in it. */
export type RunMessages = {
  batches: readonly number[]
  messages: readonly number[]
  range: BatchRange
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
  const { rows } = await sql<ArrivedBatch & { message: number; first: number; last: number }>`
    SELECT b.seq, e.number::integer AS message, b.arrived_at, extract(epoch FROM b.min_time)::float8 AS first,
           extract(epoch FROM b.max_time)::float8 AS last
      FROM ingest_batches b CROSS JOIN LATERAL json_each(b.envelopes::json) e (number, envelope)
     WHERE b.task_runs IS NOT NULL AND b.task_runs @> ARRAY[${runId}]::uuid[] AND e.envelope -> 'run' ->> 'id' = ${runId}
       ${sql.join(inRange, sql` `)}
     ORDER BY b.arrived_at LIMIT ${MAX_RUN_MESSAGES + 1}`.execute(db)
  if (rows.length > MAX_RUN_MESSAGES)
    throw refusedField('run', `published more than ${MAX_RUN_MESSAGES} messages: shorten the range with from and to`)
  const range = rangeOfBatches(rows)
  if (range === undefined) return undefined
  const earliest = rows.reduce((time, { first }) => Math.min(time, first), Infinity)
  const latest = rows.reduce((time, { last }) => Math.max(time, last), -Infinity)
  return {
    batches: rows.map(({ seq }) => seq),
    messages: rows.map(({ message }) => message),
    range,
    // A bucket more at both ends, because times of the distant past and future are rounded.
    times: { fromSeconds: earliest - BUCKET_SECONDS, toSeconds: latest + BUCKET_SECONDS },
  }
}

/** About a row `m` of `records`: it belongs to one of the messages. */
export function isPublishedAs({ batches, messages, range: { arrival, numbers } }: RunMessages): Sql<boolean> {
  return sql<boolean>`${arrival} AND ${numbers}
    AND ((m.batch_seq, m.message) IN (SELECT * FROM unnest(${batches}::bigint[], ${messages}::integer[]))) IS TRUE`
}
