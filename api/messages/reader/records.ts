/** Reads SenML records: pages in order, and how many match. */
import type { RawBuilder, SqlBool } from 'kysely'
import { sql } from 'kysely'
import { executeKept } from '#core/database/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { RECORDS, RECORDS_IN_ROW, TIMES_IN_ROW } from '../store/opened.ts'
import { BUCKET_SECONDS, MAX_ROW_SECONDS } from '../store/runs.ts'
import type { RecordConditions, Scope, TimeRange } from './conditions.ts'
import { all, conditionsIn, matchingIn, scopeOf } from './conditions.ts'
import { countInRow, countedRows, countsOf } from './counts.ts'
import type { Filter } from './filter.ts'
import type { Parts } from './parts.ts'
import { UNFOLDED, partsOf } from './parts.ts'

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
/** A look goes as far as a multiple of this. */
const LOOK_STEP = 8
/** Smaller looks are plans of their own. */
const FINE_LOOK = 128
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
  const total = await countRecords(tx, parts)
  if (total <= offset || limit === 0) return { rows: [], total }
  if (column !== undefined) return { rows: await pageByColumn(tx, conditionsIn(scope, filter), window, column), total }
  const skipped = await skipBuckets(tx, parts, filter, window)
  const start = await skipRows(tx, scope, skipped.bucket, { ...window, offset: skipped.offset })
  const left = Promise.resolve(total - offset + start.offset)
  return { rows: await pageByTime(tx, scope, skipped.range, window, start, left), total }
}

async function countRecords(tx: Transaction, { rollups, raw }: Parts): Promise<number> {
  const counts = raw.map((part) => sql`(SELECT coalesce(sum(counted.records), 0) FROM (${countsOf(part)}) counted)`)
  if (rollups !== undefined) counts.push(sql`(SELECT coalesce(sum(b.records), 0) FROM rollups b WHERE ${rollups})`)
  const { rows } = await executeKept(
    tx,
    sql<{ total: number }>`SELECT (${sql.join(counts, sql` + `)})::bigint AS total`,
  )
  return rows[0]?.total ?? 0
}

/** Below this an offset is walked over. */
const SKIP_OFFSET = 100
const BUCKET_INTERVAL = sql.raw(`make_interval(secs => ${BUCKET_SECONDS})`)
const ROW_INTERVAL = sql.raw(`make_interval(secs => ${MAX_ROW_SECONDS})`)

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
    // The records of a row lie in one bucket.
    ...raw.map((part) => countsOf(part, sql`date_bin(${BUCKET_INTERVAL}, m.min_time, 'epoch')`)),
  ]
  const { rows } = await executeKept(
    tx,
    sql<{ start: number; before: number }>`
    SELECT extract(epoch FROM bucket)::float8 AS start, before::bigint AS before
      FROM (SELECT bucket, sum(records) AS records, sum(sum(records)) OVER (ORDER BY bucket ${directionOf(dir)}) - sum(records) AS before
              FROM (${sql.join(parts, sql` UNION ALL `)}) part GROUP BY bucket) counted
     WHERE before <= ${offset} AND before + records > ${offset}`,
  )
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

