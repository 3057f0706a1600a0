/** The order of records and of rows, as SQL. */
import { Keyset } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

export type Direction = 'asc' | 'desc'

export function directionOf(dir: Direction): Sql<unknown> {
  return dir === 'asc' ? sql`ASC` : sql`DESC`
}

/**
 * The order of records `record` in rows `row`. Among equal times, the later arrival is newer; numbers of batches of different shards are
 * not ordered. Records of one message stay in the order in which they were sent, also when the newest message comes first.
 */
export function recordsByTime(dir: Direction, columns: { row: string; record: string }): Keyset {
  const ofRow = (name: string) => sql.ref(`${columns.row}.${name}`)
  const ofRecord = (name: string) => sql.ref(`${columns.record}.${name}`)
  return new Keyset([
    { by: ofRecord('time'), type: 'time', dir },
    { by: ofRow('arrived_at'), type: 'time', dir },
    { by: ofRow('batch_seq'), type: 'number', dir },
    { by: ofRow('message'), type: 'number', dir },
    { by: ofRow('chunk'), type: 'number' },
    { by: ofRecord('place'), type: 'number' },
  ])
}

/** The order of `recordsByTime` for records that are selected as `f`. */
export const byTime = (dir: Direction): Sql<unknown> => recordsByTime(dir, { row: 'f', record: 'f' }).order

/** The order of JSON and raw messages `p`. Objects of one message stay in their order. */
export function payloadsByTime(dir: Direction): Keyset {
  return new Keyset([
    { by: sql`p.time`, type: 'time', dir },
    { by: sql`p.arrived_at`, type: 'time', dir },
    { by: sql`p.batch_seq`, type: 'number', dir },
    { by: sql`p.message`, type: 'number', dir },
    { by: sql`p.ordinal`, type: 'number' },
  ])
}

/** The position of a record with this time in a row `m`, and of an edge. Positions compare in the order of the records. */
export const placeOf = (time: Sql<unknown>) => sql`(${time}, m.arrived_at, m.batch_seq, m.message)`
export const EDGE = sql`(edge.at, edge.arrived_at, edge.batch_seq, edge.message)`
export const byPlace = (time: Sql<unknown>, direction: Sql<unknown>) =>
  sql`${time} ${direction}, m.arrived_at ${direction}, m.batch_seq ${direction}, m.message ${direction}`
