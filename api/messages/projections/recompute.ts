/** Recomputes rollups from stored records after a deletion. */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { NO_VALUES, rollupsOf, upsertRollups } from './rollups.ts'

/** Whole buckets of a channel, the end exclusive; `seriesKeys`: only of these series, which share no row with others. */
export type Buckets = {
  channelKey: number
  seriesKeys: readonly number[] | undefined
  fromSeconds: number
  toSeconds: number
}

/** The caller holds the lock of the projections, so that no pending batch is projected meanwhile. */
export async function recomputeRollups(tx: Transaction, buckets: Buckets): Promise<void> {
  const { channelKey, seriesKeys, fromSeconds, toSeconds } = buckets
  const [from, to] = [sql`to_timestamp(${fromSeconds}::float8)`, sql`to_timestamp(${toSeconds}::float8)`]
  const all = sql`ARRAY(SELECT key FROM series WHERE channel_key = ${channelKey})`
  const changed = seriesKeys === undefined ? all : sql`${seriesKeys}::bigint[]`
  const inBuckets = (of: unknown) =>
    sql<boolean>`channel_key = ${channelKey} AND series_key = ANY (${of}) AND bucket >= ${from} AND bucket < ${to}`
  const keys = sql`0 || ${changed}`
  await sql`
    WITH gone AS (
      DELETE FROM rollups WHERE ${inBuckets(keys)} RETURNING series_key, retention_days, arrived_on, records
    ), of_week AS (
      SELECT series_key, retention_days, arrived_on, sum(records)::bigint AS records FROM gone GROUP BY 1, 2, 3
    )
    UPDATE rollup_weeks w SET records = w.records - o.records FROM of_week o
     WHERE w.channel_key = ${channelKey}
       AND (w.series_key, w.retention_days, w.arrived_on) = (o.series_key, o.retention_days, o.arrived_on)`.execute(tx)
  // Pending batches are added when they are projected.
  const rows = sql`m.channel_key = ${channelKey} AND m.max_time >= ${from} AND m.max_time < ${to} AND m.min_time >= ${from}
    AND m.batch_seq <> ALL (ARRAY(SELECT seq FROM ingest_batches WHERE NOT projected))
    ${seriesKeys === undefined ? sql`` : sql`AND m.series_keys[1] = ANY (${changed})`}`
  await upsertRollups(sql`${rollupsOf(rows)} ORDER BY 1, 2, 3, 4, 5`).execute(tx)
  await upsertRollups(sql`
    SELECT channel_key, 0, bucket, retention_days, arrived_on, min(protocol), sum(records)::bigint, ${NO_VALUES}
      FROM rollups WHERE ${inBuckets(all)}
     GROUP BY channel_key, bucket, retention_days, arrived_on ORDER BY 1, 2, 3, 4, 5`).execute(tx)
  await sql`
    DELETE FROM rollup_weeks
     WHERE channel_key = ${channelKey} AND series_key = ANY (${keys}) AND records = 0`.execute(tx)
}