/** Where a page by time begins to look, what it passes over from there, and how many records that match a row there holds. */
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
  if (bucket === undefined || offset < SKIP_OFFSET)
    return { edge: undefined, offset, recordsPerRow: guessedPerRow(scope) }
  const conditions = conditionsIn(scope, bucket)
  const isNewestFirst = dir === 'desc'
  const [far, near] = isNewestFirst ? [sql`m.max_time`, sql`m.min_time`] : [sql`m.min_time`, sql`m.max_time`]
  const beyond = isNewestFirst ? sql`>` : sql`<`
  const [direction, opposite] = [directionOf(dir), directionOf(isNewestFirst ? 'asc' : 'desc')]
  const isBeyond = (time: RawBuilder<unknown>) => sql<SqlBool>`${placeOf(time)} ${beyond} ${EDGE}`
  const inCut = countInRow([...conditions.times, ...conditions.series, isBeyond(sql`r.time`)])
  const columns = sql`${far} AS far, ${near} AS near, m.arrived_at, m.batch_seq, m.message`
  // Rows meet what is alike in them by a hash, however few the planner expects.
  const disabled = executeKept(tx, sql`SET LOCAL enable_nestloop = off`)
  const found = executeKept(
    tx,
    sql<{ before: number; mean: number | null } & (Exclude<Edge, undefined> | { at: null })>`
    WITH counted AS MATERIALIZED (${countedRows(conditions, columns)}), edge AS MATERIALIZED (
      SELECT m.far AS at, m.arrived_at, m.batch_seq, m.message
        FROM (SELECT m.*, sum(m.records) OVER (ORDER BY ${byPlace(sql`m.far`, direction)}) AS upto FROM counted m) m
       WHERE m.upto <= ${offset} ORDER BY m.upto DESC, ${byPlace(sql`m.far`, opposite)} LIMIT 1
    )
    SELECT edge.at::text AS at, edge.arrived_at::text AS arrived_at, edge.batch_seq, edge.message, (
             (SELECT coalesce(sum(m.records), 0) FROM counted m WHERE ${isBeyond(sql`m.near`)})
             + (SELECT coalesce(sum(${inCut}), 0) FROM records m
                 WHERE ${all([conditions.rows, isBeyond(far)])} AND NOT (${isBeyond(near)})))::bigint AS before,
           (SELECT avg(records)::float8 FROM counted WHERE records > 0) AS mean
      FROM (SELECT) AS always LEFT JOIN edge ON true`,
  )
  const enabled = executeKept(tx, sql`SET LOCAL enable_nestloop = on`)
  const [{ rows }] = await Promise.all([found, disabled, enabled])
  const { before = 0, mean, ...edge } = rows[0] ?? { at: null }
  return { edge: edge.at === null ? undefined : edge, offset: offset - before, recordsPerRow: mean ?? 1 }
}

/** Records of a row that match, where it is not known. */
function guessedPerRow({ recordKeys }: Scope): number {
  return (recordKeys === undefined ? GUESSED_RECORDS : GUESSED_OF_NAME) * ROWS_BESIDE
}

/**
 * A page in the order of time. All rows that the beginning of the page cuts are opened, and of the others those with the newest (or
 * oldest) ends; what lies beyond the end of the last of them is not known yet, so the page is complete when it does not reach so far.
 * Otherwise more rows are opened. Rows that end at the same time, as those of devices with one clock do, are looked at in
 * the order that their records have. `left`: how many records there are from the start on.
 */
