/** Aggregates of the numeric values of records, per interval and series. */
import type { PageEnd } from '#core/cursor.ts'
import { pageOf, rangeOf, withinPage } from '#core/database/index.ts'
import type { PlacedRow, Transaction } from '#core/database/index.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { exactSum } from '../projections/rollups.ts'
import { BUCKET_SECONDS } from '../store/record-chunks.ts'
import type { Scope } from './conditions.ts'
import { all, matchingIn, scopeOf } from './conditions.ts'
import type { AggregationRequest, Filter } from './filter.ts'
import { DAY_SECONDS } from './interval.ts'
import type { Interval } from './interval.ts'
import type { Parts } from './parts.ts'
import { BY_SERIES } from './series-order.ts'
import { isKnownToRollups, partsOf, rawAlone, widened } from './parts.ts'
import type { TimeRange } from './time-range.ts'
import type { PageRows, RecordRow, Window } from './window.ts'
import { NUMBERS_IN_ROW, RECORDS_IN_ROW } from '../store/opened.ts'
import type { Aggregation } from './schema.ts'

/**
 * Converts a decimal to a double. Values below the smallest double become 0, values beyond the largest become the largest; PostgreSQL would fail.
 * Only sums of values at the limits of a double are affected.
 */
function asDouble(decimal: Sql<unknown>): Sql<unknown> {
  return sql`CASE WHEN abs(${decimal}) < 5e-324 THEN 0 WHEN abs(${decimal}) > 1.7976931348623157e308
    THEN sign(${decimal})::float8 * 1.7976931348623157e308::float8 ELSE (${decimal})::float8 END`
}

/** Results from the counts, sums and bounds of the parts of a group. Sums of decimals are exact, independent of the parts. */
const RESULTS: Readonly<Record<Aggregation, Sql<unknown>>> = {
  max: sql`max(p.max_value)`,
  min: sql`min(p.min_value)`,
  avg: asDouble(sql`(sum(p.value_sum) / sum(p.value_count))`),
  sum: asDouble(sql`sum(p.value_sum)`),
  count: sql`sum(p.value_count)`,
}

const UTC = 'UTC'
/** From this time on, the offsets of all time zones are multiples of 15 minutes. */
const QUARTER_OFFSETS_SINCE_SECONDS = Date.UTC(1980) / 1000

/** The aggregates of one query, within the snapshot of the transaction: a row per interval and series that has numeric values. */
export class AggregatesQuery {
  readonly #tx: Transaction
  readonly #scope: Scope
  readonly #filter: Filter
  readonly #request: AggregationRequest

  static async of(
    tx: Transaction,
    channelKey: number,
    filter: Filter,
    request: AggregationRequest,
  ): Promise<AggregatesQuery> {
    const scope = await scopeOf(tx, channelKey, filter)
    if (!isOfBuckets(request, filter) || !isKnownToRollups(scope))
      return new AggregatesQuery(tx, scope, filter, request)
    const [withKeys, range] = await Promise.all([withSeries(tx, scope), widened(tx, scope, filter)])
    return new AggregatesQuery(tx, withKeys, { ...filter, ...range }, request)
  }

  private constructor(tx: Transaction, scope: Scope, filter: Filter, request: AggregationRequest) {
    this.#tx = tx
    this.#scope = scope
    this.#filter = filter
    this.#request = { ...request, timeZone: zoneOf(request, filter) }
  }

