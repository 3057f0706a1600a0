/** Pages in the order of time. Few rows are unnested, independent of the number of rows that follow. */
import { withinPage } from '#core/database/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { RECORDS_IN_ROW, TIMES_IN_ROW } from '../store/opened.ts'
import { rowsOfBuckets } from './buckets.ts'
import type { PageBuckets } from './buckets.ts'
import type { RecordConditions } from './conditions.ts'
import { all, matchingIn } from './conditions.ts'
import { byPlace, byTime, directionOf, placeOf, recordsByTime } from './order.ts'
import type { PageRows, RecordRow, Window } from './window.ts'
import { pageRowsOf } from './window.ts'

/**
 * Each of the first rows holds a record that matches, unless the query has a filter or the range cuts rows. Then this many rows beyond
 * the records of the page hold the page.
 */
const BESIDE_PAGE = 1
/** After a look that did not hold the page, this many times as many rows are looked at. */
const WIDER = 4

/**
 * A page in the order of time: the rows with the newest (or oldest) ends are opened. Records beyond the end of the last of these rows may have
 * others between them, so the page is complete when it does not reach that far; otherwise more rows are opened. Rows that end at the same
 * time are looked at in the order that their records have. Undefined when the page is not complete after `maxLook` rows.
 */
export async function pageByTime(
  tx: Transaction,
  conditions: RecordConditions,
  window: Window,
  maxLook: number,
): Promise<PageRows<RecordRow> | undefined> {
  const { offset, limit } = window
  for (let look = offset + limit + BESIDE_PAGE; ; look *= WIDER) {
    const { rows } = await lookedPage(conditions, window, look).execute(tx)
    const page = pageRowsOf(rows.filter(isShown))
    if (rows[0]?.is_whole === true || page.found >= limit) return page
    if (look >= maxLook) return undefined
  }
}

/** A page of the buckets that hold it, all of whose rows are opened. */
export async function pageOfBuckets(
  tx: Transaction,
  conditions: RecordConditions,
  { buckets, offset }: Pick<PageBuckets, 'buckets' | 'offset'>,
  window: Window,
): Promise<PageRows<RecordRow>> {
  if (buckets.length === 0) return pageRowsOf([])
  const { rows } = await bucketsPage(conditions, buckets, { ...window, offset }).execute(tx)
  return pageRowsOf(rows.filter(isShown))
}

/**
 * The size of a row. Numbers, ids and places have at most 400 characters together, so that a row without text is not written out to be
 * measured.
 */
const ROW_BYTES = sql<number>`(CASE WHEN listed.string_value IS NULL AND listed.data_value IS NULL
  THEN 400 + octet_length(listed.subtopic) + octet_length(listed.name) + octet_length(listed.unit) ELSE octet_length(listed::text) END)`

type LookedRow = RecordRow & { page_rows: number }
/** One row at least; `time` is NULL where the page is empty. */
type Looked = Omit<LookedRow, 'time'> & { time: number | null; is_whole: boolean }

const isShown = <Row extends { time: number | null }>(row: Row): row is Row & LookedRow => row.time !== null

/** The page among the records of so many rows; `is_whole`: the query has no more rows. */
export function lookedPage(conditions: RecordConditions, window: Window, look: number): Sql<Looked> {
  const isNewestFirst = window.dir === 'desc'
  const end = isNewestFirst ? sql`m.max_time` : sql`m.min_time`
  const order = sql`${byPlace(end, directionOf(window.dir))}, m.chunk`
  const isKnown = sql<boolean>`(${placeOf(sql`r.time`)} ${isNewestFirst ? sql`>` : sql`<`}
    (SELECT at, arrived_at, batch_seq, message FROM edge)) IS NOT FALSE`
  const found = sql`SELECT m.* FROM records m WHERE ${conditions.rows} ORDER BY ${order} LIMIT ${look}`
  return openedPage(conditions, window, {
    looked: sql`
      SELECT m.* FROM (
        SELECT m.*, count(*) OVER () AS found_rows,
               sum(${recordsAtEnd(conditions, end)}) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS held_before
          FROM (${found}) m) m
       WHERE m.held_before IS NULL OR m.held_before < ${look}`,
    edge: sql`
      SELECT ${end} AS at, m.arrived_at, m.batch_seq, m.message FROM looked m
       WHERE m.nth = (SELECT max(nth) FROM looked) AND (m.nth < m.found_rows OR m.nth = ${look})`,
    isKnown: [isKnown],
  })
}

/**
 * How many records of a row `m` surely match at its end: they precede all records of later rows, so that rows after the page need not be
 * opened. A row holds up to a hundred records of one device, which often have the same time.
 */
function recordsAtEnd({ isInside, series, values }: RecordConditions, end: Sql<unknown>): Sql<unknown> {
  if (series.length > 0 || values.length > 0) return sql`0`
  return sql`CASE WHEN ${isInside} THEN cardinality(array_positions(m.times, ${end})) ELSE 0 END`
}

export function bucketsPage(conditions: RecordConditions, buckets: readonly number[], window: Window): Sql<Looked> {
  return openedPage(conditions, window, {
    looked: sql`SELECT * FROM ${rowsOfBuckets(buckets, conditions.rows)} m`,
    edge: sql`SELECT m.nth FROM looked m WHERE false`,
    isKnown: [],
  })
}

/** `looked`: the rows that are opened; `edge`: the last of them, if there may be more; `isKnown`: about a record, that none is missing before it. */
type Opened = { looked: Sql<unknown>; edge: Sql<unknown>; isKnown: readonly Sql<boolean>[] }

function openedPage(
  conditions: RecordConditions,
  { offset, limit, dir }: Window,
  { looked, edge, isKnown }: Opened,
): Sql<Looked> {
  // Records that are only ordered and counted are not opened further.
  const opened = conditions.values.length === 0 ? TIMES_IN_ROW : RECORDS_IN_ROW
  const page = sql`
    SELECT s.subtopic, s.publisher_id, s.name, s.unit, m.protocol, m.batch_seq, m.message, extract(epoch FROM f.time)::float8 AS time,
           m."values"[f.place::integer] AS value, m.sums[f.place::integer] AS sum, m.update_times[f.place::integer] AS update_time,
           m.bool_values[f.place::integer] AS bool_value, m.string_values[f.place::integer] AS string_value, m.data_values[f.place::integer] AS data_value,
           ${recordsByTime(dir, { row: 'f', record: 'f' }).placeText} AS row_place
      FROM page f JOIN shown m USING (nth) JOIN series s ON s.key = f.series_key
     ORDER BY ${byTime(dir)}`
  return sql`
    WITH looked AS MATERIALIZED (
      SELECT m.*, row_number() OVER () AS nth FROM (${looked}) m
    ), edge AS MATERIALIZED (${edge}), opened AS (
      SELECT m.nth, m.arrived_at, m.batch_seq, m.message, m.chunk, r.series_key, r.time, r.place
        FROM looked m CROSS JOIN LATERAL ${opened} WHERE ${all([...matchingIn(conditions), ...isKnown])}
    ), page AS MATERIALIZED (
      SELECT f.* FROM opened f ORDER BY ${byTime(dir)} LIMIT ${limit} OFFSET ${offset}
    ), shown AS MATERIALIZED (
      SELECT m.* FROM looked m WHERE (m.nth IN (SELECT nth FROM page)) IS TRUE
    )
    SELECT w.is_whole, p.* FROM (SELECT NOT EXISTS (SELECT FROM edge) AS is_whole) w LEFT JOIN (${withinPage(page, ROW_BYTES)}) p ON true
     ORDER BY p.page_place`
}
