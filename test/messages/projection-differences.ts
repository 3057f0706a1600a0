/** The projections against a plain fold of everything that is stored, in SQL that shares nothing with the product's. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

const OPENED = sql`
  SELECT m.channel_key, m.arrived_at, m.batch_seq, m.message, m.chunk, m.retention_days, m.protocol, r.*,
         to_timestamp(floor(extract(epoch FROM r.time) / 900) * 900) AS bucket, date_trunc('week', m.arrived_at, 'UTC') AS arrived_on
    FROM records m, unnest(m.series_keys, m.times, m."values", m.sums, m.update_times, m.bool_values, m.string_values, m.data_values)
         WITH ORDINALITY AS r(series_key, time, value, sum, update_time, bool_value, string_value, data_value, place)`

/** By table: what it must hold, of the columns that it holds, as text. */
const FOLDS: Readonly<Record<string, { columns: Sql<unknown>; fold: Sql<unknown>; held?: Sql<unknown> }>> = {
  rollups: {
    columns: sql`channel_key, series_key, bucket, retention_days, arrived_on, records, value_count, min_value + 0, max_value + 0, trim_scale(value_sum)`,
    fold: sql`
      SELECT channel_key, coalesce(series_key, 0), bucket, retention_days, arrived_on, count(*),
             CASE WHEN series_key IS NULL THEN 0 ELSE count(value) END,
             CASE WHEN series_key IS NOT NULL THEN min(value) + 0 END, CASE WHEN series_key IS NOT NULL THEN max(value) + 0 END,
             CASE WHEN series_key IS NOT NULL THEN trim_scale(sum(value::text::numeric)) END
        FROM opened
       GROUP BY GROUPING SETS ((channel_key, series_key, bucket, retention_days, arrived_on), (channel_key, bucket, retention_days, arrived_on))`,
  },
  rollup_weeks: {
    columns: sql`channel_key, series_key, retention_days, arrived_on, records,
      EXISTS (SELECT FROM rollups b
               WHERE (b.channel_key, b.series_key, b.retention_days, b.arrived_on) = (h.channel_key, h.series_key, h.retention_days, h.arrived_on)
                 AND b.bucket NOT BETWEEN h.first_bucket AND h.last_bucket)`,
    fold: sql`
      SELECT channel_key, coalesce(series_key, 0), retention_days, arrived_on, count(*), false
        FROM opened
       GROUP BY GROUPING SETS ((channel_key, series_key, retention_days, arrived_on), (channel_key, retention_days, arrived_on))`,
  },
  latest_records: {
    columns: sql`channel_key, series_key, time, batch_seq, message, chunk, place, retention_days, protocol, value, sum, update_time,
      bool_value, string_value, data_value`,
    fold: sql`
      SELECT DISTINCT ON (channel_key, series_key) channel_key, series_key, time, batch_seq, message, chunk, place, retention_days,
             protocol, value, sum, update_time, bool_value, string_value, data_value
        FROM opened
       ORDER BY channel_key, series_key, time DESC, arrived_at DESC, batch_seq DESC, message DESC, chunk, place`,
  },
  domain_stored_records: {
    columns: sql`domain_key, retention_days, arrived_on, records`,
    fold: sql`
      SELECT one.domain_key, one.retention_days, one.arrived_on, count(*)
        FROM (SELECT s.domain_key, o.retention_days, o.arrived_on FROM opened o JOIN series s ON s.key = o.series_key
              UNION ALL
              SELECT c.domain_key, p.retention_days, date_trunc('week', p.arrived_at, 'UTC')
                FROM payloads p JOIN channels c ON c.key = p.channel_key) one
        JOIN domains d ON d.key = one.domain_key
       GROUP BY 1, 2, 3`,
    // What was deleted leaves a zero.
    held: sql`WHERE records > 0`,
  },
}

/** Lines that one of them has and the other one lacks. */
export async function projectionDifferences(db: Queryable): Promise<string[]> {
  const found: string[] = []
  for (const [table, { columns, fold, held = sql`` }] of Object.entries(FOLDS)) {
    const { rows } = await sql<{ line: string }>`
      WITH opened AS MATERIALIZED (${OPENED}), wanted AS MATERIALIZED (${fold}), held AS MATERIALIZED (SELECT ${columns} FROM ${sql.table(table)} h ${held})
      SELECT 'missing ' || w::text AS line FROM (SELECT * FROM wanted EXCEPT ALL SELECT * FROM held) w
      UNION ALL SELECT 'superfluous ' || h::text FROM (SELECT * FROM held EXCEPT ALL SELECT * FROM wanted) h
      ORDER BY 1 LIMIT 20`.execute(db)
    found.push(...rows.map(({ line }) => `${table}: ${line}`))
  }
  return found
}

/** Batches that no projection knows yet. */
export async function pendingBatchCount(db: Queryable): Promise<number> {
  const { rows } = await sql<{
    count: number
  }>`SELECT count(*) AS count FROM ingest_batches WHERE NOT projected`.execute(db)
  return rows[0]?.count ?? 0
}
