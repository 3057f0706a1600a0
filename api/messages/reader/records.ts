/** Reads SenML records: pages in order, and how many match. */
import type { RawBuilder } from 'kysely'
import { sql } from 'kysely'
import type { Transaction } from '#core/database/index.ts'
import { RECORDS, RECORDS_IN_ROW } from '../store/opened.ts'
import { BUCKET_SECONDS } from '../store/runs.ts'
import type { RecordConditions, Scope, TimeRange } from './conditions.ts'
import { all, conditionsIn, scopeOf } from './conditions.ts'
import type { Filter } from './filter.ts'
import type { Parts } from './parts.ts'
import { partsOf } from './parts.ts'

export type Window = { offset: number; limit: number; order: string | undefined; dir: 'asc' | 'desc' }

export type RecordRow = {
  subtopic: string
  publisher_id: string
  name: string
  unit: string
  protocol: number
  time: number
  value: number | null
  sum: number | null
  update_time: number | null
  bool_value: boolean | null
  string_value: string | null
  data_value: Buffer | null
}

export type Rows<Row> = { rows: Row[]; total: number }

/** The columns that a page can be ordered by; an unknown order is that of time. */
const ORDER_COLUMNS: Readonly<Record<string, RawBuilder<unknown>>> = {
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

/** Rows of the table that a page by time looks at first, beside those that its offset skips at the least. */
const FIRST_ROWS = 64
/** Records that a row holds at the least in what people send; a wrong guess costs another look. */
const GUESSED_RECORDS = 4
/** How much further each next look goes. */
const WIDER = 8
/** More rows than a look can read before its deadline. */
const MAX_LOOKED_ROWS = 1e9

/** A page and the number of all matching records, of one snapshot if the transaction has one. */
export async function readRecords(
  tx: Transaction,
  channelKey: number,
  filter: Filter,
  window: Window,
): Promise<Rows<RecordRow>> {
  const scope = await scopeOf(tx, channelKey, filter)
  const parts = await partsOf(tx, scope, filter)
  const total = await countRecords(tx, parts)
  if (total <= window.offset) return { rows: [], total }
  const column = window.order === undefined ? undefined : ORDER_COLUMNS[window.order]
  if (column !== undefined) return { rows: await pageByColumn(tx, conditionsIn(scope, filter), window, column), total }
  const wanted = Math.min(window.limit, total - window.offset)
  const { range, offset } = await skipBuckets(tx, parts, filter, window)
  return { rows: await pageByTime(tx, scope, range, { ...window, offset }, wanted), total }
}

async function countRecords(tx: Transaction, { rollups, raw }: Parts): Promise<number> {
  const counts = raw.map(rawCount)
  if (rollups !== undefined) counts.push(sql`(SELECT coalesce(sum(b.records), 0) FROM rollups b WHERE ${rollups})`)
  const { rows } = await sql<{ total: number }>`SELECT (${sql.join(counts, sql` + `)})::bigint AS total`.execute(tx)
  return rows[0]?.total ?? 0
}

/** Whole rows are counted by their length; only those that a range of times cuts are opened, or all for other filters. */
function rawCount({ rows, isInside, times, records }: RecordConditions): RawBuilder<unknown> {
  if (records.length > 0) return sql`(SELECT count(*) FROM ${RECORDS} WHERE ${all([rows, ...times, ...records])})`
  const matching = sql`(SELECT count(*) FROM unnest(m.times) AS r(time) WHERE ${all(times)})`
  const length = sql`cardinality(m.times)`
  const inRow = times.length === 0 ? length : sql`CASE WHEN ${isInside} THEN ${length} ELSE ${matching} END`
  return sql`(SELECT coalesce(sum(${inRow}), 0) FROM records m WHERE ${rows})`
}

/** Below this an offset is walked over. */
const SKIP_OFFSET = 100

/** Whole quarters of an hour that the offset passes over are left out of the range, and their records off the offset. */
async function skipBuckets(
  tx: Transaction,
  { rollups, raw }: Parts,
  { fromSeconds, toSeconds }: TimeRange,
  { offset, dir }: Window,
): Promise<{ range: TimeRange; offset: number }> {
  if (rollups === undefined || offset < SKIP_OFFSET) return { range: { fromSeconds, toSeconds }, offset }
  const bucket = sql`date_bin(make_interval(secs => ${BUCKET_SECONDS}), r.time, 'epoch')`
  const parts = [
    sql`SELECT b.bucket, sum(b.records) AS records FROM rollups b WHERE ${rollups} GROUP BY 1`,
    ...raw.map(
      ({ rows, times, records }) =>
        sql`SELECT ${bucket}, count(*) FROM ${RECORDS} WHERE ${all([rows, ...times, ...records])} GROUP BY 1`,
    ),
  ]
  const { rows } = await sql<{ start: number; before: number }>`
    SELECT extract(epoch FROM bucket)::float8 AS start, before::bigint AS before
      FROM (SELECT bucket, sum(records) AS records, sum(sum(records)) OVER (ORDER BY bucket ${directionOf(dir)}) - sum(records) AS before
              FROM (${sql.join(parts, sql` UNION ALL `)}) part GROUP BY bucket) counted
     WHERE before <= ${offset} AND before + records > ${offset}`.execute(tx)
  const [found] = rows
  if (found === undefined) return { range: { fromSeconds, toSeconds }, offset }
  const range =
    dir === 'desc'
      ? { fromSeconds, toSeconds: Math.min(toSeconds ?? Infinity, found.start + BUCKET_SECONDS) }
      : { fromSeconds: Math.max(fromSeconds ?? -Infinity, found.start), toSeconds }
  return { range, offset: offset - found.before }
}

/**
 * A page in the order of time. The rows with the newest (or oldest) ends are opened; what lies beyond the end of the last
 * of them is not known yet, so the page is complete when it does not reach so far. Otherwise more rows are opened.
 */
async function pageByTime(
  tx: Transaction,
  scope: Scope,
  range: TimeRange,
  { offset, limit, dir }: Window,
  wanted: number,
): Promise<RecordRow[]> {
  const { rows: rowCondition, times, records } = conditionsIn(scope, range)
  const isNewestFirst = dir === 'desc'
  const end = isNewestFirst ? sql`m.max_time DESC` : sql`m.min_time ASC`
  const lastEnd = isNewestFirst ? sql`min(max_time)` : sql`max(min_time)`
  const isKnown = isNewestFirst ? sql<boolean>`r.time > edge.at` : sql<boolean>`r.time < edge.at`
  let look = FIRST_ROWS + Math.ceil((offset + limit) / GUESSED_RECORDS)
  for (;;) {
    const found = await show(
      tx,
      sql`
      WITH looked AS MATERIALIZED (
        SELECT * FROM records m WHERE ${rowCondition} ORDER BY ${end} LIMIT ${look}
      ), edge AS (
        SELECT CASE WHEN count(*) = ${look} THEN ${lastEnd} END AS at FROM looked
      )
      SELECT ${SELECTED} FROM edge, looked m CROSS JOIN LATERAL ${RECORDS_IN_ROW}
       WHERE ${all([...times, ...records])} AND (edge.at IS NULL OR ${isKnown})`,
      byTime(dir),
      { offset, limit },
    )
    if (found.length >= wanted || look > MAX_LOOKED_ROWS) return found
    look *= WIDER
  }
}

/** A page in another order: all that match are sorted. */
async function pageByColumn(
  tx: Transaction,
  { rows, times, records }: RecordConditions,
  { offset, limit, dir }: Window,
  column: RawBuilder<unknown>,
): Promise<RecordRow[]> {
  const source = sql`SELECT ${SELECTED}, ${column} AS sorted FROM ${RECORDS} JOIN series s ON s.key = r.series_key
    WHERE ${all([rows, ...times, ...records])}`
  return await show(tx, source, sql`f.sorted ${directionOf(dir)}, ${byTime(dir)}`, { offset, limit })
}

function directionOf(dir: 'asc' | 'desc'): RawBuilder<unknown> {
  return dir === 'asc' ? sql`ASC` : sql`DESC`
}

/**
 * Of equal times what arrived later is newer; numbers of batches are no order across lanes. Records of one message stay in
 * the order in which they were sent, also where the newest message comes first.
 */
export function byTime(dir: 'asc' | 'desc'): RawBuilder<unknown> {
  const direction = directionOf(dir)
  return sql`f.time ${direction}, f.arrived_at ${direction}, f.batch_seq ${direction}, f.message ${direction}, f.run, f.place`
}

/** The part of `source` from the offset on, each record with its series. */
async function show(
  tx: Transaction,
  source: RawBuilder<unknown>,
  order: RawBuilder<unknown>,
  { offset, limit }: { offset: number; limit: number },
): Promise<RecordRow[]> {
  const { rows } = await sql<RecordRow>`
    SELECT s.subtopic, s.publisher_id, s.name, s.unit, f.protocol, extract(epoch FROM f.time)::float8 AS time, f.value,
           f.sum, f.update_time, f.bool_value, f.string_value, f.data_value
      FROM (SELECT f.* FROM (${source}) f ORDER BY ${order} LIMIT ${limit} OFFSET ${offset}) f
      JOIN series s ON s.key = f.series_key
     ORDER BY ${order}`.execute(tx)
  return rows
}
