/** Adds a tally to the projections: a few numbers per series, however many records they stand for. */
import { prepared } from '#core/database/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { numbersOf } from '../store/binary-arrays.ts'
import { fromMicros } from './micros.ts'
import type { OwnBatches } from './own-batches.ts'
import { partsOf } from './pace.ts'
import type { Rest } from './pace.ts'
import type { Tally } from './tally.ts'
import { insertTelemetry, insertUsage } from './usage.ts'

/** A batch of the tally: when it arrived, in microseconds since 2000, and on which day of UTC. */
export type TalliedBatch = { seq: number; arrived_micros: number; day: string }

/**
 * The caller holds the lock of rollups and has seen that no batch of the tally is folded; all arrived on one day of UTC. Without a batch
 * nothing is added. Returns how many rows of series wait to be merged.
 */
export async function addTally(
  tx: Transaction,
  tally: Tally,
  batches: readonly TalliedBatch[],
  { unmerged, rest }: OwnBatches,
): Promise<number> {
  const [first] = batches
  if (first === undefined) return 0
  const arrivals = new Map(batches.map((batch) => [batch.seq, batch.arrived_micros]))
  await addUsage(tx, tally, first.day, arrivals, rest)
  if (tally.records === 0) return 0
  return await unmerged.add(tx, tally.rows, { day: first.day, arrivals }, rest)
}

const addTelemetry = prepared(
  'telemetry_of_tally',
  insertTelemetry(
    sql`SELECT c.key, ${fromMicros(sql`t.first`)}, ${fromMicros(sql`t.last`)}, t.messages
          FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS t (key, first, last, messages) JOIN clients c USING (key)
         ORDER BY c.key`,
  ).statement().text,
)

const addDays = prepared(
  'usage_of_tally',
  insertUsage(
    sql`SELECT d.key, $4::date, t.messages, t.records
          FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS t (key, messages, records) JOIN domains d USING (key) ORDER BY d.key`,
  ).statement().text,
)

async function addUsage(
  tx: Transaction,
  { clients, domains }: Tally,
  day: string,
  arrivals: ReadonlyMap<number, number>,
  rest: Rest,
): Promise<void> {
  const arrivalOf = (seq: number) => arrivals.get(seq) ?? NaN
  for (const part of partsOf([...clients])) {
    await addTelemetry(tx, [
      bigints(part, ([key]) => key),
      bigints(part, ([, { firstSeq }]) => arrivalOf(firstSeq)),
      bigints(part, ([, { lastSeq }]) => arrivalOf(lastSeq)),
      bigints(part, ([, { messages }]) => messages),
    ])
    await rest()
  }
  for (const part of partsOf([...domains])) {
    await addDays(tx, [
      bigints(part, ([key]) => key),
      bigints(part, ([, { messages }]) => messages),
      bigints(part, ([, { records }]) => records),
      day,
    ])
    await rest()
  }
}

function bigints<Row>(rows: readonly Row[], valueOf: (row: Row) => number): Buffer {
  return numbersOf('int8', rows, valueOf)
}
