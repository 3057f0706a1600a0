/** Reads SenML records: pages in order, and how many match. */
import type { RawBuilder } from 'kysely'
import { sql } from 'kysely'
import type { Transaction } from '#core/database/index.ts'
import { RECORDS, RECORDS_IN_ROW, TIMES_IN_ROW } from '../store/opened.ts'
import { BUCKET_SECONDS } from '../store/runs.ts'
import type { RecordConditions, Scope, TimeRange } from './conditions.ts'
import { all, conditionsIn, countInRow, scopeOf } from './conditions.ts'
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
const FIRST_ROWS = 16
/** Records that match in a row at the least in what people send, where it is not known; a wrong guess costs another look. */
const GUESSED_RECORDS = 4
/** The same of one name: a message has it once. */
const GUESSED_OF_NAME = 1
/** Rows of devices with one clock lie beside each other: to have all records of a time, so many times the rows are needed. */
const ROWS_BESIDE = 2
/** How much further a look goes after one that found nothing; after others it goes as far as they promise, and a bit. */
const WIDER = 8
const RESERVE = 1.25
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
  if (total <= window.offset || window.limit === 0) return { rows: [], total }
  const column = window.order === undefined ? undefined : ORDER_COLUMNS[window.order]
  if (column !== undefined) return { rows: await pageByColumn(tx, conditionsIn(scope, filter), window, column), total }
  const wanted = Math.min(window.limit, total - window.offset)
  const skipped = await skipBuckets(tx, parts, filter, window)
  const start = await skipRows(tx, scope, skipped.bucket, { ...window, offset: skipped.offset })
  const rows = await pageByTime(tx, scope, skipped.range, { ...window, offset: start.offset }, { wanted, ...start })
  return { rows, total }
}

async function countRecords(tx: Transaction, { rollups, raw }: Parts): Promise<number> {
  const counts = raw.map(rawCount)
  if (rollups !== undefined) counts.push(sql`(SELECT coalesce(sum(b.records), 0) FROM rollups b WHERE ${rollups})`)
  const { rows } = await sql<{ total: number }>`SELECT (${sql.join(counts, sql` + `)})::bigint AS total`.execute(tx)
  return rows[0]?.total ?? 0
}

function rawCount({ rows, inRow, times, records }: RecordConditions): RawBuilder<unknown> {
  return inRow === undefined
    ? sql`(SELECT count(*) FROM ${RECORDS} WHERE ${all([rows, ...times, ...records])})`
    : sql`(SELECT coalesce(sum(${inRow}), 0) FROM records m WHERE ${rows})`
}

/** Below this an offset is walked over. */
const SKIP_OFFSET = 100

/** Whole quarters of an hour that the offset passes over are left out of the range, and their records off the offset. */
async function skipBuckets(
  tx: Transaction,
  { rollups, raw }: Parts,
  { fromSeconds, toSeconds }: TimeRange,
  { offset, dir }: Window,
): Promise<{ range: TimeRange; bucket: TimeRange | undefined; offset: number }> {
  const whole = { range: { fromSeconds, toSeconds }, bucket: undefined, offset }
  if (rollups === undefined || offset < SKIP_OFFSET) return whole
  const parts = [
    sql`SELECT b.bucket, sum(b.records) AS records FROM rollups b WHERE ${rollups} GROUP BY 1`,
    // The records of a row lie in one bucket. Rollups know nothing of values, so that none are asked for here.
    ...raw.map(
      ({ rows, inRow }) =>
        sql`SELECT date_bin(make_interval(secs => ${BUCKET_SECONDS}), m.min_time, 'epoch'), sum(${inRow}) FROM records m WHERE ${rows} GROUP BY 1`,
    ),
  ]
  const { rows } = await sql<{ start: number; before: number }>`
    SELECT extract(epoch FROM bucket)::float8 AS start, before::bigint AS before
      FROM (SELECT bucket, sum(records) AS records, sum(sum(records)) OVER (ORDER BY bucket ${directionOf(dir)}) - sum(records) AS before
              FROM (${sql.join(parts, sql` UNION ALL `)}) part GROUP BY bucket) counted
     WHERE before <= ${offset} AND before + records > ${offset}`.execute(tx)
  const [found] = rows
  if (found === undefined) return whole
  const bucket = {
    fromSeconds: Math.max(fromSeconds ?? -Infinity, found.start),
    toSeconds: Math.min(toSeconds ?? Infinity, found.start + BUCKET_SECONDS),
  }
  const range =
    dir === 'desc' ? { fromSeconds, toSeconds: bucket.toSeconds } : { fromSeconds: bucket.fromSeconds, toSeconds }
  return { range, bucket, offset: offset - found.before }
}