  /** The series that have numeric values in the range: a page of their keys in the order in which they began, and how many there are. */
  async seriesPage(range: PageRange): Promise<{ keys: number[]; total: number; next: PageEnd }> {
    const withKeys = isKnownToRollups(this.#scope) ? await withSeries(this.#tx, this.#scope) : this.#scope
    const rows = partsWith(partsOf(withKeys, this.#filter), () => sql`NULL::timestamptz`, NO_VALUES)
    const page = sql`SELECT series_key, ${BY_SERIES.place}::text AS row_place FROM matching
      WHERE ${BY_SERIES.after(range.cursor)} ${rangeOf(BY_SERIES, range)}`
    const { rows: found } = await sql<PlacedRow<{ total: number; series_key: number | null }>>`
      WITH matching AS MATERIALIZED (SELECT DISTINCT p.series_key FROM (${rows}) p), page AS (${withinPage(page)})
      SELECT (SELECT count(*) FROM matching) AS total, p.series_key, p.row_place, p.page_rows
        FROM (SELECT) one LEFT JOIN page p ON true ORDER BY p.series_key`.execute(this.#tx)
    const shown = pageOf(
      found.filter((row) => row.series_key !== null),
      range.limit,
    )
    return { keys: shown.rows.map((row) => row.series_key as number), total: found[0]?.total ?? 0, next: shown.next }
  }

  /** Everything of these series in the range, by series and time: at most as many rows as the range has intervals, for each series. */
  async columnsOf(keys: readonly number[]): Promise<ColumnRow[]> {
    const { by, interval, timeZone } = this.#request
    const results = by.map((name) => RESULTS[name])
    const { rows } = await sql<ColumnRow>`
      SELECT s.key AS series_key, s.subtopic, s.publisher_id, s.name, s.unit, p.time, p.results, p.records
        FROM (SELECT p.series_key, extract(epoch FROM ${beginOf(interval, timeZone, sql`p.start`)})::float8 AS time,
                     ARRAY[${sql.join(results, sql`, `)}]::float8[] AS results, sum(p.value_count)::float8 AS records
                FROM (${this.#rowsWith(this.#filter, VALUES, keys)}) p GROUP BY p.series_key, p.start) p
        JOIN series s ON s.key = p.series_key ORDER BY p.series_key, p.time`.execute(this.#tx)
    return rows
  }

  /** `time` is the beginning of the interval. */
  async page(window: Window): Promise<PageRows<RecordRow>> {
    const groups = await this.#groupsOf(window)
    if (groups.length === 0) return { rows: [], found: 0 }
    const { rows } = await this.#valuesOf(groups, window.dir).execute(this.#tx)
    return { rows: rows.map((row) => this.#withResults(row)), found: rows.length }
  }

  /** One aggregation is the value of the row. */
  #withResults({ results, ...row }: AggregatesRow): RecordRow {
    const { by } = this.#request
    const [only = null] = results
    if (by.length === 1) return { ...row, value: only }
    return { ...row, aggregates: Object.fromEntries(by.map((name, at) => [name, results[at] as number])) }
  }

  async total(): Promise<number> {
    const { rows } = await sql<{ total: number }>`
      SELECT count(*) AS total FROM (SELECT FROM (${this.#groups(this.#filter)}) p GROUP BY p.start, p.series_key) p`.execute(
      this.#tx,
    )
    return rows[0]?.total ?? 0
  }

  /**
   * The intervals and series of the page, in its order. For a long range, only the near part is read first, assuming that every series has
   * a value in each interval; then more of it.
   */
  async #groupsOf(window: Window): Promise<Group[]> {
    const { interval } = this.#request
    const series = this.#scope.seriesKeys?.length ?? 1
    for (let intervals = 1 + Math.ceil((window.offset + window.limit) / Math.max(series, 1)); ; intervals *= WIDER) {
      const near = nearPart(this.#filter, window.dir, intervals * longestSeconds(interval))
      const { rows } = await this.#page(near, window).execute(this.#tx)
      if (near === undefined || rows.length >= window.limit) return rows
    }
  }

  /** The page of the groups of the near part of the range, or of all of it. An interval that the part cuts is left out. */
  #page(near: NearPart | undefined, { limit, offset, dir }: Window): Sql<Group> {
    const { interval, timeZone } = this.#request
    const direction = dir === 'asc' ? sql`ASC` : sql`DESC`
    const isWhole =
      near === undefined
        ? sql`true`
        : sql`p.start ${dir === 'asc' ? sql`<` : sql`>`} ${startOf(interval, timeZone, sql`to_timestamp(${near.edgeSeconds}::float8)`)}`
    return sql`
      SELECT extract(epoch FROM page.start)::float8 AS start, page.series_key,
             extract(epoch FROM ${beginOf(interval, timeZone, sql`page.start`)})::float8 AS begin
        FROM (SELECT p.start, p.series_key FROM (${this.#groups(near ?? this.#filter)}) p WHERE ${isWhole} GROUP BY 1, 2
               ORDER BY p.start ${direction}, p.series_key LIMIT ${limit} OFFSET ${offset}) page
       ORDER BY page.start ${direction}, page.series_key`
  }

  /** Rows of `start` and `series_key`, of everything in the range that has a numeric value. */
  #groups(range: TimeRange): Sql<unknown> {
    return this.#rowsWith(range, NO_VALUES)
  }

  #valuesOf(groups: readonly Group[], dir: Window['dir']): Sql<AggregatesRow> {
    const { by, interval, timeZone } = this.#request
    const direction = dir === 'asc' ? sql`ASC` : sql`DESC`
    const starts = groups.map(({ start }) => start)
    const seriesKeys = groups.map((group) => group.series_key)
    const results = by.map((name) => RESULTS[name])
    return sql`
      WITH page (start, series_key) AS (
        SELECT to_timestamp(start), series_key FROM unnest(${starts}::float8[], ${seriesKeys}::bigint[]) AS shown(start, series_key)
      )
      SELECT s.subtopic, s.publisher_id, s.name, s.unit, min(p.protocol) AS protocol,
             extract(epoch FROM ${beginOf(interval, timeZone, sql`p.start`)})::float8 AS time,
             ARRAY[${sql.join(results, sql`, `)}]::float8[] AS results, NULL AS value, NULL AS sum, NULL AS update_time, NULL AS bool_value, NULL AS string_value, NULL AS data_value
        FROM (${this.#rowsWith(spanOf(interval, groups, this.#filter), VALUES, [...new Set(seriesKeys)])}) p JOIN page USING (start, series_key) JOIN series s ON s.key = p.series_key
       GROUP BY p.start, s.key ORDER BY p.start ${direction}, s.key`
  }

  /** `ofSeries`: of these series alone; they are series of the scope. */
  #rowsWith(range: TimeRange, columns: Columns, ofSeries?: readonly number[]): Sql<unknown> {
    const { interval, timeZone } = this.#request
    const scope = ofSeries === undefined ? this.#scope : { ...this.#scope, seriesKeys: ofSeries, recordKeys: ofSeries }
    const parts = isOfBuckets(this.#request, this.#filter) ? partsOf(scope, range) : rawAlone(scope, range)
    return partsWith(parts, (time) => startOf(interval, timeZone, time), columns)
  }
}

/** A row of `columnsOf`, for one interval and series. The results are in the order in which the aggregations were requested. */
export type ColumnRow = {
  series_key: number
  subtopic: string
  publisher_id: string
  name: string
  unit: string
  time: number
  results: readonly number[]
  records: number
}

/** The results are in the order in which the aggregations were requested. */
type AggregatesRow = RecordRow & { results: readonly number[] }

/** One interval of a series: the `start` that it is grouped by and the moment at which it begins, in epoch seconds. */
type Group = { start: number; begin: number; series_key: number }

/** The factor by which the part grows when it did not contain the page. */
const WIDER = 4

/** A part of a range, whose inner end is the edge. */
type NearPart = TimeRange & { edgeSeconds: number }

/** The part of the range that is read first, in whole buckets; undefined when it is the whole range. */
function nearPart({ fromSeconds, toSeconds }: TimeRange, dir: Window['dir'], seconds: number): NearPart | undefined {
  if (fromSeconds === undefined || toSeconds === undefined) return undefined
  if (dir === 'asc') {
    const edgeSeconds = Math.ceil((fromSeconds + seconds) / BUCKET_SECONDS) * BUCKET_SECONDS
    return edgeSeconds < toSeconds ? { fromSeconds, toSeconds: edgeSeconds, edgeSeconds } : undefined
  }
  const edgeSeconds = Math.floor((toSeconds - seconds) / BUCKET_SECONDS) * BUCKET_SECONDS
  return edgeSeconds > fromSeconds ? { fromSeconds: edgeSeconds, toSeconds, edgeSeconds } : undefined
}

/** Columns in addition to interval and series, from rollups and from records. */
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
/** An upper bound: clocks are set back by at most a day. */
const SET_BACK_SECONDS = 24 * HOUR_SECONDS
const LONGEST_SECONDS = { day: DAY_SECONDS, month: 31 * DAY_SECONDS } as const

/** The maximum length of an interval. */
function longestSeconds(interval: Interval): number {
  return interval.kind === 'fixed'
    ? interval.seconds
    : interval.count * LONGEST_SECONDS[interval.unit] + SET_BACK_SECONDS
}

/** The part of the range that holds all intervals of these groups. */
function spanOf(interval: Interval, groups: readonly Group[], { fromSeconds, toSeconds }: TimeRange): TimeRange {
  const begins = groups.map(({ begin }) => begin)
  return {
    fromSeconds: Math.max(fromSeconds ?? -Infinity, Math.min(...begins)),
    toSeconds: Math.min(toSeconds ?? Infinity, Math.max(...begins) + longestSeconds(interval)),
  }
}

/** Whether every interval begins with a quarter of an hour, so that the rollups of quarters add up to it. */
function isOfBuckets({ interval, timeZone }: AggregationRequest, filter: Filter): boolean {
  if (interval.kind === 'fixed' && interval.seconds % BUCKET_SECONDS !== 0) return false
  return timeZone === UTC || hasQuarterOffsets(filter)
}

function hasQuarterOffsets({ fromSeconds }: Filter): boolean {
  return fromSeconds !== undefined && fromSeconds >= QUARTER_OFFSETS_SINCE_SECONDS
}

/**
 * The time zone in which the intervals begin. Where those of UTC are the same, it is UTC, whose intervals cost less to compute: a divisor of
 * a quarter of an hour divides the offsets of all time zones.
 */
function zoneOf({ interval, timeZone }: AggregationRequest, filter: Filter): string {
  const isSame = interval.kind === 'fixed' && divides(interval.seconds, BUCKET_SECONDS) && hasQuarterOffsets(filter)
  return isSame ? UTC : timeZone
}

const MICROS = 1e6
const divides = (seconds: number, whole: number) => (whole * MICROS) % Math.round(seconds * MICROS) === 0

/** Adds the keys of all series of the channel if the query names none: rollups are found by series. */
async function withSeries(tx: Transaction, scope: Scope): Promise<Scope> {
  if (scope.seriesKeys !== undefined) return scope
  const { rows } = await sql<{ key: number }>`SELECT key FROM series WHERE channel_key = ${scope.channelKey}`.execute(
    tx,
  )
  return { ...scope, seriesKeys: rows.map(({ key }) => key) }
}

const ONE_DAY: Interval = { kind: 'calendar', unit: 'day', count: 1 }

/**
 * Identifies the interval of a time by its start. For days and longer intervals this is the local time, written as UTC. Shorter ones count
 * from local midnight; the last one of a day ends at the next midnight.
 */
function startOf(interval: Interval, timeZone: string, time: Sql<unknown>): Sql<unknown> {
  if (interval.kind === 'fixed') {
    const length = sql`make_interval(secs => ${interval.seconds})`
    // The epoch is a midnight of UTC.
    if (timeZone === UTC && divides(interval.seconds, DAY_SECONDS))
      return sql`date_bin(${length}, ${time}, 'epoch'::timestamptz)`
    return sql`date_bin(${length}, ${time}, ${beginOf(ONE_DAY, timeZone, startOf(ONE_DAY, timeZone, time))})`
  }
  const local = sql`(${time} AT TIME ZONE ${timeZone})`
  const { count } = interval
  switch (interval.unit) {
    case 'day':
      // A Monday, so that seven days are a week.
      return sql`(date_bin(make_interval(days => ${count}::integer), ${local}, '1970-01-05'::timestamp) AT TIME ZONE 'UTC')`
    case 'month': {
      const months = sql`(extract(year FROM ${local}) * 12 + extract(month FROM ${local}) - 1)::integer`
      const first = sql`(${months} - ${months} % ${count}::integer)`
      // There is no year 0.
      return sql`make_timestamptz(greatest(${first} / 12, 1), ${first} % 12 + 1, 1, 0, 0, 0, 'UTC')`
    }
  }
}

/**
 * The time at which the interval of `startOf` begins. When clocks are set back over midnight, midnight occurs twice, and PostgreSQL
 * uses the later one: the offset of the previous noon finds the first.
 */
function beginOf(interval: Interval, timeZone: string, start: Sql<unknown>): Sql<unknown> {
  if (interval.kind === 'fixed') return start
  const local = sql`(${start} AT TIME ZONE 'UTC')`
  const noon = sql`interval '12 hours'`
  const first = sql`((${local} - ${noon}) AT TIME ZONE ${timeZone} + ${noon})`
  return sql`CASE WHEN ${first} AT TIME ZONE ${timeZone} = ${local} THEN ${first} ELSE ${local} AT TIME ZONE ${timeZone} END`
}
