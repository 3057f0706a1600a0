/**
 * Projecting: committed batches are added to the projections and marked as projected in the same transaction. Readers add the pending
 * batches, those that are not projected yet, so that projections and pending batches together are exact at any moment.
 */
import type { Database, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { addPartialAggregate } from './add-partial-aggregate.ts'
import type { ArrivedBatch } from './add-partial-aggregate.ts'
import { addLatest } from './latest.ts'
import { lockProjections, tryLockProjections } from './lock.ts'
import { inMicros } from './micros.ts'
import type { PartialAggregate } from './partial-aggregate.ts'
import { mergeRollups, rollupsOf } from './rollups.ts'
import { addUsage } from './usage.ts'

/** Records that one round reads from the tables, unless a single batch contains more. */
const MAX_ROUND_RECORDS = 500_000
const MAX_ROUND_BATCHES = 5_000

/** The batches that this process committed itself. */
export type OwnBatches = {
  /** Their partial aggregate since the last call. */
  takePartial(): PartialAggregate
  /** The process that committed a batch projects it, unless it is older than this. */
  foreignAgeMs: number
}

export type Round = { records: number; hasMore: boolean }

/** Projects the batches of one round; undefined while another process projects. */
export async function projectNext(database: Database, own?: OwnBatches): Promise<Round | undefined> {
  return await database.transaction(async (tx) =>
    (await tryLockProjections(tx)) ? await projectRound(tx, own) : undefined,
  )
}

/** Projects all batches that are committed. Waits for the process that projects. */
export async function projectPending(database: Database): Promise<void> {
  for (;;) {
    const { hasMore } = await database.transaction(async (tx) => {
      await lockProjections(tx)
      return await projectRound(tx)
    })
    if (!hasMore) return
  }
}

type PendingBatch = ArrivedBatch & { records: number; arrived_at: string; is_foreign: boolean }

/** One round; the caller holds the lock. */
async function projectRound(tx: Transaction, own?: OwnBatches): Promise<Round> {
  // Taken first: all of it is committed, so that the statement below sees its batches.
  const partial = own?.takePartial()
  const { rows: pending } = await sql<PendingBatch>`
    SELECT seq, records, arrived_at, ${inMicros(sql`arrived_at`)} AS arrived_micros,
           (arrived_at AT TIME ZONE 'UTC')::date::text AS day,
           arrived_at < now() - make_interval(secs => ${(own?.foreignAgeMs ?? 0) / 1000}) OR ${own === undefined} AS is_foreign
      FROM ingest_batches WHERE NOT projected ORDER BY seq LIMIT ${MAX_ROUND_BATCHES}`.execute(tx)
  const mine = partial === undefined ? [] : batchesOf(partial, pending)
  if (partial !== undefined) await addPartialAggregate(tx, partial, mine)
  const isMine = new Set(mine)
  const others = pending.filter((batch) => batch.is_foreign && !isMine.has(batch))
  const read = withinRound(others)
  await projectFromTables(tx, read)
  const projected = [...mine, ...read]
  const seqs = projected.map(({ seq }) => seq)
  await sql`UPDATE ingest_batches SET projected = true WHERE seq = ANY (${seqs}::bigint[])`.execute(tx)
  const records = projected.reduce((sum, batch) => sum + batch.records, 0)
  const isFull = pending.length >= MAX_ROUND_BATCHES && projected.length > 0
  return { records, hasMore: read.length < others.length || isFull }
}

/** The batches of the partial aggregate; none unless it can be added as a whole: all are pending, and arrived on one day. */
function batchesOf(partial: PartialAggregate, pending: readonly PendingBatch[]): PendingBatch[] {
  if (!partial.isExact || partial.seqs.length === 0) return []
  const seqs = new Set(partial.seqs)
  const found = pending.filter(({ seq }) => seqs.has(seq))
  const isWhole = found.length === seqs.size && found.every(({ day }) => day === found[0]?.day)
  return isWhole ? found : []
}

/** The oldest batches that one round reads; at least one. */
function withinRound(batches: readonly PendingBatch[]): PendingBatch[] {
  let records = 0
  return batches.filter((batch) => {
    const before = records
    records += batch.records
    return before < MAX_ROUND_RECORDS
  })
}

async function projectFromTables(tx: Transaction, batches: readonly PendingBatch[]): Promise<void> {
  const arrivals = batches.map((batch) => batch.arrived_at).toSorted()
  const [since, until] = [arrivals.at(0), arrivals.at(-1)]
  if (since === undefined) return
  const seqs = batches.map(({ seq }) => seq)
  const rows = sql`m.batch_seq = ANY (${seqs}::bigint[]) AND m.arrived_at BETWEEN ${since} AND ${until}`
  await addUsage(tx, rows)
  if (!batches.some(({ records }) => records > 0)) return
  await mergeRollups(tx, rollupsOf(rows))
  await addLatest(tx, rows)
}
