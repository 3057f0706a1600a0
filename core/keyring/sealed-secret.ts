/** Generated secrets of the installation, sealed in the database and shared by all processes. */
import type { Queryable } from '../database/index.ts'
import { sql } from '../sql.ts'
import type { Keyring } from './keyring.ts'

/** The secret of this name. If there is none, `make` is called; of concurrent processes the first one wins. */
export async function ensureSecret(
  db: Queryable,
  keyring: Keyring,
  { name, purpose, make }: { name: string; purpose: string; make: () => Promise<string> },
): Promise<string> {
  const find = async () => {
    const { rows } = await sql<{ sealed: Buffer }>`SELECT sealed FROM sealed_secrets WHERE name = ${name}`.execute(db)
    return rows[0]?.sealed
  }
  let sealed = await find()
  if (sealed === undefined) {
    const made = keyring.seal(purpose, name, await make())
    await sql`INSERT INTO sealed_secrets (name, sealed) VALUES (${name}, ${made}) ON CONFLICT DO NOTHING`.execute(db)
    sealed = await find()
  }
  if (sealed === undefined) throw new Error(`the secret ${name} was not stored`)
  return keyring.open(purpose, name, sealed)
}
