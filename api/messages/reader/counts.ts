/** How many records match, without opening more rows of the table than it takes. */
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { RECORDS, TIMES_IN_ROW } from '../store/opened.ts'
import type { RecordConditions } from './conditions.ts'
import { all, matchingIn } from './conditions.ts'

/** How many records of a row `m` meet conditions on their series and times. */
export function countInRow(conditions: readonly Sql<boolean>[]): Sql<unknown> {
  return sql`(SELECT count(*) FROM ${TIMES_IN_ROW} WHERE ${all(conditions)})`
}

/** The same of a row that lies in the range as a whole: by its length, or by its series. */
function countInWhole(series: readonly Sql<boolean>[]): Sql<unknown> {
  return series.length === 0
    ? sql`cardinality(m.series_keys)`
    : sql`(SELECT count(*) FROM (SELECT unnest(m.series_keys) AS series_key) AS r WHERE ${all(series)})`
}

/**
 * A SELECT of `records`, how many match: one row, or one for each `part` that the rows are divided into. What one publisher sends has
 * mostly the same series in the same order: where series are asked for, each such order is looked at once, however many rows have it.
 */
export function countsOf(conditions: RecordConditions, part?: Sql<unknown>): Sql<unknown> {
  const { rows, isInside, times, series, values } = conditions
  const [named, shown, grouped] =
    part === undefined ? [sql``, sql``, sql``] : [sql`${part} AS part,`, sql`m.part,`, sql`GROUP BY 1`]
  if (values.length > 0)
    return sql`
      SELECT ${named} count(*) AS records FROM ${RECORDS} WHERE ${all([rows, ...matchingIn(conditions)])} ${grouped}`
  const cut = times.length === 0 ? sql`NULL::timestamptz[]` : sql`CASE WHEN NOT (${isInside}) THEN m.times END`
  const inRow = sql`CASE WHEN m.times IS NULL THEN ${countInWhole(series)} ELSE ${countInRow([...times, ...series])} END`
  const alike = series.length === 0 ? sql`1 AS alike` : sql`count(*) AS alike`
  const byLikeness =
    series.length === 0 ? sql`OFFSET 0` : sql`GROUP BY ${sql.raw(part === undefined ? '1, 2' : '1, 2, 3')}`
  return sql`
    SELECT ${shown} coalesce(sum(m.alike * ${inRow}), 0) AS records
      FROM (SELECT ${named} m.series_keys, ${cut} AS times, ${alike} FROM records m WHERE ${rows} ${byLikeness}) m ${grouped}`
}

/** A SELECT of `columns` of the rows `m` that may hold a match, each with `records`, how many it holds. */
export function countedRows(conditions: RecordConditions, columns: Sql<unknown>): Sql<unknown> {
  const { rows, isInside, times, series } = conditions
  const opened = countInRow([...times, ...series])
  if (series.length === 0)
    return sql`
      SELECT ${columns}, CASE WHEN ${isInside} THEN ${countInWhole([])} ELSE ${opened} END AS records FROM records m WHERE ${rows}`
  return sql`
    WITH alike AS MATERIALIZED (
      SELECT m.series_keys, ${countInWhole(series)} AS records FROM (SELECT DISTINCT m.series_keys FROM records m WHERE ${rows}) m
    )
    SELECT ${columns}, CASE WHEN ${isInside} THEN alike.records ELSE ${opened} END AS records
      FROM records m JOIN alike USING (series_keys) WHERE ${rows}`
}