/**
 * Where a message stands in the order of pages: a time and what decides among equal ones, times in the text of PostgreSQL,
 * which is exact. The page lies before or at it (or after or at it).
 */
type Edge = { at: string; arrived_at: string; batch_seq: number; message: number } | undefined

/** Where a page by time begins to look, and how many records that match a row there holds. */
type Start = { edge: Edge; offset: number; recordsPerRow: number }

/** The place of a record with this time in a row `m`, and that of an edge: they compare as the records follow each other. */
const placeOf = (time: RawBuilder<unknown>) => sql`(${time}, m.arrived_at, m.batch_seq, m.message)`
const EDGE = sql`(edge.at, edge.arrived_at, edge.batch_seq, edge.message)`
const byPlace = (time: RawBuilder<unknown>, direction: RawBuilder<unknown>) =>
  sql`${time} ${direction}, m.arrived_at ${direction}, m.batch_seq ${direction}, m.message ${direction}`

/**
 * Records that the offset passes over inside a bucket: those beyond the end of a row, counted row by row. None of them is
 * opened but those of rows that this end cuts.
 */
async function skipRows(
  tx: Transaction,
  scope: Scope,
  bucket: TimeRange | undefined,
  { offset, dir }: Window,
): Promise<Start> {
  if (bucket === undefined || offset < SKIP_OFFSET) {
    const guessed = scope.recordKeys === undefined ? GUESSED_RECORDS : GUESSED_OF_NAME
    return { edge: undefined, offset, recordsPerRow: guessed * ROWS_BESIDE }
  }
  const { rows: rowCondition, inRow, times, records } = conditionsIn(scope, bucket)
  const isNewestFirst = dir === 'desc'
  const [far, near] = isNewestFirst ? [sql`max_time`, sql`min_time`] : [sql`min_time`, sql`max_time`]
  const beyond = isNewestFirst ? sql`>` : sql`<`
  const [direction, opposite] = [directionOf(dir), directionOf(isNewestFirst ? 'asc' : 'desc')]
  const isBeyond = (time: RawBuilder<unknown>) => sql<boolean>`${placeOf(time)} ${beyond} ${EDGE}`
  const inCut = countInRow([...times, ...records, isBeyond(sql`r.time`)])
  const { rows } = await sql<{ before: number; mean: number | null } & (Exclude<Edge, undefined> | { at: null })>`
    WITH counted AS MATERIALIZED (
      SELECT ${far} AS far, ${near} AS near, m.arrived_at, m.batch_seq, m.message, m.series_keys, m.times, ${inRow} AS records
        FROM records m WHERE ${rowCondition}
    ), edge AS (
      SELECT far AS at, arrived_at, batch_seq, message
        FROM (SELECT far, arrived_at, batch_seq, message,
                     sum(records) OVER (ORDER BY ${byPlace(sql`far`, direction)}) AS upto
                FROM counted m) m
       WHERE upto <= ${offset} ORDER BY upto DESC, ${byPlace(sql`far`, opposite)} LIMIT 1
    )
    SELECT edge.at::text AS at, edge.arrived_at::text AS arrived_at, edge.batch_seq, edge.message, (
             SELECT coalesce(sum(CASE WHEN ${isBeyond(sql`m.near`)} THEN m.records ELSE ${inCut} END), 0)
               FROM counted m WHERE ${isBeyond(sql`m.far`)})::bigint AS before,
           (SELECT avg(records)::float8 FROM counted WHERE records > 0) AS mean
      FROM (SELECT) AS always LEFT JOIN edge ON true`.execute(tx)
  const { before = 0, mean, ...edge } = rows[0] ?? { at: null }
  return { edge: edge.at === null ? undefined : edge, offset: offset - before, recordsPerRow: mean ?? 1 }
}

