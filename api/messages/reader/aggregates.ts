/** Aggregates of the numeric values of records, per interval and series. */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { exactSum } from '../projections/rollups.ts'
import { BUCKET_SECONDS } from '../store/runs.ts'
import type { RecordConditions, Scope, TimeRange } from './conditions.ts'
import { all, conditionsIn, matchingIn, rowTimeConditions, scopeOf, timeConditions } from './conditions.ts'
import type { AggregationRequest, Filter } from './filter.ts'
import type { Interval } from './interval.ts'
import type { Parts } from './parts.ts'
import { partsOf, unfoldedBatches } from './parts.ts'
import type { RecordRow, Rows, Window } from './window.ts'
import { NUMBERS_IN_ROW, RECORDS_IN_ROW } from '../store/opened.ts'
import type { Aggregation } from './schema.ts'

/**
 * A decimal as a double: below the smallest it is 0, beyond the largest the largest, where PostgreSQL would refuse to cast.
 * Such sums come of values at the very ends of what a double holds.
 */
function asDouble(decimal: Sql<unknown>): Sql<unknown> {
  return sql`CASE WHEN abs(${decimal}) < 5e-324 THEN 0 WHEN abs(${decimal}) > 1.7976931348623157e308
    THEN sign(${decimal})::float8 * 1.7976931348623157e308::float8 ELSE (${decimal})::float8 END`
}

/** Of the counts, sums and ends of the parts of a group. Sums of decimals are exact, whatever the parts are. */
const RESULTS: Readonly<Record<Aggregation, Sql<unknown>>> = {
  max: sql`max(p.max_value)`,
  min: sql`min(p.min_value)`,
  avg: asDouble(sql`(sum(p.value_sum) / sum(p.value_count))`),
  sum: asDouble(sql`sum(p.value_sum)`),
  count: sql`sum(p.value_count)`,
}

/** Since then offsets of all time zones are whole quarters of an hour. */
const QUARTER_OFFSETS_SINCE_SECONDS = Date.UTC(1980) / 1000

/** One row per interval and series that has numeric values in it; `time` is the beginning of the interval. */
export async function aggregateRecords(
  tx: Transaction,
  channelKey: number,
  filter: Filter,
  { by, interval, timeZone }: AggregationRequest,
  window: Window,
): Promise<Rows<RecordRow>> {
  const direction = window.dir === 'asc' ? sql`ASC` : sql`DESC`
  const scope = await scopeOf(tx, channelKey, filter)
  const { rollups, raw } = isOfBuckets(interval, filter)
    ? await partsOf(tx, await withSeries(tx, scope), filter, await unfoldedBatches(tx))
    : { rollups: undefined, raw: [conditionsIn(scope, filter)] }
  const shown = await groupsOf(tx, { rollups, raw }, { interval, timeZone }, window)
  if (shown.groups === 0) return { rows: [], total: shown.total }
  const span = spanOf(interval, shown)
  const values = partsWith(
    {
      rollups: rollups && sql`(SELECT * FROM ${rollups} WHERE ${all(timeConditions(sql`b.bucket`, span))}) b`,
      raw: raw.map((part) => within(part, span)),
    },
    (time) => startOf(interval, timeZone, time),
    VALUES,
  )
  const { rows } = await sql<RecordRow>`
    WITH page (start, series_key) AS (
      SELECT to_timestamp(start), series_key FROM unnest(${shown.starts}::float8[], ${shown.seriesKeys}::bigint[]) AS shown(start, series_key)
    )
    SELECT s.subtopic, s.publisher_id, s.name, s.unit, min(p.protocol) AS protocol,
           extract(epoch FROM ${beginOf(interval, timeZone, sql`p.start`)})::float8 AS time,
           (${RESULTS[by]})::float8 AS value, NULL AS sum, NULL AS update_time, NULL AS bool_value, NULL AS string_value, NULL AS data_value
      FROM (${values}) p JOIN page USING (start, series_key) JOIN series s ON s.key = p.series_key
     GROUP BY p.start, s.key ORDER BY p.start ${direction}, s.key`.execute(tx)
  return { rows, total: shown.total }
}

/** Of each group on the page the `start` that it is grouped by, the moment at which it begins, and its series. */
type Groups = { total: number; groups: number; starts: number[]; begins: number[]; seriesKeys: number[] }

/** Which intervals and series the page shows, in its order, and how many there are: without what they come to. */
async function groupsOf(
  tx: Transaction,
  parts: Parts,
  { interval, timeZone }: { interval: Interval; timeZone: string },
  { limit, offset, dir }: Window,
): Promise<Groups> {
  const direction = dir === 'asc' ? sql`ASC` : sql`DESC`
  const all = partsWith(parts, (time) => startOf(interval, timeZone, time), NO_VALUES)
  const { rows } = await sql<{ total: number; start: number | null; begin: number; series_key: number }>`
    WITH groups AS MATERIALIZED (
      SELECT p.start, p.series_key FROM (${all}) p GROUP BY 1, 2
    ), page AS (
      SELECT * FROM groups ORDER BY start ${direction}, series_key LIMIT ${limit} OFFSET ${offset}
    )
    SELECT (SELECT count(*) FROM groups) AS total, extract(epoch FROM page.start)::float8 AS start,
           extract(epoch FROM ${beginOf(interval, timeZone, sql`page.start`)})::float8 AS begin, page.series_key
      FROM (SELECT) one LEFT JOIN page ON true`.execute(tx)
  const shown = rows.filter((row): row is typeof row & { start: number } => row.start !== null)
  return {
    total: rows[0]?.total ?? 0,
    groups: shown.length,
    starts: shown.map(({ start }) => start),
    begins: shown.map(({ begin }) => begin),
    seriesKeys: shown.map((row) => row.series_key),
  }
}

