/** Replaces the newest record of a series that is deleted or expires by the newest remaining record. */
import type { Database, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { RECORDS_IN_ROW } from '../store/opened.ts'
import { LATEST_COLUMNS, LATEST_OF_RECORD, NEWEST_OF_RECORD } from './latest.ts'
import { lockProjections } from './lock.ts'
import { arrivedOn } from './rollups.ts'

/** Series whose newest record is removed, and records that cannot replace it. */
export type Replaced = {
  /** Condition on rows of `latest_records`. */
  latest: Sql<unknown>
  /** Condition on rows `b` of `rollups` and, with `arrived_at` in place of `arrived_on`, rows of `records`: they are excluded. */
  isGone: (arrival: Sql<unknown>, retentionDays: Sql<unknown>) => Sql<unknown>
}

/** Replaces at most `limit` of them by the newest remaining record; returns their number. The caller holds the lock of the projections. */
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
           AND m.min_time >= k.bucket AND m.batch_seq <> ALL (ARRAY(SELECT seq FROM ingest_batches WHERE NOT projected))
           AND NOT (${isGone(sql`m.arrived_at`, sql`m.retention_days`)}) OFFSET 0) m
     CROSS JOIN LATERAL ${RECORDS_IN_ROW}
      JOIN newest n ON n.channel_key = m.channel_key AND n.series_key = r.series_key AND n.bucket = k.bucket
     ORDER BY m.channel_key, r.series_key, ${NEWEST_OF_RECORD}`.execute(tx)
  return rows.length
}

/** Series that one transaction updates. */
const EXPIRED_STEP = 5_000

/**
 * Replaces the newest records in expired partitions. Called before the partitions are dropped: until then, a page can contain a record
 * that is newer than the latest record.
 */
export async function replaceExpiredLatest(database: Database): Promise<void> {
  const isGone = (arrival: Sql<unknown>, retentionDays: Sql<unknown>) => sql`(${retentionDays} > 0
    AND ${arrivedOn(arrival)} + interval '168 hours' < now() - make_interval(days => ${retentionDays}))`
  for (;;) {
    const replaced = await database.transaction(async (tx) => {
      await lockProjections(tx)
      return await replaceLatest(tx, { latest: isGone(sql`arrived_at`, sql`retention_days`), isGone }, EXPIRED_STEP)
    })
    if (replaced < EXPIRED_STEP) return
  }
}