/**
 * A page in the order of time. The rows with the newest (or oldest) ends are opened; what lies beyond the end of the last
 * of them is not known yet, so the page is complete when it does not reach so far. Otherwise more rows are opened. Rows that
 * end at the same time, as those of devices with one clock do, are looked at in the order that their records have.
 */
async function pageByTime(
  tx: Transaction,
  scope: Scope,
  range: TimeRange,
  { offset, limit, dir }: Window,
  { wanted, edge: from, recordsPerRow }: { wanted: number; edge: Edge; recordsPerRow: number },
): Promise<RecordRow[]> {
  const conditions = conditionsIn(scope, range)
  const { records } = conditions
  const isNewestFirst = dir === 'desc'
  const rowConditions = [conditions.rows]
  const times = [...conditions.times]
  if (from !== undefined) {
    rowConditions.push(
      isNewestFirst ? sql`m.min_time <= ${from.at}::timestamptz` : sql`m.max_time >= ${from.at}::timestamptz`,
    )
    times.push(
      sql`${placeOf(sql`r.time`)} ${isNewestFirst ? sql`<=` : sql`>=`}
          (${from.at}::timestamptz, ${from.arrived_at}::timestamptz, ${from.batch_seq}::bigint, ${from.message}::integer)`,
    )
  }
  const direction = directionOf(dir)
  const end = isNewestFirst ? sql`m.max_time` : sql`m.min_time`
  const beyond = isNewestFirst ? sql`>` : sql`<`
  const orderOfRows = byPlace(end, direction)
  // Of records that are only ordered and counted nothing else is opened.
  const opened = scope.values.length === 0 ? TIMES_IN_ROW : RECORDS_IN_ROW
  let look = FIRST_ROWS + Math.ceil(((offset + limit) / recordsPerRow) * ROWS_BESIDE)
  for (;;) {
    const { rows: found } = await sql<RecordRow>`
      WITH looked AS MATERIALIZED (
        SELECT m.*, row_number() OVER () AS nth
          FROM (SELECT * FROM records m WHERE ${all(rowConditions)} ORDER BY ${orderOfRows} LIMIT ${look}) m
      ), edge AS (
        SELECT ${end} AS at, m.arrived_at, m.batch_seq, m.message FROM looked m ORDER BY ${orderOfRows} OFFSET ${look - 1}
      ), page AS (
        SELECT f.* FROM (
          SELECT m.nth, m.arrived_at, m.batch_seq, m.message, m.run, r.series_key, r.time, r.place
            FROM looked m LEFT JOIN edge ON true CROSS JOIN LATERAL ${opened}
           WHERE ${all([...times, ...records])} AND (edge.at IS NULL OR ${placeOf(sql`r.time`)} ${beyond} ${EDGE})) f
         ORDER BY ${byTime(dir)} LIMIT ${limit} OFFSET ${offset}
      )
      SELECT s.subtopic, s.publisher_id, s.name, s.unit, m.protocol, extract(epoch FROM f.time)::float8 AS time,
             m."values"[f.place::integer] AS value, m.sums[f.place::integer] AS sum, m.update_times[f.place::integer] AS update_time,
             m.bool_values[f.place::integer] AS bool_value, m.string_values[f.place::integer] AS string_value, m.data_values[f.place::integer] AS data_value
        FROM page f JOIN looked m ON m.nth = f.nth JOIN series s ON s.key = f.series_key
       ORDER BY ${byTime(dir)}`.execute(tx)
    if (found.length >= wanted || look > MAX_LOOKED_ROWS) return found
    const promised = ((offset + wanted) / (offset + found.length)) * RESERVE
    look = Math.ceil(look * (found.length === 0 ? WIDER : promised)) + FIRST_ROWS
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
