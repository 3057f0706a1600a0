/** The messages that a read selects: one by its id, or those that a run of a task published. Batches name runs as long as they are kept. */
import type { Queryable } from '#core/database/index.ts'
import { refusedField } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { BUCKET_SECONDS } from '../store/record-chunks.ts'
import type { ArrivedBatch, BatchRange } from './batch-range.ts'
import { rangeOfBatches } from './batch-range.ts'
import type { Filter, MessagePlace } from './filter.ts'
import type { TimeRange } from './time-range.ts'
import { ALL_TIMES } from './time-range.ts'

/** Each message by its batch and its number in it. */
export type SelectedMessages = {
  batches: readonly number[]
  messages: readonly number[]
  /** Undefined when the batch of a message is not kept any more: then its number alone finds it. */
  range: BatchRange | undefined
  /** Contains the times of their records. */
  times: TimeRange
}

type FoundMessage = ArrivedBatch & { message: number; first: number | null; last: number | null }

/** Messages of a run that are looked up for one read. */
const MAX_RUN_MESSAGES = 10_000

/**
 * Finds the messages in all channels. Undefined: the query selects no messages; 'nothing': none has records. Throws `malformed` for a run
 * with more messages in the range than are looked up.
 */
export async function selectedMessages(
  db: Queryable,
  { runId, message, ...range }: Filter,
): Promise<SelectedMessages | 'nothing' | undefined> {
  if (message !== undefined) return await messageAt(db, message)
  if (runId !== undefined) return await messagesOfRun(db, runId, range)
  return undefined
}

async function messageAt(db: Queryable, { batch, message }: MessagePlace): Promise<SelectedMessages | 'nothing'> {
  const { rows } = await sql<FoundMessage>`
    SELECT b.seq, ${message}::integer AS message, b.arrived_at, extract(epoch FROM b.min_time)::float8 AS first,
           extract(epoch FROM b.max_time)::float8 AS last
      FROM ingest_batches b WHERE b.seq = ${batch}`.execute(db)
  if (rows.length > 0) return selectionOf(rows)
  return { batches: [batch], messages: [message], range: undefined, times: ALL_TIMES }
}

async function messagesOfRun(
  db: Queryable,
  runId: string,
  { fromSeconds, toSeconds }: TimeRange,
): Promise<SelectedMessages | 'nothing'> {
  const inRange: Sql<boolean>[] = []
  if (fromSeconds !== undefined) inRange.push(sql`AND b.max_time >= to_timestamp(${fromSeconds}::float8)`)
  if (toSeconds !== undefined) inRange.push(sql`AND b.min_time < to_timestamp(${toSeconds}::float8)`)
  const { rows } = await sql<FoundMessage>`
    SELECT b.seq, e.number::integer AS message, b.arrived_at, extract(epoch FROM b.min_time)::float8 AS first,
           extract(epoch FROM b.max_time)::float8 AS last
      FROM ingest_batches b CROSS JOIN LATERAL json_each(b.envelopes::json) e (number, envelope)
     WHERE b.task_runs IS NOT NULL AND b.task_runs @> ARRAY[${runId}]::uuid[] AND e.envelope -> 'run' ->> 'id' = ${runId}
       ${sql.join(inRange, sql` `)}
     ORDER BY b.arrived_at LIMIT ${MAX_RUN_MESSAGES + 1}`.execute(db)
  if (rows.length > MAX_RUN_MESSAGES)
    throw refusedField('run', `published more than ${MAX_RUN_MESSAGES} messages: shorten the range with from and to`)
  return selectionOf(rows)
}

/** Batches in the order of their arrival. */
function selectionOf(rows: readonly FoundMessage[]): SelectedMessages | 'nothing' {
  const range = rangeOfBatches(rows)
  const earliest = rows.reduce((time, { first }) => Math.min(time, first ?? Infinity), Infinity)
  const latest = rows.reduce((time, { last }) => Math.max(time, last ?? -Infinity), -Infinity)
  if (range === undefined || earliest > latest) return 'nothing'
  return {
    batches: rows.map(({ seq }) => seq),
    messages: rows.map(({ message }) => message),
    range,
    // A bucket more at both ends, because times of the distant past and future are rounded.
    times: { fromSeconds: earliest - BUCKET_SECONDS, toSeconds: latest + BUCKET_SECONDS },
  }
}

/** About a row `m` of `records`: it belongs to one of the messages. */
export function isSelected({ batches, messages, range }: SelectedMessages): Sql<boolean> {
  const { arrival, numbers } = range ?? {
    arrival: sql<boolean>`true`,
    numbers: sql<boolean>`m.batch_seq = ${batches[0]}`,
  }
  return sql<boolean>`${arrival} AND ${numbers}
    AND ((m.batch_seq, m.message) IN (SELECT * FROM unnest(${batches}::bigint[], ${messages}::integer[]))) IS TRUE`
}
