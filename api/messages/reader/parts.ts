/**
 * The records of a query in parts that do not overlap: whole quarters of an hour that are folded already, which the rollups
 * know, and the rest, which is read: what is not folded, and the ends of the range that cut through a quarter.
 */
import { executeKept } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { ROLLUP_COLUMNS } from '../projections/rollups.ts'
import { talliedRollups } from '../projections/tallies.ts'
import { BUCKET_SECONDS } from '../store/runs.ts'
import type { RecordConditions, Scope, TimeRange } from './conditions.ts'
import { all, conditionsIn, timeConditions } from './conditions.ts'

export type Parts = {
  /** A table `b` of the columns of `rollups`; undefined where they know nothing of what is asked. */
  rollups: Sql<unknown> | undefined
  /** About records of which the rollups part knows nothing, each condition about others. */
  raw: readonly RecordConditions[]
}

/** Rollups know series and times, neither protocols nor single values. */
function isKnownToRollups({ protocol, values }: Scope): boolean {
  return protocol === undefined && values.length === 0
}

/** The parts of the snapshot that the transaction reads; `unfolded` on rows `m`, undefined where there are none. */
export async function partsOf(
  tx: Transaction,
  scope: Scope,
  range: TimeRange,
  unfolded: Sql<boolean> | undefined,
): Promise<Parts> {
  if (!isKnownToRollups(scope)) return { rollups: undefined, raw: [conditionsIn(scope, range)] }
  const { fromSeconds: from, toSeconds: to } = await wholeQuarters(tx, scope, range)
  const isWithinOne = from !== undefined && to !== undefined && from >= to
  if (isWithinOne) return { rollups: undefined, raw: [conditionsIn(scope, range)] }
  const restricted = (
    within: TimeRange,
    condition: Sql<boolean>,
    found: 'by channel' | 'by batch' = 'by channel',
  ): RecordConditions => {
    const conditions = conditionsIn(scope, within, found)
    return { ...conditions, rows: all([conditions.rows, condition]) }
  }
  const raw: RecordConditions[] = []
  const isFolded = unfolded === undefined ? sql<boolean>`true` : sql<boolean>`NOT (${unfolded})`
  if (unfolded !== undefined) raw.push(restricted(range, unfolded, 'by batch'))
  if (from !== undefined && range.fromSeconds !== undefined && from > range.fromSeconds)
    raw.push(restricted({ fromSeconds: range.fromSeconds, toSeconds: from }, isFolded))
  if (to !== undefined && range.toSeconds !== undefined && to < range.toSeconds)
    raw.push(restricted({ fromSeconds: to, toSeconds: range.toSeconds }, isFolded))
  return { rollups: foldedRollups(scope, from, to), raw }
}

/**
 * The quarters of an hour of which the range takes everything. One that it cuts is such a one too where nothing lies beyond the
 * cut: a range that ends now, or begins with the first record, need not open the quarter to say what is in it.
 */
async function wholeQuarters(tx: Queryable, scope: Scope, range: TimeRange): Promise<TimeRange> {
  const { fromSeconds, toSeconds } = range
  if (fromSeconds === undefined && toSeconds === undefined) return range
  const first = fromSeconds === undefined ? undefined : Math.floor(fromSeconds / BUCKET_SECONDS) * BUCKET_SECONDS
  const end = toSeconds === undefined ? undefined : Math.ceil(toSeconds / BUCKET_SECONDS) * BUCKET_SECONDS
  // In the order of an index: what decides is the first row, and without an order the planner reads them all to find it.
  const isEmpty = (outside: TimeRange) =>
    outside.fromSeconds === outside.toSeconds
      ? sql<boolean>`true`
      : sql<boolean>`(SELECT m.max_time FROM records m WHERE ${conditionsIn(scope, outside).rows}
                      ORDER BY m.max_time LIMIT 1) IS NULL`
  const { rows } = await executeKept(
    tx,
    sql<{ before: boolean; after: boolean }>`
    SELECT ${isEmpty({ fromSeconds: first, toSeconds: fromSeconds })} AS before,
           ${isEmpty({ fromSeconds: toSeconds, toSeconds: end })} AS after`,
  )
  const [found] = rows
  return {
    fromSeconds: first === undefined || found?.before === true ? first : first + BUCKET_SECONDS,
    toSeconds: end === undefined || found?.after === true ? end : end - BUCKET_SECONDS,
  }
}

/** So many series are looked for in rows of tallies before those are opened. */
const FEW_SERIES = 16

/** What is folded of the series of the scope, or of the channel as a whole: a table `b` of the columns of `rollups`. */
export function foldedRollups(scope: Scope, from: number | undefined, to: number | undefined): Sql<unknown> {
  const { channelKey, seriesKeys } = scope
  const merged = [
    sql<boolean>`b.channel_key = ${channelKey}`,
    sql<boolean>`b.series_key = ANY (${seriesKeys ?? [0]}::bigint[])`,
    ...timeConditions(sql`b.bucket`, { fromSeconds: from, toSeconds: to }),
  ]
  const tallied = [
    sql<boolean>`t.channel_key = ${channelKey} AND t.is_total = ${seriesKeys === undefined}`,
    ...timeConditions(sql`t.bucket`, { fromSeconds: from, toSeconds: to }),
  ]
  if (seriesKeys !== undefined) tallied.push(sql`e.series_key = ANY (${seriesKeys}::bigint[])`)
  if (seriesKeys !== undefined && seriesKeys.length <= FEW_SERIES)
    tallied.push(sql`t.series_keys && ${seriesKeys}::bigint[]`)
  return sql`(SELECT ${ROLLUP_COLUMNS} FROM rollups b WHERE ${all(merged)} UNION ALL ${talliedRollups(all(tallied))}) b`
}

const NOT_FOLDED = sql`FROM ingest_batches WHERE NOT folded`

/**
 * On rows `m` of the table `records`: of batches that are not folded. Between the first and the last: that is what the index of
 * batches answers at once.
 */
export const UNFOLDED = sql<boolean>`m.batch_seq BETWEEN (SELECT min(seq) ${NOT_FOLDED}) AND (SELECT max(seq) ${NOT_FOLDED})
  AND (m.batch_seq IN (SELECT seq ${NOT_FOLDED})) IS TRUE AND m.arrived_at >= (SELECT min(arrived_at) ${NOT_FOLDED})`

/** The same for a statement that is planned by its values; undefined where there are none. */
export async function unfoldedBatches(tx: Queryable): Promise<Sql<boolean> | undefined> {
  const { rows } = await sql<{ seq: number; arrived_at: string }>`
    SELECT seq, arrived_at FROM ingest_batches WHERE NOT folded ORDER BY arrived_at`.execute(tx)
  const [oldest] = rows
  if (oldest === undefined) return undefined
  const seqs = rows.map(({ seq }) => seq)
  return sql<boolean>`m.batch_seq BETWEEN ${Math.min(...seqs)} AND ${Math.max(...seqs)} AND m.batch_seq = ANY (${seqs}::bigint[])
    AND m.arrived_at >= ${oldest.arrived_at}::timestamptz`
}
