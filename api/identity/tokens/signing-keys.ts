/** The Ed25519 keys that sign tokens: made at the first start, kept sealed in the database, shared by every node. */
import { createPrivateKey, createPublicKey, generateKeyPairSync } from 'node:crypto'
import type { KeyObject } from 'node:crypto'
import { sql } from 'kysely'
import type { Database } from '#core/database/index.ts'
import { newToken } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'

export type SigningKeys = {
  readonly current: { kid: string; privateKey: KeyObject }
  /** The public key of a kid, of retired keys too; undefined: not ours. */
  publicKeyOf(kid: string): KeyObject | undefined
  /** `/keys/.well-known/jwks.json` (RFC 7517, RFC 8037). */
  jwks(): { keys: { kty: string; kid: string; alg: string; crv: string; x: string }[] }
}

const SEAL_PURPOSE = 'signing key'
const KID_BYTES = 12
/** Two nodes that start at once must not each make a key. */
const CREATE_LOCK = 0x5ce1_0002

type Row = { kid: string; public_key: Buffer; sealed_private_key: Buffer; retired_at: string | null }

export async function loadSigningKeys(database: Database, keyring: Keyring): Promise<SigningKeys> {
  const rows = await database.transaction(async (tx) => {
    await sql`SELECT pg_advisory_xact_lock(${CREATE_LOCK})`.execute(tx)
    const read = async () =>
      (
        await sql<Row>`SELECT kid, public_key, sealed_private_key, retired_at FROM signing_keys ORDER BY created_at DESC`.execute(
          tx,
        )
      ).rows
    const found = await read()
    if (found.some((row) => row.retired_at === null)) return found
    const { publicKey, privateKey } = generateKeyPairSync('ed25519')
    const kid = newToken(KID_BYTES)
    const sealed = keyring.seal(SEAL_PURPOSE, kid, privateKey.export({ format: 'pem', type: 'pkcs8' }).toString())
    await sql`INSERT INTO signing_keys (kid, public_key, sealed_private_key)
      VALUES (${kid}, ${publicKey.export({ format: 'der', type: 'spki' })}, ${sealed})`.execute(tx)
    return await read()
  })
  const publicKeys = new Map(
    rows.map((row) => [row.kid, createPublicKey({ key: row.public_key, format: 'der', type: 'spki' })]),
  )
  const signing = rows.find((row) => row.retired_at === null) as Row
  return {
    current: {
      kid: signing.kid,
      privateKey: createPrivateKey(keyring.open(SEAL_PURPOSE, signing.kid, signing.sealed_private_key)),
    },
    publicKeyOf: (kid) => publicKeys.get(kid),
    jwks: () => ({
      keys: [...publicKeys].map(([kid, key]) => {
        const { kty, crv, x } = key.export({ format: 'jwk' }) as { kty: string; crv: string; x: string }
        return { kty, kid, alg: 'EdDSA', crv, x }
      }),
    }),
  }
}
