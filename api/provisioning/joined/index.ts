/**
 * Runs the services of other slices in a running transaction: they read its writes, their changes commit or roll back
 * with it, and their records belong to the same journal entry.
 */
import type { AccessPolicy, DomainAccess, Journal, Recorder } from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'

export type Joined = { database: Database; journal: Journal; access: AccessPolicy }

/**
 * `domain` must be entered before the transaction begins: a caller that holds a connection must not wait for another,
 * or all callers would wait for each other when the pool is exhausted.
 */
export function inTransaction(
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
