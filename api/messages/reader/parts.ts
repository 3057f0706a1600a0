/**
 * The records of a query in parts that do not overlap: whole quarters of an hour that are projected, which the rollups count, and the
 * rest, which is read from the records: pending batches, and both ends of the range where they cut a quarter.
 */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { ROLLUP_COLUMNS } from '../projections/rollups.ts'
import { BUCKET_SECONDS } from '../store/record-chunks.ts'
import type { RecordConditions, Scope, TimeRange } from './conditions.ts'
import { all, conditionsIn, timeConditions } from './conditions.ts'

export type Parts = {
  /** A table `b` with the columns of `rollups`; undefined where rollups cannot answer the query. */
  rollups: Sql<unknown> | undefined
  /** Conditions on records that the rollups part does not count, each on other records. */
  raw: readonly RecordConditions[]
}

/** Rollups know series and times, neither protocols nor single values. */
export function isKnownToRollups({ protocol, values }: Scope): boolean {
  return protocol === undefined && values.length === 0
}

/** The parts of the snapshot that the transaction reads; `pending` is from `pendingBatches`. */
export function partsOf(scope: Scope, range: TimeRange, pending: Sql<boolean> | undefined): Parts {
  if (!isKnownToRollups(scope)) return { rollups: undefined, raw: [conditionsIn(scope, range)] }
  const whole = wholeBuckets(range)
  const { fromSeconds: from, toSeconds: to } = whole
  if (from !== undefined && to !== undefined && from >= to)
    return { rollups: undefined, raw: [conditionsIn(scope, range)] }
  const restricted = (within: TimeRange, condition: Sql<boolean>, found?: 'by batch'): RecordConditions => {
    const conditions = conditionsIn(scope, within, found)
    return { ...conditions, rows: all([conditions.rows, condition]) }
  }
  const raw: RecordConditions[] = []
  if (pending !== undefined) raw.push(restricted(range, pending, 'by batch'))
  const isProjected = pending === undefined ? sql<boolean>`true` : sql<boolean>`NOT (${pending})`
  if (from !== range.fromSeconds) raw.push(restricted({ ...range, toSeconds: from }, isProjected))
  if (to !== range.toSeconds) raw.push(restricted({ ...range, fromSeconds: to }, isProjected))
  return { rollups: rollupsIn(scope, whole), raw }
}

/** The buckets that lie in the range as a whole. */
function wholeBuckets({ fromSeconds, toSeconds }: TimeRange): TimeRange {
  return {
    fromSeconds: fromSeconds === undefined ? undefined : Math.ceil(fromSeconds / BUCKET_SECONDS) * BUCKET_SECONDS,
    toSeconds: toSeconds === undefined ? undefined : Math.floor(toSeconds / BUCKET_SECONDS) * BUCKET_SECONDS,
  }
}

/** The rollups of the series of the scope, or of the channel as a whole, as a table `b`; the range is one of whole buckets. */
export function rollupsIn({ channelKey, seriesKeys }: Scope, range: TimeRange): Sql<unknown> {
  const conditions = [
    sql<boolean>`b.channel_key = ${channelKey}`,
    sql<boolean>`b.series_key = ANY (${seriesKeys ?? [0]}::bigint[])`,
    ...timeConditions(sql`b.bucket`, range),
  ]
  return sql`(SELECT ${ROLLUP_COLUMNS} FROM rollups b WHERE ${all(conditions)}) b`
}

/**
 * A condition on rows `m` of the table `records`: the row is of a batch that is not projected yet; undefined without such a batch. The
 * range of numbers is what the index of batches answers, the time of arrival leaves out partitions. IS TRUE makes a hashed set of the
 * numbers.
 */
export async function pendingBatches(tx: Queryable): Promise<Sql<boolean> | undefined> {
  const { rows } = await sql<{ seq: number; arrived_at: string }>`
    SELECT seq, arrived_at FROM ingest_batches WHERE NOT projected ORDER BY arrived_at`.execute(tx)
  const [oldest] = rows
  if (oldest === undefined) return undefined
  const seqs = rows.map(({ seq }) => seq)
  const [first, last] = [seqs.reduce((low, seq) => Math.min(low, seq)), seqs.reduce((high, seq) => Math.max(high, seq))]
  return sql<boolean>`m.batch_seq BETWEEN ${first} AND ${last} AND m.arrived_at >= ${oldest.arrived_at}::timestamptz
    AND (m.batch_seq IN (SELECT unnest(${seqs}::bigint[]))) IS TRUE`
}
