/** The newest record of every series: kept with the rollups, in the same transactions and under the same lock. */
import type { Database, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { RECORDS_IN_ROW } from '../store/opened.ts'
import { lockRollups } from './lock.ts'

export const LATEST_COLUMNS = sql`channel_key, series_key, time, arrived_at, batch_seq, message, run, place, retention_days, protocol,
  value, sum, update_time, bool_value, string_value, data_value`

/** The same of a record `r` in a row `m` of `RECORDS`. */
export const LATEST_OF_RECORD = sql`m.channel_key, r.series_key, r.time, m.arrived_at, m.batch_seq, m.message, m.run, r.place,
  m.retention_days, m.protocol, r.value, r.sum, r.update_time, r.bool_value, r.string_value, r.data_value`

/** Newest first, as a page shows them. */
export const NEWEST_OF_RECORD = sql`r.time DESC, m.arrived_at DESC, m.batch_seq DESC, m.message DESC, m.run, r.place`

/** Adds the records of these rows of `records m`; the caller holds the lock of rollups. */
export async function addLatest(tx: Transaction, rows: Sql<unknown>): Promise<void> {
  // The newest times first, so that few records are sorted and only their values are taken out of the arrays. IS TRUE makes a set of them that each record is looked up in: a
  // join would be planned by statistics that a young table does not have.
  await mergeLatest(sql`
    WITH newest AS MATERIALIZED (
      SELECT r.series_key, max(r.time) AS time
        FROM records m CROSS JOIN LATERAL unnest(m.series_keys, m.times) AS r(series_key, time) WHERE ${rows} GROUP BY 1
    )
    SELECT DISTINCT ON (m.channel_key, r.series_key) m.channel_key, r.series_key, r.time, m.arrived_at, m.batch_seq, m.message,
           m.run, r.place, m.retention_days, m.protocol, m."values"[r.place], m.sums[r.place], m.update_times[r.place],
           m.bool_values[r.place], m.string_values[r.place], m.data_values[r.place]
      FROM records m CROSS JOIN LATERAL unnest(m.series_keys, m.times) WITH ORDINALITY AS r(series_key, time, place)
     WHERE ${rows} AND ((r.series_key, r.time) IN (SELECT series_key, time FROM newest)) IS TRUE
     ORDER BY m.channel_key, r.series_key, ${NEWEST_OF_RECORD}`).execute(tx)
}

/** Rows of these columns, one per series and sorted by it, take the place of older ones. */
export function mergeLatest(rows: Sql<unknown>): Sql<unknown> {
  return sql`
    INSERT INTO latest_records AS l (${LATEST_COLUMNS}) ${rows}
    ON CONFLICT ON CONSTRAINT latest_records_pkey DO UPDATE SET
      time = EXCLUDED.time, arrived_at = EXCLUDED.arrived_at, batch_seq = EXCLUDED.batch_seq, message = EXCLUDED.message,
      run = EXCLUDED.run, place = EXCLUDED.place, retention_days = EXCLUDED.retention_days, protocol = EXCLUDED.protocol,
      value = EXCLUDED.value, sum = EXCLUDED.sum, update_time = EXCLUDED.update_time, bool_value = EXCLUDED.bool_value,
      string_value = EXCLUDED.string_value, data_value = EXCLUDED.data_value
    WHERE (EXCLUDED.time, EXCLUDED.arrived_at, EXCLUDED.batch_seq, EXCLUDED.message) > (l.time, l.arrived_at, l.batch_seq, l.message)`
}

/** Series whose newest record goes, and what may not take its place. */
export type Replaced = {
  /** About rows of `latest_records`. */
  latest: Sql<unknown>
  /** About rows `b` of `rollups` and, with `arrived_at` in place of `arrived_on`, rows of `records`: they count no more. */
  isGone: (arrival: Sql<unknown>, retentionDays: Sql<unknown>) => Sql<unknown>
}

/** Replaces at most `limit` of them by the newest that is left; returns how many. The caller holds the lock of rollups. */
export async function replaceLatest(tx: Transaction, { latest, isGone }: Replaced, limit: number): Promise<number> {
  const { rows } = await sql<{ channel_key: number; series_key: number }>`
    DELETE FROM latest_records WHERE (channel_key, series_key) IN (
      SELECT channel_key, series_key FROM latest_records WHERE ${latest} ORDER BY 1, 2 LIMIT ${limit})
    RETURNING channel_key, series_key`.execute(tx)
  if (rows.length === 0) return 0
  const channelKeys = rows.map((row) => row.channel_key)
  const seriesKeys = rows.map((row) => row.series_key)
  await sql`
    WITH newest AS MATERIALIZED (
      SELECT s.channel_key, s.series_key, (
               SELECT max(b.bucket) FROM rollups b
                WHERE b.channel_key = s.channel_key AND b.series_key = s.series_key
                  AND NOT (${isGone(sql`b.arrived_on`, sql`b.retention_days`)})) AS bucket
        FROM unnest(${channelKeys}::bigint[], ${seriesKeys}::bigint[]) AS s(channel_key, series_key)
    ), buckets AS MATERIALIZED (
      SELECT DISTINCT channel_key, bucket FROM newest WHERE bucket IS NOT NULL
    )
    INSERT INTO latest_records (${LATEST_COLUMNS})
    SELECT DISTINCT ON (m.channel_key, r.series_key) ${LATEST_OF_RECORD}
      FROM buckets k CROSS JOIN LATERAL (
        SELECT * FROM records m
         WHERE m.channel_key = k.channel_key AND m.max_time >= k.bucket AND m.max_time < k.bucket + interval '15 minutes'
           AND m.min_time >= k.bucket AND m.batch_seq <> ALL (ARRAY(SELECT seq FROM ingest_batches WHERE NOT folded))
           AND NOT (${isGone(sql`m.arrived_at`, sql`m.retention_days`)}) OFFSET 0) m
     CROSS JOIN LATERAL ${RECORDS_IN_ROW}
      JOIN newest n ON n.channel_key = m.channel_key AND n.series_key = r.series_key AND n.bucket = k.bucket
     ORDER BY m.channel_key, r.series_key, ${NEWEST_OF_RECORD}`.execute(tx)
  return rows.length
}

/** Series that one transaction looks up anew. */
const EXPIRED_STEP = 5_000

/**
 * Replaces the newest records that lie in partitions whose retention has passed. Called before those are dropped: until
 * they are, a page may still show what is no longer the latest.
 */
export async function replaceExpiredLatest(database: Database): Promise<void> {
  const isGone = (arrival: Sql<unknown>, retentionDays: Sql<unknown>) => sql`(${retentionDays} > 0
    AND date_trunc(message_partition_unit(${retentionDays}), ${arrival}, 'UTC') + ('1 ' || message_partition_unit(${retentionDays}))::interval
        < now() - make_interval(days => ${retentionDays}))`
  for (;;) {
    const replaced = await database.transaction(async (tx) => {
      await lockRollups(tx)
      return await replaceLatest(tx, { latest: isGone(sql`arrived_at`, sql`retention_days`), isGone }, EXPIRED_STEP)
    })
    if (replaced < EXPIRED_STEP) return
  }
}
