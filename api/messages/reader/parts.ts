/**
 * The records of a query in parts that do not overlap: whole quarters of an hour that are folded already, which the rollups
 * know, and the rest, which is read: what is not folded, and the ends of the range that cut through a quarter.
 */
import type { RawBuilder, SqlBool } from 'kysely'
import { sql } from 'kysely'
import type { Queryable, Transaction } from '#core/database/index.ts'
import { BUCKET_SECONDS } from '../store/runs.ts'
import type { RecordConditions, Scope, TimeRange } from './conditions.ts'
import { all, conditionsIn } from './conditions.ts'

export type Parts = {
  /** About rows `b` of the table `rollups`; undefined where they know nothing of what is asked. */
  rollups: RawBuilder<SqlBool> | undefined
  /** About records of which the rollups part knows nothing, each condition about others. */
  raw: readonly RecordConditions[]
}

/** Rollups know series and times, neither protocols nor single values. */
function isKnownToRollups({ protocol, values }: Scope): boolean {
  return protocol === undefined && values.length === 0
}

/** The parts of the snapshot that the transaction reads. */
export async function partsOf(tx: Transaction, scope: Scope, range: TimeRange): Promise<Parts> {
  const from =
    range.fromSeconds === undefined ? undefined : Math.ceil(range.fromSeconds / BUCKET_SECONDS) * BUCKET_SECONDS
  const to = range.toSeconds === undefined ? undefined : Math.floor(range.toSeconds / BUCKET_SECONDS) * BUCKET_SECONDS
  const isWithinOne = from !== undefined && to !== undefined && from >= to
  if (!isKnownToRollups(scope) || isWithinOne) return { rollups: undefined, raw: [conditionsIn(scope, range)] }
  const unfolded = await unfoldedBatches(tx)
  const restricted = (within: TimeRange, condition: RawBuilder<SqlBool>): RecordConditions => {
    const conditions = conditionsIn(scope, within)
    return { ...conditions, rows: all([conditions.rows, condition]) }
  }
  const raw: RecordConditions[] = []
  const isFolded = unfolded === undefined ? sql<SqlBool>`true` : sql<SqlBool>`NOT (${unfolded})`
  if (unfolded !== undefined) raw.push(restricted(range, unfolded))
  if (from !== undefined && from !== range.fromSeconds)
    raw.push(restricted({ fromSeconds: range.fromSeconds, toSeconds: from }, isFolded))
  if (to !== undefined && to !== range.toSeconds)
    raw.push(restricted({ fromSeconds: to, toSeconds: range.toSeconds }, isFolded))
  return { rollups: rollupsCondition(scope, from, to), raw }
}

/** Rows of the series of the scope, or of the channel as a whole. */
export function rollupsCondition(scope: Scope, from: number | undefined, to: number | undefined): RawBuilder<SqlBool> {
  const conditions = [
    sql<SqlBool>`b.channel_key = ${scope.channelKey}`,
    sql<SqlBool>`b.series_key = ANY (${scope.seriesKeys ?? [0]}::bigint[])`,
  ]
  if (from !== undefined) conditions.push(sql`b.bucket >= to_timestamp(${from})`)
  if (to !== undefined) conditions.push(sql`b.bucket < to_timestamp(${to})`)
  return all(conditions)
}

/** On rows `m` of the table `records`: of batches that are not folded; undefined where there are none. */
export async function unfoldedBatches(tx: Queryable): Promise<RawBuilder<SqlBool> | undefined> {
  const { rows } = await sql<{ seq: number; arrived_at: string }>`
    SELECT seq, arrived_at FROM ingest_batches WHERE NOT folded ORDER BY arrived_at`.execute(tx)
  const [oldest] = rows
  if (oldest === undefined) return undefined
  return sql<SqlBool>`m.batch_seq = ANY (${rows.map(({ seq }) => seq)}::bigint[]) AND m.arrived_at >= ${oldest.arrived_at}::timestamptz`
}
