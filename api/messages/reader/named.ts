/**
 * Records of one name: all of a row are of one publisher and subtopic, so that of the series with the name one or two can stand in it.
 * It is found by the row's first series and its places in the row by one look at its array, where each record of the row would be held
 * against all of them.
 */
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

/** A CTE of what `named` joins: of the rows `rows` the first series, and which of these series their publisher and subtopic have. */
export function namedAmong(rows: Sql<unknown>, keys: readonly number[]): Sql<unknown> {
  return sql`named AS MATERIALIZED (
    SELECT f.first, n.key
      FROM (SELECT f.first, (SELECT ARRAY[s.publisher_id, s.subtopic] FROM series s WHERE s.key = f.first) AS sender
              FROM (SELECT DISTINCT m.series_keys[1] AS first FROM ${rows} m) f OFFSET 0) f
      JOIN (SELECT s.key, ARRAY[s.publisher_id, s.subtopic] AS sender FROM series s WHERE s.key = ANY (${keys}::bigint[])) n USING (sender)
  )`
}

/** To rows `m` whose `series_keys` hold one of the series: once for each that may stand in them. */
export const JOIN_NAMED = sql`JOIN named ON named.first = m.series_keys[1]`

const PLACES = sql`array_positions(m.series_keys, named.key)`

/** How many records of such a row are of the series. */
export const NAMED_IN_ROW = sql`cardinality(${PLACES})`

/** They as a table, of what orders and names them. */
export const NAMED_TIMES_IN_ROW = sql`(
  SELECT named.key AS series_key, m.times[g.place] AS time, g.place::bigint AS place FROM (SELECT unnest(${PLACES}) AS place) AS g) AS r`
