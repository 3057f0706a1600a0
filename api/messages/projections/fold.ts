/**
 * Folding: batches that were committed are added to the rollups, and marked so in the same transaction. Whoever reads adds
 * the batches that are not folded himself, so that a rollup and they together are exact at any moment.
 */
import type { Database, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { addTally } from './add-tally.ts'
import type { TalliedBatch } from './add-tally.ts'
import { addLatest } from './latest.ts'
import { lockRollups, tryLockRollups } from './lock.ts'
import { inMicros } from './micros.ts'
import type { OwnBatches } from './own-batches.ts'
import { partsOf } from './pace.ts'
import { mergeRollups, rollupsOf } from './rollups.ts'
import type { Tally } from './tally.ts'
import { addUsage } from './usage.ts'

/** Records that one transaction folds, as long as one batch alone does not hold more. */
const MAX_ROUND_RECORDS = 500_000
const MAX_ROUND_BATCHES = 5_000

/** `rows`: those of series that were written because of a tally. */
export type Round = { records: number; rows: number; hasMore: boolean }

/** Folds what one round takes. Returns how many records that were; undefined while somebody else is at it. */
export async function foldNext(database: Database, own?: OwnBatches): Promise<Round | undefined> {
  const round = await database.transaction(async (tx) => {
    own?.unmerged.begin()
    return (await tryLockRollups(tx)) ? await foldRound(tx, own) : undefined
  })
  own?.unmerged.committed()
  return round
}

/** Folds all that is committed, waiting for whoever is at it: afterwards the projections know it. */
export async function foldPending(database: Database): Promise<void> {
  for (;;) {
    const { hasMore } = await database.transaction(async (tx) => {
      await lockRollups(tx)
      return await foldRound(tx)
    })
    if (!hasMore) return
  }
}

type Batch = TalliedBatch & { records: number; arrived_at: string; is_foreign: boolean }

/** One round; the caller holds the lock. */
export async function foldRound(tx: Transaction, own?: OwnBatches): Promise<Round> {
  await own?.unmerged.mergeWhenDue(tx, own.rest)
  // Taken first: all that is in it is committed, so that the statement below sees it.
  const tally = own?.takeTally()
  const { rows: unfolded } = await sql<Batch>`
    SELECT seq, records, arrived_at, ${inMicros(sql`arrived_at`)} AS arrived_micros,
           (arrived_at AT TIME ZONE 'UTC')::date::text AS day,
           arrived_at < now() - make_interval(secs => ${(own?.foreignAgeMs ?? 0) / 1000}) OR ${own === undefined} AS is_foreign
      FROM ingest_batches WHERE NOT folded ORDER BY seq LIMIT ${MAX_ROUND_BATCHES}`.execute(tx)
  const tallied = tally === undefined ? [] : talliedOf(tally, unfolded)
  const rows = tally === undefined || own === undefined ? 0 : await addTally(tx, tally, tallied, own)
  const mine = new Set(tallied)
  const others = unfolded.filter((batch) => batch.is_foreign && !mine.has(batch))
  const read = withinRound(others)
  await foldFromTables(tx, read)
  const seqs = [...tallied, ...read].map(({ seq }) => seq)
  for (const part of partsOf(seqs)) {
    await sql`UPDATE ingest_batches SET folded = true WHERE seq = ANY (${part}::bigint[])`.execute(tx)
    await own?.rest()
  }
  const records = [...tallied, ...read].reduce((sum, batch) => sum + batch.records, 0)
  return { records, rows, hasMore: read.length < others.length || unfolded.length >= MAX_ROUND_BATCHES }
}

/** The batches of the tally; none unless it can be added as a whole: nobody folded one, and all arrived on one day. */
function talliedOf(tally: Tally, unfolded: readonly Batch[]): Batch[] {
  if (!tally.isExact || tally.seqs.length === 0) return []
  const seqs = new Set(tally.seqs)
  const found = unfolded.filter(({ seq }) => seqs.has(seq))
  const isWhole = found.length === seqs.size && found.every(({ day }) => day === found[0]?.day)
  return isWhole ? found : []
}

/** As many from the first on as one round reads; one at the least. */
function withinRound(batches: readonly Batch[]): Batch[] {
  let records = 0
  return batches.filter((batch) => {
    const before = records
    records += batch.records
    return before < MAX_ROUND_RECORDS
  })
}

async function foldFromTables(tx: Transaction, batches: readonly Batch[]): Promise<void> {
  const arrivals = batches.map((batch) => batch.arrived_at).toSorted()
  const [since, until] = [arrivals.at(0), arrivals.at(-1)]
  if (since === undefined) return
  const seqs = batches.map(({ seq }) => seq)
  const folded = sql`m.batch_seq = ANY (${seqs}::bigint[]) AND m.arrived_at BETWEEN ${since} AND ${until}`
  await addUsage(tx, folded)
  if (!batches.some(({ records }) => records > 0)) return
  await mergeRollups(tx, rollupsOf(folded))
  await addLatest(tx, folded)
}
