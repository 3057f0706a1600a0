/** About a row `m` of `records`: what indexes and partitions know of the batches that a read looks for. */
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

/** A batch by its number, with the time of its arrival. */
export type ArrivedBatch = { seq: number; arrived_at: string }

export type BatchRange = {
  /** Leaves out partitions. */
  arrival: Sql<boolean>
  /** Is what the index of batches answers. */
  numbers: Sql<boolean>
}

/** The range that contains the batches, which are in the order of their arrival. Undefined without any. */
export function rangeOfBatches(batches: readonly ArrivedBatch[]): BatchRange | undefined {
  const [oldest, newest] = [batches[0], batches.at(-1)]
  if (oldest === undefined || newest === undefined) return undefined
  const seqs = batches.map(({ seq }) => seq)
  const first = seqs.reduce((low, seq) => Math.min(low, seq))
  const last = seqs.reduce((high, seq) => Math.max(high, seq))
  return {
    arrival: sql`m.arrived_at BETWEEN ${oldest.arrived_at}::timestamptz AND ${newest.arrived_at}::timestamptz`,
    numbers: sql`m.batch_seq BETWEEN ${first} AND ${last}`,
  }
}
