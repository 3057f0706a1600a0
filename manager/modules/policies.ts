/** The signature policy of a domain for its modules. No row: no signatures are required. */
import { createPublicKey } from 'node:crypto'
import { BoundedCache } from '#core/bounded-cache.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { TaskCaller } from '../access/access.ts'
import { actorOf } from '../access/callers.ts'
import { domainRecord, writeRecords } from '../store/journal.ts'

export type ModulePolicy = {
  signatures: 'off' | 'warn' | 'require'
  /** Public keys, PEM. */
  keys: readonly string[]
}

export const NO_POLICY: ModulePolicy = { signatures: 'off', keys: [] }
const CACHE_TTL_MS = 1_000
const MAX_CACHED_POLICIES = 1_000
const PUBLIC_KEY =
  /^\s*-----BEGIN (?:RSA )?PUBLIC KEY-----\r?\n[A-Za-z0-9+/=\r\n]+-----END (?:RSA )?PUBLIC KEY-----\s*$/
const KEY_TYPES = new Set(['ec', 'ed25519', 'rsa'])

export class ModulePolicies {
  readonly #database: Database
  readonly #remembered = new BoundedCache<string, ModulePolicy>({ maxEntries: MAX_CACHED_POLICIES, ttl: CACHE_TTL_MS })

  constructor(database: Database) {
    this.#database = database
  }

  /** The policy, at most a second old; null: of tasks of no domain. */
  async find(domainId: string | null): Promise<ModulePolicy> {
    const known = this.#remembered.get(domainId ?? '')
    if (known !== undefined) return known
    const { rows } = await sql<ModulePolicy>`
        SELECT p.signatures, p.keys FROM module_policies p LEFT JOIN domains d ON d.key = p.domain_key
        WHERE (p.domain_key IS NULL AND ${domainId}::uuid IS NULL) OR d.id = ${domainId}::uuid`.execute(
      this.#database.db,
    )
    const policy = rows[0] ?? NO_POLICY
    this.#remembered.set(domainId ?? '', policy)
    return policy
  }

  /** Throws `malformed` with the invalid key. */
  async set(
    domain: { key: number; id: string } | null,
    { signatures, keys }: ModulePolicy,
    caller: TaskCaller,
  ): Promise<void> {
    keys.forEach(requirePublicKey)
    if (signatures !== 'off' && keys.length === 0) {
      throw refuse('/keys', `must contain at least one public key when signatures is ${signatures}`)
    }
    await this.#database.transaction(async (tx) => {
      await sql`
          INSERT INTO module_policies (domain_key, signatures, keys) VALUES (${domain?.key ?? null}, ${signatures}, ${[...keys]}::text[])
          ON CONFLICT ON CONSTRAINT module_policies_domain_key
          DO UPDATE SET signatures = excluded.signatures, keys = excluded.keys, updated_at = now()`.execute(tx)
      const change = { operation: 'module.update_policy', attributes: { signatures, keys_total: keys.length } }
      await writeRecords(tx, [domainRecord(actorOf(caller), domain?.key ?? null, change)])
    })
    this.#remembered.delete(domain?.id ?? '')
  }
}

// A private key would be accepted for its public part, and stored.
function requirePublicKey(pem: string, index: number): void {
  try {
    if (PUBLIC_KEY.test(pem) && KEY_TYPES.has(createPublicKey(pem).asymmetricKeyType ?? '')) return
  } catch {
    // said below
  }
  throw refuse(`/keys/${index}`, 'must be a public key in PEM: ECDSA, RSA or Ed25519')
}

function refuse(path: string, message: string): ServiceError {
  return new ServiceError('malformed', `${path.slice(1)} ${message}`, { details: [{ path, message }] })
}
