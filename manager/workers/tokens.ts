/**
 * The platform's join token: created once and stored sealed in the database, so that every manager and the local worker
 * use the same one. The table of tokens that workers are checked against has only its digest.
 */
import type { Database } from '#core/database/index.ts'
import { newToken } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { sql } from '#core/sql.ts'
import { digestSecret } from '../model/worker-secret.ts'

const SECRET_NAME = 'worker_join_token'
const PURPOSE = 'worker token'

/** The token of the installation. A configured one replaces the stored one. */
export async function ensureJoinToken(
  database: Database,
  keyring: Keyring,
  configured: string | undefined,
): Promise<string> {
  return await database.transaction(async (tx) => {
    const candidate = configured ?? newToken()
    const seal = keyring.seal(PURPOSE, SECRET_NAME, candidate)
    await sql`INSERT INTO sealed_secrets (name, sealed) VALUES (${SECRET_NAME}, ${seal})
      ON CONFLICT ON CONSTRAINT sealed_secrets_pkey DO NOTHING`.execute(tx)
    const { rows } = await sql<{
      sealed: Buffer
    }>`SELECT sealed FROM sealed_secrets WHERE name = ${SECRET_NAME} FOR UPDATE`.execute(tx)
    const stored = rows[0]
    if (stored === undefined) throw new Error('the join token was not stored')
    const current = keyring.open(PURPOSE, SECRET_NAME, stored.sealed)
    const token = configured ?? current
    if (token !== current) {
      await sql`UPDATE sealed_secrets SET sealed = ${seal} WHERE name = ${SECRET_NAME}`.execute(tx)
      await sql`DELETE FROM worker_tokens WHERE token_hash = ${digestSecret(current)}`.execute(tx)
    }
    await sql`INSERT INTO worker_tokens (token_hash) VALUES (${digestSecret(token)})
      ON CONFLICT ON CONSTRAINT worker_tokens_hash_key DO NOTHING`.execute(tx)
    return token
  })
}
