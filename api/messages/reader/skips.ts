/** What a far offset passes over without opening it: whole quarters of an hour, and inside of one whole rows. */
import { executeKept } from '#core/database/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { TIMES_IN_ROW } from '../store/opened.ts'
import { BUCKET_SECONDS } from '../store/runs.ts'
import type { Scope, TimeRange } from './conditions.ts'
import { all, conditionsIn } from './conditions.ts'
import { countedRows, countsOf } from './counts.ts'
import { JOIN_NAMED_RECORDS } from './named.ts'
import { EDGE, byPlace, directionOf, placeOf } from './order.ts'
import type { Parts } from './parts.ts'
import type { Window } from './window.ts'

/** Records that match in a row at the least in what people send, where it is not known; a wrong guess costs another look. */
const GUESSED_RECORDS = 4
/** The same of one name: a message has it once. */
const GUESSED_OF_NAME = 1
/** Rows of devices with one clock lie beside each other: to have all records of a time, so many times the rows are needed. */
export const ROWS_BESIDE = 2
/** Below this an offset is walked over. */
export const SKIP_OFFSET = 100
const BUCKET_INTERVAL = sql.raw(`make_interval(secs => ${BUCKET_SECONDS})`)

type Skipped = { total: number; range: TimeRange; bucket: TimeRange | undefined; offset: number }

/**
 * Whole quarters of an hour that the offset passes over are left out of the range, and their records off the offset; beside it how
 * many records there are. Undefined where quarters are not known.
 */
export async function skipBuckets(
  tx: Transaction,
  { rollups, raw }: Parts,
  { fromSeconds, toSeconds }: TimeRange,
  { offset, dir }: Window,
): Promise<Skipped | undefined> {
  if (rollups === undefined) return undefined
  const parts = [
    sql`SELECT b.bucket, sum(b.records) AS records FROM ${rollups} GROUP BY 1`,
    // The records of a row lie in one bucket.
    ...raw.map((part) => countsOf(part, sql`date_bin(${BUCKET_INTERVAL}, m.min_time, 'epoch')`)),
  ]
  const { rows } = await executeKept(
    tx,
    sql<{ total: number; start: number | null; before: number }>`
    WITH counted AS MATERIALIZED (
      SELECT bucket, sum(records) AS records, sum(sum(records)) OVER (ORDER BY bucket ${directionOf(dir)}) AS upto
        FROM ((${sql.join(parts, sql`) UNION ALL (`)})) part GROUP BY bucket
    )
    SELECT (SELECT coalesce(sum(records), 0) FROM counted)::bigint AS total,
           extract(epoch FROM found.bucket)::float8 AS start, (found.upto - found.records)::bigint AS before
      FROM (SELECT) AS always LEFT JOIN counted found ON found.upto > ${offset} AND found.upto - found.records <= ${offset}`,
  )
  const [found] = rows
  const total = found?.total ?? 0
  if (found === undefined || found.start === null)
    return { total, range: { fromSeconds, toSeconds }, bucket: undefined, offset }
  const bucket = {
    fromSeconds: Math.max(fromSeconds ?? -Infinity, found.start),
    toSeconds: Math.min(toSeconds ?? Infinity, found.start + BUCKET_SECONDS),
  }
  const range =
    dir === 'desc' ? { fromSeconds, toSeconds: bucket.toSeconds } : { fromSeconds: bucket.fromSeconds, toSeconds }
  return { total, range, bucket, offset: offset - found.before }
}

/**
 * Where a message stands in the order of pages: a time and what decides among equal ones, times in the text of PostgreSQL,
 * which is exact. The page lies before or at it (or after or at it).
 */
export type Edge = { at: string; arrived_at: string; batch_seq: number; message: number } | undefined

/** Where a page by time begins to look, what it passes over from there, and how many records that match a row there holds. */
export type Start = { edge: Edge; offset: number; recordsPerRow: number }

/**
 * Records that the offset passes over inside a bucket: those beyond the end of a row, counted row by row. None of them is
 * opened but those of rows that this end cuts.
 */
export async function skipRows(
  tx: Transaction,
  scope: Scope,
  bucket: TimeRange | undefined,
  { offset, dir }: Window,
): Promise<Start> {
  if (bucket === undefined || offset < SKIP_OFFSET)
    return { edge: undefined, offset, recordsPerRow: guessedPerRow(scope) }
  const conditions = conditionsIn(scope, bucket)
  const isNewestFirst = dir === 'desc'
  const [far, near] = isNewestFirst ? [sql`m.max_time`, sql`m.min_time`] : [sql`m.min_time`, sql`m.max_time`]
  const beyond = isNewestFirst ? sql`>` : sql`<`
  const [direction, opposite] = [directionOf(dir), directionOf(isNewestFirst ? 'asc' : 'desc')]
  const isBeyond = (time: Sql<unknown>) => sql<boolean>`${placeOf(time)} ${beyond} ${EDGE}`
  const { withs, counted } = countedRows(
    conditions,
    sql`${far} AS far, ${near} AS near, m.arrived_at, m.batch_seq, m.message`,
  )
  const opened = conditions.named === undefined ? sql`CROSS JOIN LATERAL ${TIMES_IN_ROW}` : JOIN_NAMED_RECORDS
  // The ends by themselves too: they are what an index knows.
  const isCut = [
    sql<boolean>`${far} ${beyond}= edge.at AND ${near} ${isNewestFirst ? sql`<` : sql`>`}= edge.at`,
    isBeyond(far),
    sql<boolean>`NOT (${isBeyond(near)})`,
  ]
  // Rows meet the series with the name by a hash, however few the planner expects.
  const disabled = executeKept(tx, sql`SET LOCAL enable_nestloop = off`)
  const found = executeKept(
    tx,
    sql<{ before: number; mean: number | null } & (Exclude<Edge, undefined> | { at: null })>`
    WITH ${withs}, counted AS MATERIALIZED (${counted}), edge AS MATERIALIZED (
      SELECT m.far AS at, m.arrived_at, m.batch_seq, m.message
        FROM (SELECT m.*, sum(m.records) OVER (ORDER BY ${byPlace(sql`m.far`, direction)} ROWS UNBOUNDED PRECEDING) AS upto FROM counted m) m
       WHERE m.upto <= ${offset} ORDER BY m.upto DESC, ${byPlace(sql`m.far`, opposite)} LIMIT 1
    )
    SELECT edge.at::text AS at, edge.arrived_at::text AS arrived_at, edge.batch_seq, edge.message, (
             (SELECT coalesce(sum(m.records), 0) FROM counted m WHERE ${isBeyond(sql`m.near`)})
             + (SELECT count(*) FROM records m ${opened}
                 WHERE ${all([conditions.rows, ...isCut, ...conditions.times, isBeyond(sql`r.time`)])}))::bigint AS before,
           (SELECT avg(records)::float8 FROM counted WHERE records > 0) AS mean
      FROM (SELECT) AS always LEFT JOIN edge ON true`,
  )
  const enabled = executeKept(tx, sql`SET LOCAL enable_nestloop = on`)
  const [{ rows }] = await Promise.all([found, disabled, enabled])
  const { before = 0, mean, ...edge } = rows[0] ?? { at: null }
  return { edge: edge.at === null ? undefined : edge, offset: offset - before, recordsPerRow: mean ?? 1 }
}

/** Records of a row that match, where it is not known. */
export function guessedPerRow({ recordKeys }: Scope): number {
  return (recordKeys === undefined ? GUESSED_RECORDS : GUESSED_OF_NAME) * ROWS_BESIDE
}
