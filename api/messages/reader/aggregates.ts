/** Aggregates of the numeric values of records, per interval and series. */
import type { RawBuilder } from 'kysely'
import { sql } from 'kysely'
import type { Transaction } from '#core/database/index.ts'
import { all, recordConditions } from './conditions.ts'
import type { AggregationRequest, Filter } from './filter.ts'
import type { Interval } from './interval.ts'
import type { RecordRow, Rows, Window } from './records.ts'
import { RECORDS } from './records.ts'

/** One row per interval and series that has numeric values in it; `time` is the beginning of the interval. */
export async function aggregateRecords(
  tx: Transaction,
  channelKey: number,
  filter: Filter,
  { by, interval, timeZone }: AggregationRequest,
  window: Window,
): Promise<Rows<RecordRow>> {
  const direction = window.dir === 'asc' ? sql`ASC` : sql`DESC`
  const { rows: rowCondition, times, records } = await recordConditions(tx, channelKey, filter)
  const condition = all([rowCondition, ...times, ...records])
  const { rows } = await sql<RecordRow & { total: number; place: number | null }>`
    WITH buckets AS (
      SELECT ${bucketOf(interval, timeZone)} AS bucket, r.series_key, min(m.protocol) AS protocol, ${sql.raw(by)}(r.value)::float8 AS value
        FROM ${RECORDS}
       WHERE ${condition} AND r.value IS NOT NULL
       GROUP BY bucket, r.series_key
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

/** The beginning of the interval that a record's time falls into. */
function bucketOf(interval: Interval, timeZone: string): RawBuilder<unknown> {
  if (interval.kind === 'fixed') {
    return sql`date_bin(make_interval(secs => ${interval.seconds}), r.time, 'epoch'::timestamptz)`
  }
  const local = sql`(r.time AT TIME ZONE ${timeZone})`
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
