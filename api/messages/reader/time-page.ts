/** A page in the order of time: few rows are opened, however many lie behind them. */
import { executeKept, withinPage } from '#core/database/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { RECORDS_IN_ROW, TIMES_IN_ROW } from '../store/opened.ts'
import type { RecordConditions, Scope, TimeRange } from './conditions.ts'
import { all, conditionsIn, matchingIn } from './conditions.ts'
import { byPlace, byTime, directionOf, placeOf } from './order.ts'
import type { Direction } from './order.ts'
import { JOIN_NAMED_RECORDS, namedAmong } from './named.ts'
import { ROWS_BESIDE, SKIP_OFFSET } from './skips.ts'
import type { Edge, Start } from './skips.ts'
import type { RecordRow, Window } from './window.ts'

/** Rows of the table that a page by time looks at first, beside those that its offset skips at the least. */
const FIRST_ROWS = 16
/** How much further a look goes after one that found nothing; after others it goes as far as they promise, and a bit. */
const WIDER = 8
const RESERVE = 1.25
/** A look goes as far as a multiple of this; what pages are mostly long is one. */
const LOOK_STEP = 10
/** Smaller looks are plans of their own. */
const FINE_LOOK = 128
/** More rows than a look can read before its deadline. */
const MAX_LOOKED_ROWS = 1e9

/**
 * A page in the order of time. All rows that the beginning of the page cuts are opened, and of the others those with the newest (or
 * oldest) ends; what lies beyond the end of the last of them is not known yet, so the page is complete when it does not reach so far.
 * Otherwise more rows are opened. Rows that end at the same time, as those of devices with one clock do, are looked at in
 * the order that their records have. `left`: how many records there are from the start on.
 */
export async function pageByTime(
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
  const matching = conditions.named === undefined ? matchingIn(conditions) : [...conditions.times]
  if (from !== undefined) {
    rows.push(isNewestFirst ? sql`m.min_time <= ${from.at}::timestamptz` : sql`m.max_time >= ${from.at}::timestamptz`)
    matching.push(
      sql`${placeOf(sql`r.time`)} ${isNewestFirst ? sql`<=` : sql`>=`}
          (${from.at}::timestamptz, ${from.arrived_at}::timestamptz, ${from.batch_seq}::bigint, ${from.message}::integer)`,
    )
  }
  const direction = directionOf(dir)
  const end = isNewestFirst ? sql`m.max_time` : sql`m.min_time`
  const orderOfRows = sql`${byPlace(end, direction)}, m.run`
  const isKnown = sql<boolean>`(${placeOf(sql`r.time`)} ${isNewestFirst ? sql`>` : sql`<`}
    (SELECT at, arrived_at, batch_seq, message FROM edge)) IS NOT FALSE`
  const start = startOf(range, from, dir)
  const [uncut, cut] =
    start === undefined
      ? [sql``, sql``]
      : isNewestFirst
        ? [
            sql`AND m.max_time < ${start}`,
            sql`UNION ALL SELECT m.*, false FROM records m WHERE ${all(rows)} AND m.max_time >= ${start}`,
          ]
        : [
            sql`AND m.min_time > ${start}`,
            sql`UNION ALL SELECT m.*, false FROM records m WHERE ${all(rows)} AND m.min_time <= ${start}`,
          ]
  // Of records that are only ordered and counted nothing else is opened.
  const [named, opened] =
    conditions.named !== undefined
      ? [sql`${namedAmong(sql`looked`, conditions.named)},`, JOIN_NAMED_RECORDS]
      : [sql``, sql`CROSS JOIN LATERAL ${conditions.values.length === 0 ? TIMES_IN_ROW : RECORDS_IN_ROW}`]
  const enough = isMetByEnds(conditions) ? roundedUp(offset + limit) : MAX_LOOKED_ROWS
  let look = roundedUp(FIRST_ROWS + ((offset + limit) / recordsPerRow) * ROWS_BESIDE)
  for (;;) {
    look = Math.min(look, enough)
    const known = look < enough ? [...matching, isKnown] : matching
    // A small number stands in the text, where it tells the planner that few rows are wanted.
    const looked = look < FINE_LOOK ? sql.raw(String(look)) : sql`${look}::bigint`
    const page = withinPage(sql<RecordRow>`
      WITH looked AS MATERIALIZED (
        SELECT m.*, row_number() OVER () AS nth FROM (
          (SELECT m.*, true AS is_near FROM records m WHERE ${all(rows)} ${uncut} ORDER BY ${orderOfRows} LIMIT ${looked}) ${cut}) m
      ), edge AS (
        SELECT ${end} AS at, m.arrived_at, m.batch_seq, m.message FROM looked m WHERE m.is_near ORDER BY ${orderOfRows} OFFSET ${looked} - 1
      ), ${named} opened AS (
        SELECT m.nth, m.arrived_at, m.batch_seq, m.message, m.run, r.series_key, r.time, r.place
          FROM looked m ${opened}
         WHERE ${all(known)}
      ), page AS (
        ${offset < SKIP_OFFSET ? sql`SELECT f.* FROM opened f ORDER BY ${byTime(dir)} LIMIT ${limit} OFFSET ${offset}` : farPage({ offset, limit, dir })}
      ), shown AS MATERIALIZED (
        SELECT m.* FROM looked m WHERE (m.nth IN (SELECT nth FROM page)) IS TRUE
      )
      SELECT s.subtopic, s.publisher_id, s.name, s.unit, m.protocol, extract(epoch FROM f.time)::float8 AS time,
             m."values"[f.place::integer] AS value, m.sums[f.place::integer] AS sum, m.update_times[f.place::integer] AS update_time,
             m.bool_values[f.place::integer] AS bool_value, m.string_values[f.place::integer] AS string_value, m.data_values[f.place::integer] AS data_value
        FROM page f JOIN shown m USING (nth) JOIN series s ON s.key = f.series_key
       ORDER BY ${byTime(dir)}`)
    const { rows: found } = await executeKept(tx, page)
    if (look >= enough) return found
    // What is cut was found.
    const foundRecords = found[0]?.page_rows ?? 0
    const wanted = Math.min(limit, (await left) - offset)
    if (foundRecords >= wanted) return found
    const promised = ((offset + wanted) / (offset + foundRecords)) * RESERVE
    look = roundedUp(look * (foundRecords === 0 ? WIDER : promised) + FIRST_ROWS)
  }
}

/** The moment at which the page begins, if it is known; rows that lie on both sides of it may all have its first record. */
function startOf({ fromSeconds, toSeconds }: TimeRange, edge: Edge, dir: Direction) {
  if (edge !== undefined) return sql`${edge.at}::timestamptz`
  const seconds = dir === 'desc' ? toSeconds : fromSeconds
  return seconds === undefined ? undefined : sql`to_timestamp(${seconds}::float8)`
}

/** Whether each row has a record that matches and has the time of its end: a page then lies in as many rows as it has records. */
function isMetByEnds({ series, values }: RecordConditions): boolean {
  return series.length === 0 && values.length === 0
}

/** Few different numbers, so that there are few plans. */
function roundedUp(look: number): number {
  return Math.ceil(look / LOOK_STEP) * LOOK_STEP
}

/** A page behind many opened records: only those of the times that it shows are put in order. */
function farPage({ offset, limit, dir }: Omit<Window, 'order'>): Sql<unknown> {
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
