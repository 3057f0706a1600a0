/**
 * Folding: batches that were committed are added to the rollups, and marked so in the same transaction. Whoever reads adds
 * the batches that are not folded himself, so that a rollup and they together are exact at any moment.
 */
import { sql } from 'kysely'
import type { RawBuilder } from 'kysely'
import type { Database, Transaction } from '#core/database/index.ts'
import { addLatest } from './latest.ts'
import { tryLockRollups } from './lock.ts'
import { addUsage } from './usage.ts'
import { BUCKET_SECONDS } from '../store/runs.ts'

/** Records that one transaction folds, as long as one batch alone does not hold more. */
const MAX_ROUND_RECORDS = 500_000
const MAX_ROUND_BATCHES = 5_000

/** Folds what one round takes. Returns how many records that were; undefined while somebody else is at it. */
export async function foldNext(database: Database): Promise<{ records: number; hasMore: boolean } | undefined> {
  return await database.transaction(async (tx) => {
    return (await tryLockRollups(tx)) ? await foldRound(tx) : undefined
  })
}

/** One round; the caller holds the lock. */
export async function foldRound(tx: Transaction): Promise<{ records: number; hasMore: boolean }> {
  const { rows } = await sql<{ seq: number; records: number; since: string; until: string }>`
    SELECT seq, records, min(arrived_at) OVER () AS since, max(arrived_at) OVER () AS until
      FROM (SELECT seq, records, arrived_at, sum(records) OVER (ORDER BY seq) - records AS before
              FROM (SELECT * FROM ingest_batches WHERE NOT folded ORDER BY seq LIMIT ${MAX_ROUND_BATCHES}) b) b
     WHERE before < ${MAX_ROUND_RECORDS}`.execute(tx)
  const [first] = rows
  if (first === undefined) return { records: 0, hasMore: false }
  const seqs = rows.map(({ seq }) => seq)
  const records = rows.reduce((sum, batch) => sum + batch.records, 0)
  const folded = sql`m.batch_seq = ANY (${seqs}::bigint[]) AND m.arrived_at BETWEEN ${first.since} AND ${first.until}`
  await addUsage(tx, folded)
  if (records > 0) {
    await addRollups(tx, folded)
    await addLatest(tx, folded)
  }
  await sql`UPDATE ingest_batches SET folded = true WHERE seq = ANY (${seqs}::bigint[])`.execute(tx)
  return { records, hasMore: records >= MAX_ROUND_RECORDS || seqs.length >= MAX_ROUND_BATCHES }
}

/** The columns of `rollups`, in the order of what follows. */
export const ROLLUP_COLUMNS = sql`channel_key, series_key, bucket, retention_days, arrived_on, protocol, records, value_count,
  min_value, max_value, value_sum`

/** A SELECT of what the records of these rows of `records m` come to, by series and bucket. */
export function rollupsOf(rows: RawBuilder<unknown>): RawBuilder<unknown> {
  return sql`
      SELECT m.channel_key, r.series_key, coalesce(m.bucket, date_bin(${bucketInterval}, r.time, 'epoch')) AS bucket,
             m.retention_days, m.arrived_on, min(m.protocol) AS protocol, count(*) AS records, count(r.value) AS value_count, min(r.value) AS min_value,
             max(r.value) AS max_value, ${exactSum(sql`r.value`)} AS value_sum
        FROM (SELECT m.*, date_trunc(message_partition_unit(m.retention_days), m.arrived_at, 'UTC') AS arrived_on,
                     -- That of all its records, but where a time was rounded up into the next one.
                     CASE WHEN date_bin(${bucketInterval}, m.min_time, 'epoch') = date_bin(${bucketInterval}, m.max_time, 'epoch')
                          THEN date_bin(${bucketInterval}, m.max_time, 'epoch') END AS bucket
                FROM records m WHERE ${rows} OFFSET 0) m
       CROSS JOIN LATERAL unnest(m.series_keys, m.times, m."values") AS r(series_key, time, value)
       GROUP BY 1, 2, 3, 4, 5`
}

/** Adds the records of these rows of `records m` to the rollups. */
async function addRollups(tx: Transaction, rows: RawBuilder<unknown>): Promise<void> {
  await sql`
    WITH of_series AS MATERIALIZED (${rollupsOf(rows)})
    INSERT INTO rollups AS r (${ROLLUP_COLUMNS})
    SELECT * FROM of_series
    UNION ALL
    SELECT channel_key, 0, bucket, retention_days, arrived_on, min(protocol), sum(records)::bigint, 0, NULL, NULL, NULL
      FROM of_series GROUP BY 1, 3, 4, 5
    ORDER BY 1, 2, 3, 4, 5
    ON CONFLICT ON CONSTRAINT rollups_pkey DO UPDATE SET
      protocol = least(r.protocol, EXCLUDED.protocol),
      records = r.records + EXCLUDED.records,
      value_count = r.value_count + EXCLUDED.value_count,
      min_value = least(r.min_value, EXCLUDED.min_value),
      max_value = greatest(r.max_value, EXCLUDED.max_value),
      value_sum = coalesce(r.value_sum + EXCLUDED.value_sum, r.value_sum, EXCLUDED.value_sum)`.execute(tx)
}

const bucketInterval = sql`make_interval(secs => ${sql.raw(String(BUCKET_SECONDS))})`

/**
 * The sum of doubles as their shortest decimals, which are what publishers wrote. Decimals add up exactly, so that parts can
 * be summed in any order; doubles would differ in their last digits. Most values have at most six decimal places and nine
 * digits before them: their millionths are integers that a double holds exactly (15 digits), and integers add up fastest.
 */
export function exactSum(value: RawBuilder<unknown>): RawBuilder<unknown> {
  // With CASE, so that nothing is multiplied that would overflow.
  const isMillionths = sql`CASE WHEN abs(${value}) < 1e9 THEN round(${value} * 1e6) / 1e6 = ${value} ELSE false END`
  const millionths = sql`sum(CASE WHEN ${isMillionths} THEN round(${value} * 1e6)::bigint END) * 0.000001`
  const others = sql`sum(CASE WHEN ${value} IS NOT NULL AND NOT (${isMillionths}) THEN ${value}::text::numeric END)`
  return sql`coalesce(${millionths} + ${others}, ${millionths}, ${others})`
}
