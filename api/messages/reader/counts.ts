/** How many records match, without opening more rows of the table than it takes. */
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { RECORDS } from '../store/opened.ts'
import type { RecordConditions } from './conditions.ts'
import { all, matchingIn } from './conditions.ts'
import { JOIN_NAMED, NAMED_IN_ROW, NAMED_TIMES_IN_ROW, namedAmong } from './named.ts'

/** A SELECT of `records`, how many match: one row, or one for each `part` that the rows are divided into, if there are any. */
export function countsOf(conditions: RecordConditions, part?: Sql<unknown>): Sql<unknown> {
  const { rows, values } = conditions
  const [named, shown, grouped] =
    part === undefined ? [sql``, sql``, sql``] : [sql`${part} AS part,`, sql`m.part,`, sql`GROUP BY 1`]
  if (values.length > 0)
    return sql`
      SELECT ${named} count(*) AS records FROM ${RECORDS} WHERE ${all([rows, ...matchingIn(conditions)])} ${grouped}`
  const { withs, counted } = countedRows(conditions, part === undefined ? undefined : sql`${part} AS part`)
  return sql`WITH ${withs} SELECT ${shown} coalesce(sum(m.records), 0) AS records FROM (${counted}) m ${grouped}`
}

/**
 * A SELECT of `columns` of the rows `m` that may hold a match, each with `records`, how many it holds, and the CTEs that it reads. A row
 * that lies in the range as a whole is counted without its times. A row may come in several parts.
 */
export function countedRows(
  { rows, isInside, times, named }: RecordConditions,
  columns?: Sql<unknown>,
): { withs: Sql<unknown>; counted: Sql<unknown> } {
  const cut = times.length === 0 ? sql`NULL::timestamptz[]` : sql`CASE WHEN NOT (${isInside}) THEN m.times END`
  const shown = columns === undefined ? sql`` : sql`${columns},`
  const held = named === undefined ? sql`cardinality(m.series_keys) AS length` : sql`m.series_keys`
  const found = sql`found AS MATERIALIZED (SELECT ${shown} ${held}, ${cut} AS times FROM records m WHERE ${rows})`
  const [whole, opened] = named === undefined ? [sql`m.length`, TIMES_OF_FOUND] : [NAMED_IN_ROW, NAMED_TIMES_IN_ROW]
  const records = sql`CASE WHEN m.times IS NULL THEN ${whole} ELSE (SELECT count(*) FROM ${opened} WHERE ${all(times)}) END AS records`
  return named === undefined
    ? { withs: found, counted: sql`SELECT m.*, ${records} FROM found m` }
    : {
        withs: sql`${found}, ${namedAmong(sql`found`, named)}`,
        counted: sql`SELECT m.*, ${records} FROM found m ${JOIN_NAMED}`,
      }
}

const TIMES_OF_FOUND = sql`(SELECT unnest(m.times) AS time) AS r`