async function pageByTime(
  tx: Transaction,
  scope: Scope,
  range: TimeRange,
  { limit, dir }: Window,
  { offset, edge: from, recordsPerRow }: Start,
  left: Promise<number>,
): Promise<RecordRow[]> {
  const conditions = conditionsIn(scope, range)
  const isNewestFirst = dir === 'desc'
  const rows = [conditions.rows]
  const matching = matchingIn(conditions)
  if (from !== undefined) {
    rows.push(isNewestFirst ? sql`m.min_time <= ${from.at}::timestamptz` : sql`m.max_time >= ${from.at}::timestamptz`)
    matching.push(
      sql`${placeOf(sql`r.time`)} ${isNewestFirst ? sql`<=` : sql`>=`}
          (${from.at}::timestamptz, ${from.arrived_at}::timestamptz, ${from.batch_seq}::bigint, ${from.message}::integer)`,
    )
  }
  const direction = directionOf(dir)
  const end = isNewestFirst ? sql`m.max_time` : sql`m.min_time`
  const beyond = isNewestFirst ? sql`>` : sql`<`
  const orderOfRows = byPlace(end, direction)
  const start = startOf(range, from, dir)
  const [uncut, cut] =
    start === undefined
      ? [sql``, sql``]
      : isNewestFirst
        ? [
            sql`AND m.max_time < ${start}`,
            sql`UNION ALL SELECT m.*, false FROM records m WHERE ${all(rows)} AND m.max_time >= ${start} AND m.max_time < ${start} + ${ROW_INTERVAL}`,
          ]
        : [
            sql`AND m.min_time > ${start}`,
            sql`UNION ALL SELECT m.*, false FROM records m WHERE ${all(rows)} AND m.min_time <= ${start} AND m.min_time > ${start} - ${ROW_INTERVAL}`,
          ]
  // Of records that are only ordered and counted nothing else is opened.
  const opened = scope.values.length === 0 ? TIMES_IN_ROW : RECORDS_IN_ROW
  let look = roundedUp(FIRST_ROWS + ((offset + limit) / recordsPerRow) * ROWS_BESIDE)
  for (;;) {
    // A small number stands in the text, where it tells the planner that few rows are wanted.
    const looked = look < FINE_LOOK ? sql.raw(String(look)) : sql`${look}::bigint`
    const page = sql<RecordRow>`
      WITH looked AS MATERIALIZED (
        SELECT m.*, row_number() OVER () AS nth FROM (
          (SELECT m.*, true AS is_near FROM records m WHERE ${all(rows)} ${uncut} ORDER BY ${orderOfRows} LIMIT ${looked}) ${cut}) m
      ), edge AS (
        SELECT ${end} AS at, m.arrived_at, m.batch_seq, m.message FROM looked m WHERE m.is_near ORDER BY ${orderOfRows} OFFSET ${looked} - 1
      ), opened AS (
        SELECT m.nth, m.arrived_at, m.batch_seq, m.message, m.run, r.series_key, r.time, r.place
          FROM looked m CROSS JOIN LATERAL ${opened}
         WHERE ${all(matching)} AND (${placeOf(sql`r.time`)} ${beyond} (SELECT at, arrived_at, batch_seq, message FROM edge)) IS NOT FALSE
      ), page AS (
        ${offset < SKIP_OFFSET ? sql`SELECT f.* FROM opened f ORDER BY ${byTime(dir)} LIMIT ${limit} OFFSET ${offset}` : farPage({ offset, limit, dir })}
      ), shown AS MATERIALIZED (
        SELECT m.* FROM looked m WHERE (m.nth IN (SELECT nth FROM page)) IS TRUE
      )
      SELECT s.subtopic, s.publisher_id, s.name, s.unit, m.protocol, extract(epoch FROM f.time)::float8 AS time,
             m."values"[f.place::integer] AS value, m.sums[f.place::integer] AS sum, m.update_times[f.place::integer] AS update_time,
             m.bool_values[f.place::integer] AS bool_value, m.string_values[f.place::integer] AS string_value, m.data_values[f.place::integer] AS data_value
        FROM page f JOIN shown m USING (nth) JOIN series s ON s.key = f.series_key
       ORDER BY ${byTime(dir)}`
    const { rows: found } = await executeKept(tx, page)
    const wanted = Math.min(limit, (await left) - offset)
    if (found.length >= wanted || look > MAX_LOOKED_ROWS) return found
    const promised = ((offset + wanted) / (offset + found.length)) * RESERVE
    look = roundedUp(look * (found.length === 0 ? WIDER : promised) + FIRST_ROWS)
  }
}

/** The moment at which the page begins, if it is known; rows that lie on both sides of it may all have its first record. */
function startOf({ fromSeconds, toSeconds }: TimeRange, edge: Edge, dir: 'asc' | 'desc') {
  if (edge !== undefined) return sql`${edge.at}::timestamptz`
  const seconds = dir === 'desc' ? toSeconds : fromSeconds
  return seconds === undefined ? undefined : sql`to_timestamp(${seconds}::float8)`
}

/** Few different numbers, so that there are few plans. */
function roundedUp(look: number): number {
  return Math.ceil(look / LOOK_STEP) * LOOK_STEP
}

/** A page behind many opened records: only those of the times that it shows are put in order. */
function farPage({ offset, limit, dir }: Omit<Window, 'order'>): RawBuilder<unknown> {
  return sql`
    WITH times AS MATERIALIZED (
      SELECT t.* FROM (
        SELECT o.time, count(*) AS records, sum(count(*)) OVER (ORDER BY o.time ${directionOf(dir)}) AS upto FROM opened o GROUP BY o.time) t
       WHERE t.upto > ${offset} AND t.upto - t.records < ${offset + limit}
    )
    SELECT f.* FROM opened f
     WHERE f.time BETWEEN (SELECT min(time) FROM times) AND (SELECT max(time) FROM times)
     ORDER BY ${byTime(dir)} LIMIT ${limit} OFFSET ${offset} - (SELECT coalesce(min(upto - records), 0) FROM times)`
}

/** A page in another order: all that match are sorted. */
async function pageByColumn(
  tx: Transaction,
  conditions: RecordConditions,
  { offset, limit, dir }: Window,
  column: RawBuilder<unknown>,
): Promise<RecordRow[]> {
  const source = sql`SELECT ${SELECTED}, ${column} AS sorted FROM ${RECORDS} JOIN series s ON s.key = r.series_key
    WHERE ${all([conditions.rows, ...matchingIn(conditions)])}`
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
