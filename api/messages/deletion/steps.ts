/**
 * Deletes a time range, the messages of a publisher, or both, from a channel. Each step covers whole buckets of 15 minutes in a short
 * transaction under the lock of the projections, so aggregates are exact after each step. Messages that were committed after the
 * deletion began are kept: a snapshot distinguishes them.
 */
import type { Database, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { projectPending } from '../projections/project.ts'
import { lockProjections } from '../projections/lock.ts'
import { recomputeRollups } from '../projections/recompute.ts'
import { replaceLatest } from '../projections/replace-latest.ts'
import { subtractStored } from '../projections/usage.ts'
import { rangesChanged } from '../archive/changed.ts'
import { all, conditionsIn, timeConditions } from '../reader/conditions.ts'
import type { Scope } from '../reader/conditions.ts'
import type { TimeRange } from '../reader/time-range.ts'
import { BUCKET_SECONDS } from '../store/record-chunks.ts'

export type DeletionTarget = TimeRange & { channelKey: number; publisherId: string | undefined }

/** The limit of records in the buckets of one step, unless a single bucket contains more. */
const STEP_RECORDS = 100_000
/** The number of payloads of one format that one step scans. */
const STEP_PAYLOADS = 5_000

/** The current snapshot as text for `wasVisible`: everything acknowledged so far. */
export async function snapshotNow(tx: Transaction): Promise<string> {
  const { rows } = await sql<{ snapshot: string }>`SELECT position_snapshot()::text AS snapshot`.execute(tx)
  return (rows[0] as { snapshot: string }).snapshot
}

/** Condition on `m.batch_seq`: the batch was committed before the snapshot. Batches that are no longer in the changelog are old. */
function wasVisible(snapshot: string): Sql<boolean> {
  return sql<boolean>`m.batch_seq <> ALL (ARRAY(
    SELECT seq FROM ingest_batches
     WHERE xid >= pg_snapshot_xmin(${snapshot}::pg_snapshot) AND NOT pg_visible_in_snapshot(xid, ${snapshot}::pg_snapshot)))`
}

/** Deletes everything of the target that the snapshot saw. Idempotent. */
export async function deleteMessages(database: Database, target: DeletionTarget, snapshot: string): Promise<void> {
  // After this, the rollups contain every record that the snapshot saw.
  await projectPending(database)
  const scope = await scopeOf(database, target)
  for (const buckets of await stepsOf(database, scope, target)) {
    await database.transaction(async (tx) => {
      await lockProjections(tx)
      await deleteRecords(tx, scope, target, buckets, snapshot)
      await recomputeRollups(tx, { channelKey: scope.channelKey, seriesKeys: scope.seriesKeys, ...buckets })
      await replaceLatestIn(tx, scope, buckets)
    })
  }
  await deletePayloads(database, target, snapshot)
}

async function scopeOf({ db }: Database, { channelKey, publisherId }: DeletionTarget): Promise<Scope> {
  const all = { arrivals: undefined, seriesKeys: undefined, rowKeys: undefined, recordKeys: undefined }
  const scope = { channelKey, ...all, protocol: undefined, selected: undefined, values: [] }
  if (publisherId === undefined) return scope
  const { rows } = await sql<{ key: number }>`
    SELECT key FROM series WHERE channel_key = ${channelKey} AND publisher_id = ${publisherId}`.execute(db)
  const keys = rows.map(({ key }) => key)
  return { ...scope, seriesKeys: keys, rowKeys: keys }
}

type Step = { fromSeconds: number; toSeconds: number }

/** The buckets that contain records of the target, oldest first, adjacent ones merged. */
async function stepsOf({ db }: Database, { channelKey, seriesKeys }: Scope, range: TimeRange): Promise<Step[]> {
  const within = timeConditions(sql`b.bucket`, {
    fromSeconds: range.fromSeconds === undefined ? undefined : floorToBucket(range.fromSeconds),
    toSeconds: range.toSeconds,
  })
  const isConcerned =
    seriesKeys === undefined
      ? sql<boolean>`true`
      : sql<boolean>`b.bucket IN (
          SELECT s.bucket FROM rollups s WHERE s.channel_key = ${channelKey} AND s.series_key = ANY (${seriesKeys}::bigint[]))`
  const { rows } = await sql<{ start: number; records: number }>`
    SELECT extract(epoch FROM b.bucket)::float8 AS start, sum(b.records)::bigint AS records
      FROM rollups b WHERE b.channel_key = ${channelKey} AND b.series_key = 0 AND ${all([...within, isConcerned])}
     GROUP BY b.bucket ORDER BY b.bucket`.execute(db)
  const steps: Step[] = []
  let inStep = Infinity
  for (const { start, records } of rows) {
    const last = steps.at(-1)
    if (last === undefined || inStep + records > STEP_RECORDS) {
      steps.push({ fromSeconds: start, toSeconds: start + BUCKET_SECONDS })
      inStep = records
    } else {
      last.toSeconds = start + BUCKET_SECONDS
      inStep += records
    }
  }
  return steps
}

function floorToBucket(seconds: number): number {
  return Math.floor(seconds / BUCKET_SECONDS) * BUCKET_SECONDS
}

/** Deletes whole rows. Of a row that the range cuts, records outside of the range are written again as the same chunk. */
async function deleteRecords(
  tx: Transaction,
  scope: Scope,
  target: TimeRange,
  step: Step,
  snapshot: string,
): Promise<void> {
  const { rows, isInside, times } = conditionsIn(scope, target)
  const inStep = conditionsIn(scope, step)
  const kept = (column: string, element: string) =>
    sql`CASE WHEN m.${sql.ref(column)} IS NOT NULL THEN array_agg(r.${sql.ref(element)} ORDER BY r.place) END AS ${sql.ref(column)}`
  await sql`
    WITH gone AS (
      DELETE FROM records m WHERE ${all([rows, inStep.rows, inStep.isInside, wasVisible(snapshot)])} RETURNING m.*
    ), kept AS (
    INSERT INTO records (channel_key, min_time, max_time, arrived_at, batch_seq, message, chunk, retention_days, protocol,
                         series_keys, times, "values", sums, update_times, bool_values, string_values, data_values)
    SELECT m.channel_key, k.min_time, k.max_time, m.arrived_at, m.batch_seq, m.message, m.chunk, m.retention_days, m.protocol,
           k.series_keys, k.times, k."values", k.sums, k.update_times, k.bool_values, k.string_values, k.data_values
      FROM gone m CROSS JOIN LATERAL (
        SELECT min(r.time) AS min_time, max(r.time) AS max_time, ${kept('series_keys', 'series_key')},
               ${kept('times', 'time')}, ${kept('values', 'value')}, ${kept('sums', 'sum')},
               ${kept('update_times', 'update_time')}, ${kept('bool_values', 'bool_value')},
               ${kept('string_values', 'string_value')}, ${kept('data_values', 'data_value')}
          FROM unnest(m.series_keys, m.times, m."values", m.sums, m.update_times, m.bool_values, m.string_values, m.data_values)
               WITH ORDINALITY AS r(series_key, time, value, sum, update_time, bool_value, string_value, data_value, place)
         WHERE NOT (${all(times)})
        HAVING count(*) > 0) k
     WHERE NOT (${isInside}) RETURNING retention_days, arrived_at, cardinality(times) AS records
    ), archived AS (${rangesChanged(scope.channelKey, sql`SELECT retention_days, arrived_at FROM gone`)})
    ${subtractStored(
      scope.channelKey,
      sql`SELECT retention_days, arrived_at, cardinality(times) AS records FROM gone
          UNION ALL SELECT retention_days, arrived_at, -records FROM kept`,
    )}`.execute(tx)
}

/** Replaces the newest records of the series in the buckets, whether they were deleted or not. */
async function replaceLatestIn(tx: Transaction, { channelKey, seriesKeys }: Scope, step: Step): Promise<void> {
  const conditions = [sql<boolean>`channel_key = ${channelKey}`, ...timeConditions(sql`time`, step)]
  if (seriesKeys !== undefined) conditions.push(sql`series_key = ANY (${seriesKeys}::bigint[])`)
  await replaceLatest(tx, { latest: all(conditions), isGone: () => sql`false` }, Number.MAX_SAFE_INTEGER)
}

/** Payloads have no rollups; the lock is that of the counts of what is stored. */
async function deletePayloads(database: Database, target: DeletionTarget, snapshot: string): Promise<void> {
  const { db } = database
  const { channelKey, publisherId } = target
  const { rows: formats } = await sql<{ format: string }>`
    SELECT DISTINCT format FROM payloads WHERE channel_key = ${channelKey}`.execute(db)
  for (const { format } of formats) {
    let after: Sql<boolean> = sql<boolean>`true`
    for (;;) {
      const conditions = [
        sql<boolean>`m.channel_key = ${channelKey}`,
        sql<boolean>`m.format = ${format}`,
        ...timeConditions(sql`m.time`, target),
        after,
      ]
      const { rows } = await sql<{ last: string | null; looked: number }>`
        SELECT max(time) AS last, count(*) AS looked
          FROM (SELECT time FROM payloads m WHERE ${all(conditions)} ORDER BY time LIMIT ${STEP_PAYLOADS}) looked`.execute(
        db,
      )
      const last = rows[0]?.last ?? undefined
      if (last === undefined) break
      conditions.push(sql`m.time <= ${last}::timestamptz`, wasVisible(snapshot))
      if (publisherId !== undefined) conditions.push(sql`m.publisher_id = ${publisherId}`)
      await database.transaction(async (tx) => {
        await lockProjections(tx)
        await sql`
          WITH gone AS (DELETE FROM payloads m WHERE ${all(conditions)} RETURNING retention_days, arrived_at)
          ${subtractStored(channelKey, sql`SELECT retention_days, arrived_at, 1 AS records FROM gone`)}`.execute(tx)
      })
      if ((rows[0]?.looked ?? 0) < STEP_PAYLOADS) break
      after = sql<boolean>`m.time > ${last}::timestamptz`
    }
  }
}
