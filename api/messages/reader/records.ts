/** Reads SenML records: pages in order, and how many match. */
import { executeKept, withinPage } from '#core/database/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { RECORDS } from '../store/opened.ts'
import type { RecordConditions } from './conditions.ts'
import { all, conditionsIn, matchingIn, scopeOf } from './conditions.ts'
import { countsOf } from './counts.ts'
import type { Filter } from './filter.ts'
import { byTime, directionOf } from './order.ts'
import type { Parts } from './parts.ts'
import { UNFOLDED, partsOf } from './parts.ts'
import { SKIP_OFFSET, guessedPerRow, skipBuckets, skipRows } from './skips.ts'
import { pageByTime } from './time-page.ts'
import type { RecordRow, Rows, Window } from './window.ts'

/** The columns that a page can be ordered by; an unknown order is that of time. */
const ORDER_COLUMNS: Readonly<Record<string, Sql<unknown>>> = {
  name: sql`s.name`,
  unit: sql`s.unit`,
  publisher: sql`s.publisher_id`,
  subtopic: sql`s.subtopic`,
  protocol: sql`m.protocol`,
  value: sql`r.value`,
}

/** The columns of a record that a page shows or is ordered by. */
export const SELECTED = sql`m.arrived_at, m.batch_seq, m.message, m.run, m.protocol, r.series_key, r.time, r.value, r.sum, r.update_time,
  r.bool_value, r.string_value, r.data_value, r.place`

/** A page and the number of all matching records, of one snapshot if the transaction has one. */
export async function readRecords(
  tx: Transaction,
  channelKey: number,
  filter: Filter,
  window: Window,
): Promise<Rows<RecordRow>> {
  const scope = await scopeOf(tx, channelKey, filter)
  const parts = await partsOf(tx, scope, filter, UNFOLDED)
  const { offset, limit, order } = window
  const column = order === undefined ? undefined : ORDER_COLUMNS[order]
  // A near page is on its way before it is known how many records there are.
  if (column === undefined && offset < SKIP_OFFSET && limit > 0) {
    const counting = countRecords(tx, parts)
    const start = { edge: undefined, offset, recordsPerRow: guessedPerRow(scope) }
    const [total, rows] = await Promise.all([counting, pageByTime(tx, scope, filter, window, start, counting)])
    return { rows, total }
  }
  const isFar = column === undefined && limit > 0
  const skipped = (isFar ? await skipBuckets(tx, parts, filter, window) : undefined) ?? {
    total: await countRecords(tx, parts),
    range: filter,
    bucket: undefined,
    offset,
  }
  const { total } = skipped
  if (total <= offset || limit === 0) return { rows: [], total }
  if (column !== undefined) return { rows: await pageByColumn(tx, conditionsIn(scope, filter), window, column), total }
  const start = await skipRows(tx, scope, skipped.bucket, { ...window, offset: skipped.offset })
  const left = Promise.resolve(total - offset + start.offset)
  return { rows: await pageByTime(tx, scope, skipped.range, window, start, left), total }
}

async function countRecords(tx: Transaction, { rollups, raw }: Parts): Promise<number> {
  const counts = raw.map((part) => sql`(SELECT coalesce(sum(counted.records), 0) FROM (${countsOf(part)}) counted)`)
  if (rollups !== undefined) counts.push(sql`(SELECT coalesce(sum(b.records), 0) FROM ${rollups})`)
  const { rows } = await executeKept(
    tx,
    sql<{ total: number }>`SELECT (${sql.join(counts, sql` + `)})::bigint AS total`,
  )
  return rows[0]?.total ?? 0
}

/** A page in another order: all that match are sorted, those without what they are ordered by behind the others. */
async function pageByColumn(
  tx: Transaction,
  conditions: RecordConditions,
  { offset, limit, dir }: Window,
  column: Sql<unknown>,
): Promise<RecordRow[]> {
  const source = sql`SELECT ${SELECTED}, ${column} AS sorted FROM ${RECORDS} JOIN series s ON s.key = r.series_key
    WHERE ${all([conditions.rows, ...matchingIn(conditions)])}`
  return await show(tx, source, sql`f.sorted ${directionOf(dir)} NULLS LAST, ${byTime(dir)}`, { offset, limit })
}

/** The part of `source` from the offset on, each record with its series. */
async function show(
  tx: Transaction,
  source: Sql<unknown>,
  order: Sql<unknown>,
  { offset, limit }: { offset: number; limit: number },
): Promise<RecordRow[]> {
  const { rows } = await withinPage(sql<RecordRow>`
    SELECT s.subtopic, s.publisher_id, s.name, s.unit, f.protocol, extract(epoch FROM f.time)::float8 AS time, f.value,
           f.sum, f.update_time, f.bool_value, f.string_value, f.data_value
      FROM (SELECT f.* FROM (${source}) f ORDER BY ${order} LIMIT ${limit} OFFSET ${offset}) f
      JOIN series s ON s.key = f.series_key
     ORDER BY ${order}`).execute(tx)
  return rows
}
