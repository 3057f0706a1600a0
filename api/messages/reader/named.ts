/**
 * Records of one name. All of a row are of one publisher and subtopic, so that few of the series with the name can stand in it, mostly
 * one: the row's first series tells which, and one look through its keys where. Otherwise each record of the row would be held against
 * every series of the name.
 */
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

/** The CTE `named`: each first series of the rows `rows`, with the series among `keys` that are of its publisher and subtopic. */
export function namedAmong(rows: Sql<unknown>, keys: readonly number[]): Sql<unknown> {
  return sql`named AS MATERIALIZED (
    SELECT f.first, n.key
      FROM (SELECT f.first, (SELECT ARRAY[s.publisher_id, s.subtopic] FROM series s WHERE s.key = f.first) AS sender
              FROM (SELECT DISTINCT m.series_keys[1] AS first FROM ${rows} m) f OFFSET 0) f
      JOIN (SELECT s.key, ARRAY[s.publisher_id, s.subtopic] AS sender FROM series s WHERE s.key = ANY (${keys}::bigint[])) n USING (sender)
  )`
}

/** To rows `m`: once for each of the series that may stand in them. */
export const JOIN_NAMED = sql`JOIN named ON named.first = m.series_keys[1]`

const PLACES = sql`array_positions(m.series_keys, named.key)`

/** How many records of such a row are of the series. */
export const NAMED_IN_ROW = sql`cardinality(${PLACES})`

/** These records `r` as a table, of what orders and names them. */
export const NAMED_TIMES_IN_ROW = sql`(
  SELECT named.key AS series_key, m.times[g.place] AS time, g.place::bigint AS place FROM (SELECT unnest(${PLACES}) AS place) AS g) AS r`

/** To rows `m`: once for each of these records. */
export const JOIN_NAMED_RECORDS = sql`${JOIN_NAMED} CROSS JOIN LATERAL ${NAMED_TIMES_IN_ROW}`
