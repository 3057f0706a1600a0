/**
 * Splits the records of a query into parts that do not overlap: projected buckets, which the rollups count, and the rest, which is read
 * from the records: pending batches, and incomplete buckets at both ends of the range.
 */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { ROLLUP_COLUMNS } from '../projections/rollups.ts'
import { BUCKET_SECONDS } from '../store/record-chunks.ts'
import { holdsRollups, splitWeeks } from './arrivals.ts'
import type { RecordConditions, Scope } from './conditions.ts'
import { all, conditionsIn, timeConditions } from './conditions.ts'
import { ALL_TIMES } from './time-range.ts'
import type { TimeRange } from './time-range.ts'

export type Parts = {
  /** A table `b` with the columns of `rollups`; undefined when rollups cannot answer the query. */
  rollups: Sql<unknown> | undefined
  /** The number of records in `rollups`. */
  counts: RollupCounts
  /** Conditions on records that the rollups part does not count, each on other records. */
  raw: readonly RecordConditions[]
}

/** A number that is known already, and a table `b` with more `records`; undefined when there are none. */
export type RollupCounts = { known: number; table: Sql<unknown> | undefined }

/** Rollups contain series and times, but no protocols, no single messages and no single values. */
export function isKnownToRollups({ protocol, selected, values }: Scope): boolean {
  return protocol === undefined && selected === undefined && values.length === 0
}

/** The parts of the snapshot that the transaction reads. */
export function partsOf(scope: Scope, range: TimeRange): Parts {
  if (!isKnownToRollups(scope)) return rawAlone(scope, range)
  const whole = wholeBuckets(range)
  const { fromSeconds: from, toSeconds: to } = whole
  if (from !== undefined && to !== undefined && from >= to) return rawAlone(scope, range)
  const restricted = (
    within: TimeRange,
    condition: Sql<boolean>,
    found: 'by channel' | 'by batch' = 'by channel',
  ): RecordConditions => {
    const conditions = conditionsIn(scope, within, { found })
    return { ...conditions, rows: all([conditions.rows, condition]) }
  }
  const raw: RecordConditions[] = []
  const pending = scope.arrivals?.pending?.condition
  if (pending !== undefined) raw.push(restricted(range, pending, 'by batch'))
  const isProjected = pending === undefined ? sql<boolean>`true` : sql<boolean>`NOT (${pending})`
  if (from !== range.fromSeconds) raw.push(restricted({ ...range, toSeconds: from }, isProjected))
  if (to !== range.toSeconds) raw.push(restricted({ ...range, fromSeconds: to }, isProjected))
  const rollups = rollupsIn(scope, whole)
  return { rollups, counts: countsIn(scope, whole), raw }
}

/** The parts of a query that rollups cannot answer. */
export function rawAlone(scope: Scope, range: TimeRange): Parts {
  return { rollups: undefined, counts: { known: 0, table: undefined }, raw: [conditionsIn(scope, range)] }
}

/** Rollups by week for weeks that are completely in the range, by bucket for other weeks. */
function countsIn(scope: Scope, range: TimeRange): RollupCounts {
  const { channelKey, arrivals, seriesKeys } = scope
  if (arrivals === undefined) return { known: 0, table: rollupsIn(scope, range) }
  const { inside, cut } = splitWeeks(arrivals, range)
  const parts: Sql<unknown>[] = []
  // The counts of the channel as a whole were read with its weeks.
  const isWhole = seriesKeys === undefined
  const known = isWhole ? inside.weeks.reduce((sum, { records }) => sum + records, 0) : 0
  if (!isWhole && inside.weeks.length > 0)
    parts.push(sql`
      SELECT b.records FROM rollup_weeks b
       WHERE b.channel_key = ${channelKey} AND b.series_key = ANY (${seriesKeys}::bigint[]) AND ${holdsRollups(inside, ALL_TIMES)}`)
  if (cut.weeks.length > 0) parts.push(sql`SELECT b.records FROM ${rollupsIn({ ...scope, arrivals: cut }, range)}`)
  return { known, table: parts.length === 0 ? undefined : sql`(${sql.join(parts, sql` UNION ALL `)}) b` }
}

/** The buckets that are completely in the range. */
function wholeBuckets({ fromSeconds, toSeconds }: TimeRange): TimeRange {
  return { fromSeconds: endOfBucket(fromSeconds), toSeconds: startOfBucket(toSeconds) }
}

/** The next start of a bucket, at or after the time. */
function endOfBucket(seconds: number | undefined): number | undefined {
  return seconds === undefined ? undefined : Math.ceil(seconds / BUCKET_SECONDS) * BUCKET_SECONDS
}

function startOfBucket(seconds: number | undefined): number | undefined {
  return seconds === undefined ? undefined : Math.floor(seconds / BUCKET_SECONDS) * BUCKET_SECONDS
}

/**
 * The range, extended to whole buckets where the channel has no records in the rest of the bucket: then its rollups answer for the bucket,
 * and its records are not read. So it is for ranges that end now, and for those that begin before the first record.
 */
export async function widened(tx: Queryable, scope: Scope, { fromSeconds, toSeconds }: TimeRange): Promise<TimeRange> {
  const [first, end] = [startOfBucket(fromSeconds), endOfBucket(toSeconds)]
  const holds = (from: number | undefined, to: number | undefined) =>
    from === undefined || to === undefined || from === to
      ? sql`false`
      : sql`EXISTS (SELECT FROM records m WHERE ${conditionsIn(scope, { fromSeconds: from, toSeconds: to }).rows})`
  const { rows } = await sql<{ before: boolean; after: boolean }>`
    SELECT ${holds(first, fromSeconds)} AS before, ${holds(toSeconds, end)} AS after`.execute(tx)
  const [held] = rows
  return {
    fromSeconds: held?.before === false ? first : fromSeconds,
    toSeconds: held?.after === false ? end : toSeconds,
  }
}

/** The rollups of the series of the scope, or of the channel as a whole, as a table `b`; the range is one of whole buckets. */
export function rollupsIn({ channelKey, arrivals, seriesKeys }: Scope, range: TimeRange): Sql<unknown> {
  const conditions = [
    sql<boolean>`b.channel_key = ${channelKey}`,
    sql<boolean>`b.series_key = ANY (${seriesKeys ?? [0]}::bigint[])`,
    ...timeConditions(sql`b.bucket`, range),
  ]
  if (arrivals !== undefined) conditions.push(holdsRollups(arrivals, range))
  return sql`(SELECT ${ROLLUP_COLUMNS} FROM rollups b WHERE ${all(conditions)}) b`
}
