/**
 * The rules of other slices inside a transaction that runs: their reads see what it wrote, their changes commit or vanish
 * with it, and what they record stands in the same call of the journal.
 */
import type { Journal, Recorder } from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'

export type Joined = { database: Database; journal: Journal }

export function joinedTo({ database, journal }: Joined, tx: Transaction, record: Recorder): Joined {
  return {
    database: { ...database, db: tx, transaction: (work) => work(tx) },
    journal: { ...journal, change: (_actor, work) => work(tx, record) },
  }
}
