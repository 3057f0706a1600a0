/** How many records match a query. */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { RECORDS_IN_ROW, TIMES_IN_ROW } from '../store/opened.ts'
import type { RecordConditions } from './conditions.ts'
import { all, matchingIn } from './conditions.ts'
import type { Parts } from './parts.ts'

/** The exact number of records that match. */
export async function countRecords(tx: Transaction, parts: Parts): Promise<number> {
  const known = knownTotal(parts)
  if (known !== undefined) return known
  const { rows } = await totalOf(parts).execute(tx)
  return rows[0]?.total ?? 0
}

/** Returns the number of records that match if nothing has to be read for it; otherwise undefined. */
export function knownTotal({ counts, raw }: Parts): number | undefined {
  return raw.length === 0 && counts.table === undefined ? counts.known : undefined
}

function totalOf({ counts: { known, table }, raw }: Parts): Sql<{ total: number }> {
  const counts = [sql`${known}::bigint`]
  // Neither rows nor buckets are left where no series matches.
  for (const part of raw) counts.push(sql`(SELECT coalesce(sum(counted.records), 0) FROM (${countsOf(part)}) counted)`)
  if (table !== undefined) counts.push(sql`(SELECT coalesce(sum(b.records), 0) FROM ${table})`)
  return sql`SELECT (${sql.join(counts, sql` + `)})::bigint AS total`
}

/**
 * A SELECT of `records`, how many match: one row, or one row for each `part` that the rows of the table are divided into. A row that the range covers
 * completely is counted without opening it, if all of its records match.
 */
export function countsOf(conditions: RecordConditions, part: Sql<unknown> = sql`NULL`): Sql<unknown> {
  const { rows, isInside, times, series, values } = conditions
  if (series.length > 0 || values.length > 0) {
    const opened = values.length > 0 ? RECORDS_IN_ROW : TIMES_IN_ROW
    return sql`
      SELECT ${part} AS part, count(*) AS records
        FROM records m CROSS JOIN LATERAL ${opened} WHERE ${all([rows, ...matchingIn(conditions)])} GROUP BY 1`
  }
  const cut = sql`(SELECT count(*) FROM (SELECT unnest(m.times) AS time) r WHERE ${all(times)})`
  return sql`
    SELECT ${part} AS part, sum(CASE WHEN ${isInside} THEN cardinality(m.series_keys) ELSE ${cut} END) AS records
      FROM records m WHERE ${rows} GROUP BY 1`
}
