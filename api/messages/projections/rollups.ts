/** Counts, sums and bounds of records by series and quarter of an hour, and counts by series and week of arrival, as SQL. */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { NUMBERS_IN_ROW } from '../store/opened.ts'
import { BUCKET_SECONDS } from '../store/record-chunks.ts'

/** The columns of `rollups`, in the order of the statements below. */
export const ROLLUP_COLUMNS = sql`channel_key, series_key, bucket, retention_days, arrived_on, protocol, records, value_count,
  min_value, max_value, value_sum`

/** The last four columns of a row of a channel, which has only counts. */
export const NO_VALUES = sql`0, NULL::float8, NULL::float8, NULL::numeric`

/** A SELECT that aggregates the records of these rows of `records m` by series and bucket. */
export function rollupsOf(rows: Sql<unknown>): Sql<unknown> {
  return sql`
      SELECT m.channel_key, r.series_key, m.bucket, m.retention_days, m.arrived_on, min(m.protocol) AS protocol, count(*) AS records, count(r.value) AS value_count, min(r.value) AS min_value,
             max(r.value) AS max_value, ${exactSum(sql`r.value`)} AS value_sum
        FROM (SELECT m.*, ${arrivedOn(sql`m.arrived_at`)} AS arrived_on, ${bucketOf(sql`m.min_time`)} AS bucket
                FROM records m WHERE ${rows} OFFSET 0) m
       CROSS JOIN LATERAL ${NUMBERS_IN_ROW}
       GROUP BY 1, 2, 3, 4, 5`
}

/** Adds rows of these columns, sorted by the first five, and their counts by week of arrival. */
export function upsertRollups(rows: Sql<unknown>): Sql<unknown> {
  return sql`
    WITH added (${ROLLUP_COLUMNS}) AS MATERIALIZED (${rows}), weeks AS (
      INSERT INTO rollup_weeks AS w (channel_key, series_key, retention_days, arrived_on, records, first_bucket, last_bucket)
      SELECT channel_key, series_key, retention_days, arrived_on, sum(records)::bigint, min(bucket), max(bucket) FROM added GROUP BY 1, 2, 3, 4
      ON CONFLICT ON CONSTRAINT rollup_weeks_pkey DO UPDATE SET
        records = w.records + EXCLUDED.records,
        first_bucket = least(w.first_bucket, EXCLUDED.first_bucket),
        last_bucket = greatest(w.last_bucket, EXCLUDED.last_bucket)
    )
    INSERT INTO rollups AS r (${ROLLUP_COLUMNS}) SELECT * FROM added
    ON CONFLICT ON CONSTRAINT rollups_pkey DO UPDATE SET
      protocol = least(r.protocol, EXCLUDED.protocol),
      records = r.records + EXCLUDED.records,
      value_count = r.value_count + EXCLUDED.value_count,
      min_value = least(r.min_value, EXCLUDED.min_value),
      max_value = greatest(r.max_value, EXCLUDED.max_value),
      value_sum = coalesce(r.value_sum + EXCLUDED.value_sum, r.value_sum, EXCLUDED.value_sum)`
}

/** Adds rows of series with these columns to the rollups, and their sums to the rows of their channel. */
export async function mergeRollups(tx: Transaction, rows: Sql<unknown>): Promise<void> {
  await upsertRollups(sql`
    WITH of_series (${ROLLUP_COLUMNS}) AS MATERIALIZED (${rows})
    SELECT * FROM of_series
    UNION ALL
    SELECT channel_key, 0, bucket, retention_days, arrived_on, min(protocol), sum(records)::bigint, ${NO_VALUES}
      FROM of_series GROUP BY 1, 3, 4, 5
    ORDER BY 1, 2, 3, 4, 5`).execute(tx)
}

/** The beginning of the bucket of a time. That of a row of `records` is the bucket of all its records. */
export function bucketOf(time: Sql<unknown>): Sql<unknown> {
  return sql`date_bin(make_interval(secs => ${sql.raw(String(BUCKET_SECONDS))}), ${time}, 'epoch')`
}

/** The beginning of the partition of arrivals at this time, which is a Monday. */
export function arrivedOn(arrival: Sql<unknown>): Sql<unknown> {
  return sql`date_trunc('week', ${arrival}, 'UTC')`
}

/**
 * The sum of doubles as their shortest decimals, which are the numbers that publishers sent. Decimals are added exactly, so that parts can
 * be summed in any order; doubles would differ in their last digits. Most values have at most six decimal places and nine
 * digits before them: their millionths are integers that a double holds exactly (15 digits), and sums of integers are the fastest.
 */
export function exactSum(value: Sql<unknown>): Sql<unknown> {
  // The CASE prevents a multiplication that would overflow.
  const isMillionths = sql`CASE WHEN abs(${value}) < 1e9 THEN round(${value} * 1e6) / 1e6 = ${value} ELSE false END`
  const millionths = sql`sum(CASE WHEN ${isMillionths} THEN round(${value} * 1e6)::bigint END) * 0.000001`
  const others = sql`sum(CASE WHEN ${value} IS NOT NULL AND NOT (${isMillionths}) THEN ${value}::text::numeric END)`
  return sql`coalesce(${millionths} + ${others}, ${millionths}, ${others})`
}
