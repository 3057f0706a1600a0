/** The lock of projections: one of all processes changes them at a time. */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/** Held by whoever changes rollups and what goes with them: the folder, a deletion, the keeper. */
const FOLD_LOCK = 0x5ce1_0005

/** Waits for whoever changes rollups at present. */
export async function lockRollups(tx: Transaction): Promise<void> {
  await sql`SELECT pg_advisory_xact_lock(${FOLD_LOCK})`.execute(tx)
}

/** False while somebody else changes rollups. */
export async function tryLockRollups(tx: Transaction): Promise<boolean> {
  const { rows } = await sql<{ locked: boolean }>`SELECT pg_try_advisory_xact_lock(${FOLD_LOCK}) AS locked`.execute(tx)
  return rows[0]?.locked === true
}
