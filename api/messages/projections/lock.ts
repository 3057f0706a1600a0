/** The lock of projections: one of all processes changes them at a time. */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { mergeTallies } from './tallies.ts'

/** Held by whoever changes rollups and what goes with them: the folder, a deletion, the keeper. */
const FOLD_LOCK = 0x5ce1_0005

/** Waits for whoever changes rollups at present. Afterwards they and the newest records tell by themselves all that is folded. */
export async function lockRollups(tx: Transaction): Promise<void> {
  await sql`SELECT pg_advisory_xact_lock(${FOLD_LOCK})`.execute(tx)
  await mergeTallies(tx)
}

/** False while somebody else changes rollups. Whoever has the lock so may add to them, and must not take anything away. */
export async function tryLockRollups(tx: Transaction): Promise<boolean> {
  const { rows } = await sql<{ locked: boolean }>`SELECT pg_try_advisory_xact_lock(${FOLD_LOCK}) AS locked`.execute(tx)
  return rows[0]?.locked === true
}
