/** The newest record of every series. It is updated with the rollups, in the same transactions and under the same lock. */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

export const LATEST_COLUMNS = sql`channel_key, series_key, time, arrived_at, batch_seq, message, chunk, place, retention_days, protocol,
  value, sum, update_time, bool_value, string_value, data_value`

/** The values of `LATEST_COLUMNS` for a record `r` in a row `m` of `RECORDS`. */
export const LATEST_OF_RECORD = sql`m.channel_key, r.series_key, r.time, m.arrived_at, m.batch_seq, m.message, m.chunk, r.place,
  m.retention_days, m.protocol, r.value, r.sum, r.update_time, r.bool_value, r.string_value, r.data_value`

/** Newest first, as a page shows them. */
export const NEWEST_OF_RECORD = sql`r.time DESC, m.arrived_at DESC, m.batch_seq DESC, m.message DESC, m.chunk, r.place`

/** Adds the records of these rows of `records m`; the caller holds the lock of the projections. */
export async function addLatest(tx: Transaction, rows: Sql<unknown>): Promise<void> {
  // The newest times first, so that few records are sorted and only their values are read from the arrays. IS TRUE makes PostgreSQL use a hash
  // set: a join would be planned with statistics, which a new table does not have.
  await mergeLatest(sql`
    WITH newest AS MATERIALIZED (
      SELECT r.series_key, max(r.time) AS time
        FROM records m CROSS JOIN LATERAL unnest(m.series_keys, m.times) AS r(series_key, time) WHERE ${rows} GROUP BY 1
    )
    SELECT DISTINCT ON (m.channel_key, r.series_key) m.channel_key, r.series_key, r.time, m.arrived_at, m.batch_seq, m.message,
           m.chunk, r.place, m.retention_days, m.protocol, m."values"[r.place], m.sums[r.place], m.update_times[r.place],
           m.bool_values[r.place], m.string_values[r.place], m.data_values[r.place]
      FROM records m CROSS JOIN LATERAL unnest(m.series_keys, m.times) WITH ORDINALITY AS r(series_key, time, place)
     WHERE ${rows} AND ((r.series_key, r.time) IN (SELECT series_key, time FROM newest)) IS TRUE
     ORDER BY m.channel_key, r.series_key, ${NEWEST_OF_RECORD}`).execute(tx)
}

/** Rows of these columns, one per series and sorted by it, replace older ones. */
export function mergeLatest(rows: Sql<unknown>): Sql<unknown> {
  return sql`
    INSERT INTO latest_records AS l (${LATEST_COLUMNS}) ${rows}
    ON CONFLICT ON CONSTRAINT latest_records_pkey DO UPDATE SET
      time = EXCLUDED.time, arrived_at = EXCLUDED.arrived_at, batch_seq = EXCLUDED.batch_seq, message = EXCLUDED.message,
      chunk = EXCLUDED.chunk, place = EXCLUDED.place, retention_days = EXCLUDED.retention_days, protocol = EXCLUDED.protocol,
      value = EXCLUDED.value, sum = EXCLUDED.sum, update_time = EXCLUDED.update_time, bool_value = EXCLUDED.bool_value,
      string_value = EXCLUDED.string_value, data_value = EXCLUDED.data_value
    WHERE (EXCLUDED.time, EXCLUDED.arrived_at, EXCLUDED.batch_seq, EXCLUDED.message) > (l.time, l.arrived_at, l.batch_seq, l.message)`
}
