/** Rollups made anew from what is stored, after something was deleted. */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { ROLLUP_COLUMNS, rollupsOf } from './rollups.ts'

/** Whole buckets of a channel, the end exclusive; `seriesKeys`: of these series alone, which share no row with others. */
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
  const inBuckets = (keys: unknown) =>
    sql<boolean>`channel_key = ${channelKey} AND series_key = ANY (${keys}) AND bucket >= ${from} AND bucket < ${to}`
  await sql`DELETE FROM rollups WHERE ${inBuckets(sql`0 || ${changed}`)}`.execute(tx)
  // Pending batches are added when they are projected.
  const rows = sql`m.channel_key = ${channelKey} AND m.max_time >= ${from} AND m.max_time < ${to} AND m.min_time >= ${from}
    AND m.batch_seq <> ALL (ARRAY(SELECT seq FROM ingest_batches WHERE NOT projected))
    ${seriesKeys === undefined ? sql`` : sql`AND m.series_keys[1] = ANY (${changed})`}`
  await sql`INSERT INTO rollups (${ROLLUP_COLUMNS}) ${rollupsOf(rows)} ORDER BY 1, 2, 3, 4, 5`.execute(tx)
  await sql`
    INSERT INTO rollups (${ROLLUP_COLUMNS})
    SELECT channel_key, 0, bucket, retention_days, arrived_on, min(protocol), sum(records)::bigint, 0, NULL, NULL, NULL
      FROM rollups WHERE ${inBuckets(all)}
     GROUP BY channel_key, bucket, retention_days, arrived_on ORDER BY 1, 2, 3, 4, 5`.execute(tx)
}
