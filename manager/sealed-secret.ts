/** Secrets of the installation that are made once and kept sealed in the database, the same for every manager of it. */
import type { Database } from '#core/database/index.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { sql } from '#core/sql.ts'

/** The secret of this name; `make` is asked when there is none, and loses against another manager that was faster. */
export async function ensureSecret(
  database: Database,
  keyring: Keyring,
  { name, purpose, make }: { name: string; purpose: string; make: () => Promise<string> },
): Promise<string> {
  const find = async () => {
    const { rows } = await sql<{ sealed: Buffer }>`SELECT sealed FROM sealed_secrets WHERE name = ${name}`.execute(
      database.db,
    )
    return rows[0]?.sealed
  }
  let sealed = await find()
  if (sealed === undefined) {
    const made = keyring.seal(purpose, name, await make())
    await sql`INSERT INTO sealed_secrets (name, sealed) VALUES (${name}, ${made}) ON CONFLICT DO NOTHING`.execute(
      database.db,
    )
    sealed = await find()
  }
  if (sealed === undefined) throw new Error(`the secret ${name} was not stored`)
  return keyring.open(purpose, name, sealed)
}
