/** The order of records and of rows, as SQL. */
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

export type Direction = 'asc' | 'desc'

export function directionOf(dir: Direction): Sql<unknown> {
  return dir === 'asc' ? sql`ASC` : sql`DESC`
}

/**
 * Among equal times, the later arrival is newer; numbers of batches of different shards are not ordered. Records of one message stay in
 * the order in which they were sent, also when the newest message comes first.
 */
export function byTime(dir: Direction): Sql<unknown> {
  const direction = directionOf(dir)
  return sql`f.time ${direction}, f.arrived_at ${direction}, f.batch_seq ${direction}, f.message ${direction}, f.chunk, f.place`
}

/** The position of a record with this time in a row `m`, and of an edge. Positions compare in the order of the records. */
export const placeOf = (time: Sql<unknown>) => sql`(${time}, m.arrived_at, m.batch_seq, m.message)`
export const EDGE = sql`(edge.at, edge.arrived_at, edge.batch_seq, edge.message)`
export const byPlace = (time: Sql<unknown>, direction: Sql<unknown>) =>
  sql`${time} ${direction}, m.arrived_at ${direction}, m.batch_seq ${direction}, m.message ${direction}`
