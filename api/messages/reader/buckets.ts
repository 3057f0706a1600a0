/**
 * Far pages: whole buckets are passed over by their counts, so that only the rows of the buckets on the page are read. Inside buckets of very
 * many records whole seconds are passed over, which are counted for it.
 */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { bucketOf } from '../projections/rollups.ts'
import { TIMES_IN_ROW } from '../store/opened.ts'
import { BUCKET_SECONDS } from '../store/record-chunks.ts'
import type { RecordConditions, TimeRange } from './conditions.ts'
import { all, matchingIn } from './conditions.ts'
import { directionOf } from './order.ts'
import type { Parts } from './parts.ts'
import { countsOf } from './totals.ts'
import type { Window } from './window.ts'

/** The beginnings of the buckets that hold a page, how many matches they have, and how many of these come before the page. */
export type PageBuckets = { total: number; buckets: readonly number[]; records: number; offset: number }

/** Finds the buckets of a page by their counts; beside them the exact total. The parts must be known to rollups. */
export async function findBuckets(tx: Transaction, parts: Parts, window: Window): Promise<PageBuckets> {
  const { rows } = await bucketsOf(parts, window).execute(tx)
  const buckets = rows.flatMap(({ start }) => (start === null ? [] : [start]))
  const records = rows.reduce((sum, row) => sum + (row.records ?? 0), 0)
  return { total: rows[0]?.total ?? 0, buckets, records, offset: window.offset - (rows[0]?.before ?? 0) }
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

/** The rows `m` of these buckets, as a FROM item; `conditions` about them. */
export function rowsOfBuckets(buckets: readonly number[], conditions: Sql<boolean>): Sql<unknown> {
  return sql`(
    SELECT m.* FROM unnest(${buckets}::float8[]) AS start CROSS JOIN LATERAL (
      SELECT * FROM records m
       WHERE m.min_time >= to_timestamp(start) AND m.max_time >= to_timestamp(start)
         AND m.max_time < to_timestamp(start + ${BUCKET_SECONDS}) AND ${conditions} OFFSET 0) m)`
}

/** The whole seconds of these buckets that hold the page, and how many of their records come before it. */
export async function findSeconds(
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