/** What is read of rollups, and the same of records, added up or not. */
type Columns = { ofRollups: Sql<unknown>; ofRecords: Sql<unknown>; grouping: Sql<unknown> }

const NO_VALUES: Columns = { ofRollups: sql``, ofRecords: sql``, grouping: sql`` }
const VALUES: Columns = {
  ofRollups: sql`, b.protocol, b.value_count, b.min_value, b.max_value, b.value_sum`,
  ofRecords: sql`, min(m.protocol) AS protocol, count(r.value) AS value_count, min(r.value) AS min_value,
    max(r.value) AS max_value, ${exactSum(sql`r.value`)} AS value_sum`,
  grouping: sql`GROUP BY 1, 2`,
}

/** Rows of `start`, `series_key` and the columns, of everything that has a numeric value. */
function partsWith(
  { rollups, raw }: Parts,
  startOfTime: (time: Sql<unknown>) => Sql<unknown>,
  { ofRollups, ofRecords, grouping }: Columns,
): Sql<unknown> {
  const parts = raw.map(
    (part) => sql`
      SELECT ${startOfTime(sql`r.time`)} AS start, r.series_key ${ofRecords}
        FROM records m CROSS JOIN LATERAL ${part.values.length === 0 ? NUMBERS_IN_ROW : RECORDS_IN_ROW}
       WHERE ${all([part.rows, ...matchingIn(part)])} AND r.value IS NOT NULL ${grouping}`,
  )
  if (rollups !== undefined) {
    parts.push(sql`
      SELECT ${startOfTime(sql`b.bucket`)} AS start, b.series_key ${ofRollups}
        FROM ${rollups} WHERE b.value_count > 0`)
  }
  return sql.join(parts, sql` UNION ALL `)
}

const HOUR_SECONDS = 3600
/** More than they may have: clocks are set back by up to three hours. */
const LONGEST_SECONDS = { day: 48 * HOUR_SECONDS, week: 8 * 24 * HOUR_SECONDS, month: 32 * 24 * HOUR_SECONDS } as const

/** A range of times that holds all intervals that are shown. */
function spanOf(interval: Interval, { begins }: Groups): TimeRange {
  const seconds = interval.kind === 'fixed' ? interval.seconds : interval.count * LONGEST_SECONDS[interval.unit]
  return { fromSeconds: Math.min(...begins), toSeconds: Math.max(...begins) + seconds }
}

/** The records of the part in the range of times. */
function within(part: RecordConditions, range: TimeRange): RecordConditions {
  return {
    ...part,
    rows: all([part.rows, ...rowTimeConditions(range)]),
    times: [...part.times, ...timeConditions(sql`r.time`, range)],
  }
}

/** Whether every interval begins with a quarter of an hour, so that the rollups of quarters add up to it. */
function isOfBuckets(interval: Interval, { fromSeconds }: Filter): boolean {
  if (interval.kind === 'fixed') return interval.seconds % BUCKET_SECONDS === 0
  return fromSeconds !== undefined && fromSeconds >= QUARTER_OFFSETS_SINCE_SECONDS
}

/** With the keys of all series of the channel where the query names none: rollups are found by series. */
async function withSeries(tx: Transaction, scope: Scope): Promise<Scope> {
  if (scope.seriesKeys !== undefined) return scope
  const { rows } = await sql<{ key: number }>`SELECT key FROM series WHERE channel_key = ${scope.channelKey}`.execute(
    tx,
  )
  return { ...scope, seriesKeys: rows.map(({ key }) => key) }
}

/**
 * What tells the interval that a time falls into from the others: its beginning, of days and longer that of the clock on the wall,
 * written as if it were UTC.
 */
function startOf(interval: Interval, timeZone: string, time: Sql<unknown>): Sql<unknown> {
  if (interval.kind === 'fixed') {
    return sql`date_bin(make_interval(secs => ${interval.seconds}), ${time}, 'epoch'::timestamptz)`
  }
  const local = sql`(${time} AT TIME ZONE ${timeZone})`
  const { count } = interval
  switch (interval.unit) {
    case 'day':
      return sql`(date_bin(make_interval(days => ${count}::integer), ${local}, '1970-01-01'::timestamp) AT TIME ZONE 'UTC')`
    case 'week':
      // Weeks begin on Monday.
      return sql`(date_bin(make_interval(weeks => ${count}::integer), ${local}, '1970-01-05'::timestamp) AT TIME ZONE 'UTC')`
    case 'month': {
      const months = sql`(extract(year FROM ${local}) * 12 + extract(month FROM ${local}) - 1)::integer`
      const first = sql`(${months} - ${months} % ${count}::integer)`
      // There is no year 0.
      return sql`make_timestamptz(greatest(${first} / 12, 1), ${first} % 12 + 1, 1, 0, 0, 0, 'UTC')`
    }
  }
}

/**
 * The moment at which the interval begins that `startOf` tells. Where clocks are set back over midnight there are two midnights, of
 * which PostgreSQL takes the later one: the offset of the noon before finds the first.
 */
function beginOf(interval: Interval, timeZone: string, start: Sql<unknown>): Sql<unknown> {
  if (interval.kind === 'fixed') return start
  const local = sql`(${start} AT TIME ZONE 'UTC')`
  const noon = sql`interval '12 hours'`
  const first = sql`((${local} - ${noon}) AT TIME ZONE ${timeZone} + ${noon})`
  return sql`CASE WHEN ${first} AT TIME ZONE ${timeZone} = ${local} THEN ${first} ELSE ${local} AT TIME ZONE ${timeZone} END`
}
