/**
 * Finds pages with a large offset. The query skips whole buckets by their record counts and reads only the rows of the buckets on the
 * page. In buckets with very many records it counts the records of each second and skips whole seconds.
 */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { bucketOf } from '../projections/rollups.ts'
import { TIMES_IN_ROW } from '../store/opened.ts'
import { BUCKET_SECONDS } from '../store/record-chunks.ts'
import type { RecordConditions } from './conditions.ts'
import { all, matchingIn } from './conditions.ts'
import { directionOf } from './order.ts'
import type { Parts } from './parts.ts'
import { ALL_TIMES } from './time-range.ts'
import type { TimeRange } from './time-range.ts'
import { countsOf } from './totals.ts'
import type { Window } from './window.ts'

/** The start times of the buckets that hold a page, the number of matches in them, and the number of those before the page. */
export type PageBuckets = { total: number; buckets: readonly number[]; records: number; offset: number }

/** Finds the buckets of a page by their counts. Also returns the exact total. Requires a scope that is known to rollups. */
export async function findPageBuckets(tx: Transaction, parts: Parts, window: Window): Promise<PageBuckets> {
  const { rows } = await bucketsOf(parts, window).execute(tx)
  const buckets = rows.flatMap(({ start }) => (start === null ? [] : [start]))
  const records = rows.reduce((sum, row) => sum + (row.records ?? 0), 0)
  return { total: rows[0]?.total ?? 0, buckets, records, offset: window.offset - (rows[0]?.before ?? 0) }
}

/** Returns the time range from the first bucket to the last. Without buckets it returns all times. */
export function timeRangeOf({ buckets }: PageBuckets): TimeRange {
  if (buckets.length === 0) return ALL_TIMES
  return { fromSeconds: Math.min(...buckets), toSeconds: Math.max(...buckets) + BUCKET_SECONDS }
}

type BucketRow = { total: number; start: number | null; records: number | null; before: number | null }

function bucketsOf({ rollups, raw }: Parts, { offset, limit, dir }: Window): Sql<BucketRow> {
  const parts = raw.map((part) => countsOf(part, bucketOf(sql`m.min_time`)))
  if (rollups !== undefined) parts.push(sql`SELECT b.bucket, sum(b.records) AS records FROM ${rollups} GROUP BY 1`)
  return sql`
    WITH counted AS MATERIALIZED (
      SELECT part.bucket, sum(part.records) AS records,
             sum(sum(part.records)) OVER (ORDER BY part.bucket ${directionOf(dir)}) AS upto
        FROM ((${sql.join(parts, sql`) UNION ALL (`)})) part (bucket, records) GROUP BY part.bucket
    )
    SELECT (SELECT coalesce(sum(records), 0) FROM counted)::bigint AS total,
           extract(epoch FROM found.bucket)::float8 AS start, found.records::bigint AS records,
           (found.upto - found.records)::bigint AS before
      FROM (SELECT) AS one
      LEFT JOIN counted found ON found.records > 0 AND found.upto > ${offset} AND found.upto - found.records < ${offset + limit}
     ORDER BY found.upto`
}

/** Returns a FROM item with the rows `m` of these buckets that match `conditions`. */
export function rowsOfBuckets(buckets: readonly number[], conditions: Sql<boolean>): Sql<unknown> {
  return sql`(
    SELECT m.* FROM unnest(${buckets}::float8[]) AS start CROSS JOIN LATERAL (
      SELECT * FROM records m
       WHERE m.min_time >= to_timestamp(start) AND m.max_time >= to_timestamp(start)
         AND m.max_time < to_timestamp(start + ${BUCKET_SECONDS}) AND ${conditions} OFFSET 0) m)`
}

/** Returns the range of whole seconds in these buckets that holds the page, and the offset of the page in that range. */
export async function findPageSeconds(
  tx: Transaction,
  conditions: RecordConditions,
  { buckets, offset }: PageBuckets,
  { limit, dir }: Window,
): Promise<TimeRange & { offset: number }> {
  const { rows } = await sql<{ from: number | null; to: number; before: number }>`
    WITH counted AS MATERIALIZED (
      SELECT date_bin('1 second', r.time, 'epoch') AS second, count(*) AS records,
             sum(count(*)) OVER (ORDER BY date_bin('1 second', r.time, 'epoch') ${directionOf(dir)}) AS upto
        FROM ${rowsOfBuckets(buckets, conditions.rows)} m CROSS JOIN LATERAL ${TIMES_IN_ROW}
       WHERE ${all(matchingIn(conditions))} GROUP BY 1
    )
    SELECT extract(epoch FROM min(second))::float8 AS from, extract(epoch FROM max(second))::float8 + 1 AS to,
           min(upto - records)::bigint AS before
      FROM counted WHERE upto > ${offset} AND upto - records < ${offset + limit}`.execute(tx)
  const [found] = rows
  if (found === undefined || found.from === null) return { fromSeconds: undefined, toSeconds: undefined, offset }
  return { fromSeconds: found.from, toSeconds: found.to, offset: offset - found.before }
}
