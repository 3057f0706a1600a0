/** The records in the rows of the table `records`, as SQL. */
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

/** The records `r` of a row `m`, as a table; `place` is that of the record in its row. */
export const RECORDS_IN_ROW: Sql<unknown> = sql`unnest(
  m.series_keys, m.times, m."values", m.sums, m.update_times, m.bool_values, m.string_values, m.data_values) WITH ORDINALITY
  AS r(series_key, time, value, sum, update_time, bool_value, string_value, data_value, place)`

const PLACES = sql`(SELECT generate_series(1, cardinality(m.times)) AS place) AS g`

/**
 * The same records with only the columns that order and name them. Taken out one by one, the columns cost half of what a table of the
 * records does.
 */
export const TIMES_IN_ROW: Sql<unknown> = sql`(
  SELECT m.series_keys[g.place] AS series_key, m.times[g.place] AS time, g.place FROM ${PLACES}) AS r`

/** The columns of `TIMES_IN_ROW` and the numeric value, which most records have. */
export const NUMBERS_IN_ROW: Sql<unknown> = sql`(
  SELECT m.series_keys[g.place] AS series_key, m.times[g.place] AS time, m."values"[g.place] AS value FROM ${PLACES} OFFSET 0) AS r`

/** All rows `m` of the table and the records `r` in them. */
export const RECORDS: Sql<unknown> = sql`records m CROSS JOIN LATERAL ${RECORDS_IN_ROW}`
