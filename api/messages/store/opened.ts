/** The records in the rows of the table `records`, as SQL. */
import { sql } from 'kysely'
import type { RawBuilder } from 'kysely'

/** The records `r` of a row `m`, as a table; `place` is that of the record in its row. */
export const RECORDS_IN_ROW: RawBuilder<unknown> = sql`unnest(
  m.series_keys, m.times, m."values", m.sums, m.update_times, m.bool_values, m.string_values, m.data_values) WITH ORDINALITY
  AS r(series_key, time, value, sum, update_time, bool_value, string_value, data_value, place)`

/** Of the same records only what orders and names them: a fraction of the work. */
export const TIMES_IN_ROW: RawBuilder<unknown> = sql`unnest(m.series_keys, m.times) WITH ORDINALITY AS r(series_key, time, place)`

/** All rows `m` of the table and the records `r` in them. */
export const RECORDS: RawBuilder<unknown> = sql`records m CROSS JOIN LATERAL ${RECORDS_IN_ROW}`
