/** Aggregates of the numeric values of records, per interval and series. */
import type { RawBuilder } from 'kysely'
import { sql } from 'kysely'
import type { Transaction } from '#core/database/index.ts'
import { exactSum } from '../projections/rollups.ts'
import { BUCKET_SECONDS } from '../store/runs.ts'
import type { Scope } from './conditions.ts'
import { all, conditionsIn, scopeOf } from './conditions.ts'
import type { AggregationRequest, Filter } from './filter.ts'
import type { Interval } from './interval.ts'
import { partsOf } from './parts.ts'
import type { RecordRow, Rows, Window } from './records.ts'
import { RECORDS } from '../store/opened.ts'
import type { Aggregation } from './schema.ts'

/**
 * A decimal as a double: below the smallest it is 0, beyond the largest the largest, where PostgreSQL would refuse to cast.
 * Such sums come of values at the very ends of what a double holds.
 */
function asDouble(decimal: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`CASE WHEN abs(${decimal}) < 5e-324 THEN 0 WHEN abs(${decimal}) > 1.7976931348623157e308
    THEN sign(${decimal})::float8 * 1.7976931348623157e308::float8 ELSE (${decimal})::float8 END`
}

/** Of the counts, sums and ends of the parts of a group. Sums of decimals are exact, whatever the parts are. */
const RESULTS: Readonly<Record<Aggregation, RawBuilder<unknown>>> = {
  max: sql`max(p.max_value)`,
  min: sql`min(p.min_value)`,
  avg: asDouble(sql`(sum(p.value_sum) / sum(p.value_count))`),
  sum: asDouble(sql`sum(p.value_sum)`),
  count: sql`sum(p.value_count)`,
}

/** Since then offsets of all time zones are whole quarters of an hour. */
const QUARTER_OFFSETS_SINCE_SECONDS = Date.UTC(1973) / 1000

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
    ? await partsOf(tx, await withSeries(tx, scope), filter)
    : { rollups: undefined, raw: [conditionsIn(scope, filter)] }
  const parts = raw.map(
    ({ rows, times, records }) => sql`
      SELECT ${startOf(interval, timeZone, sql`r.time`)} AS start, r.series_key, min(m.protocol) AS protocol,
             count(r.value) AS value_count, min(r.value) AS min_value, max(r.value) AS max_value, ${exactSum(sql`r.value`)} AS value_sum
        FROM ${RECORDS} WHERE ${all([rows, ...times, ...records])} AND r.value IS NOT NULL GROUP BY 1, 2`,
  )
  if (rollups !== undefined) {
    parts.push(sql`
      SELECT ${startOf(interval, timeZone, sql`b.bucket`)}, b.series_key, b.protocol, b.value_count, b.min_value, b.max_value, b.value_sum
        FROM rollups b WHERE ${rollups} AND b.value_count > 0`)
  }
  const { rows } = await sql<RecordRow & { total: number; place: number | null }>`
    WITH buckets AS (
      SELECT p.start AS bucket, p.series_key, min(p.protocol) AS protocol, (${RESULTS[by]})::float8 AS value
        FROM (${sql.join(parts, sql` UNION ALL `)}) p
       GROUP BY 1, 2
    ), page AS (
      SELECT s.subtopic, s.publisher_id, s.name, s.unit, b.protocol, extract(epoch FROM b.bucket)::float8 AS time, b.value,
             row_number() OVER (ORDER BY b.bucket ${direction}, b.series_key) AS place
        FROM buckets b JOIN series s ON s.key = b.series_key
       ORDER BY place LIMIT ${window.limit} OFFSET ${window.offset}
    ), counted AS (
      SELECT count(*) AS total FROM buckets
    )
    SELECT counted.total, page.*, NULL AS sum, NULL AS update_time, NULL AS bool_value, NULL AS string_value, NULL AS data_value
      FROM counted LEFT JOIN page ON true ORDER BY page.place`.execute(tx)
  return { rows: rows.filter((row) => row.place !== null), total: rows[0]?.total ?? 0 }
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
  return { ...scope, seriesKeys: rows.map(({ key }) => key), isBySeriesOfRow: true }
}

/** The beginning of the interval that a time falls into. */
function startOf(interval: Interval, timeZone: string, time: RawBuilder<unknown>): RawBuilder<unknown> {
  if (interval.kind === 'fixed') {
    return sql`date_bin(make_interval(secs => ${interval.seconds}), ${time}, 'epoch'::timestamptz)`
  }
  const local = sql`(${time} AT TIME ZONE ${timeZone})`
  const { count } = interval
  switch (interval.unit) {
    case 'day':
      return sql`(date_bin(make_interval(days => ${count}::integer), ${local}, '1970-01-01'::timestamp) AT TIME ZONE ${timeZone})`
    case 'week':
      // Weeks begin on Monday.
      return sql`(date_bin(make_interval(weeks => ${count}::integer), ${local}, '1970-01-05'::timestamp) AT TIME ZONE ${timeZone})`
    case 'month': {
      const months = sql`(extract(year FROM ${local}) * 12 + extract(month FROM ${local}) - 1)::integer`
      const first = sql`(${months} - ${months} % ${count}::integer)`
      return sql`(make_timestamp(${first} / 12, ${first} % 12 + 1, 1, 0, 0, 0) AT TIME ZONE ${timeZone})`
    }
  }
}
