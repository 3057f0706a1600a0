/**
 * The rules of other slices inside a transaction that runs: their reads see what it wrote, their changes commit or vanish
 * with it, and what they record stands in the same call of the journal.
 */
import type { AccessPolicy, DomainAccess, Journal, Recorder } from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'

export type Joined = { database: Database; journal: Journal; access: AccessPolicy }

/**
 * `domain` was entered before the transaction began: who holds a connection must not wait for another one, or as many callers
 * as there are connections would wait for each other.
 */
export function joinedTo(
  { database, journal, access }: Joined,
  tx: Transaction,
  record: Recorder,
  domain: DomainAccess,
): Joined {
  return {
    database: { ...database, db: tx, transaction: (work) => work(tx) },
    journal: { ...journal, change: (_actor, work) => work(tx, record) },
    access: access.havingEntered(domain),
  }
}
