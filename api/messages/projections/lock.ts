/** The lock of the projections: one process changes them at a time. */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/** Held by everything that changes rollups and newest records: the projector, a deletion, expiry. */
const PROJECTION_LOCK = 0x5ce1_0005

/** Waits for the holder. The lock ends with the transaction. */
export async function lockProjections(tx: Transaction): Promise<void> {
  await sql`SELECT pg_advisory_xact_lock(${PROJECTION_LOCK})`.execute(tx)
}

/** False while another transaction holds the lock. */
export async function tryLockProjections(tx: Transaction): Promise<boolean> {
  const { rows } = await sql<{
    locked: boolean
  }>`SELECT pg_try_advisory_xact_lock(${PROJECTION_LOCK}) AS locked`.execute(tx)
  return rows[0]?.locked === true
}
