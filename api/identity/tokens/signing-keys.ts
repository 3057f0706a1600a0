/**
 * The Ed25519 keys that sign tokens: made at the first start, kept sealed in the database, shared by every node. A rotation
 * logs nobody out: the new key signs from then on, an old one verifies until the last token that it signed has expired.
 * Other nodes learn of a rotation by the journal; one that meets an unknown key id looks at once.
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync } from 'node:crypto'
import type { KeyObject } from 'node:crypto'
import type { Database, Queryable } from '#core/database/index.ts'
import { newToken } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { sql } from '#core/sql.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import type { Actor, Journal } from '../journal/index.ts'

export type SigningKeysDeps = {
  database: Database
  keyring: Keyring
  journal: Journal
  /** The longest that a token signed here may live. */
  maxTokenMs: number
  /** A key that is older is replaced; 0: never by itself. */
  keyLifetimeMs: number
}

const SEAL_PURPOSE = 'signing key'
const KID_BYTES = 12
/** Two nodes that start or rotate at once must not each make a key. */
const CREATE_LOCK = 0x5ce1_0002
/** What the journal says has changed when a key is made: no entity has this key. */
const SIGNING_KEYS_CHANGED = -1
/** Unknown key ids make one look at the database in this time. */
const LOOK_INTERVAL_MS = 1000
/** How often the age of the present key is looked at, and retired ones are forgotten. */
const UPKEEP_INTERVAL_MS = 600_000
/** What clocks of nodes may differ by: so much longer a retired key verifies. */
const CLOCK_MARGIN_SECONDS = 60

type Row = { kid: string; public_key: Buffer; sealed_private_key: Buffer; retired_at: string | null }
type Loaded = { signing: { kid: string; privateKey: KeyObject }; publicKeys: ReadonlyMap<string, KeyObject> }

/** Retired, every session token that it signed has ended, and no API key of it is left. */
const IS_OVER = sql`retired_at + make_interval(secs => max_token_seconds + ${CLOCK_MARGIN_SECONDS}) < now()
  AND NOT EXISTS (SELECT 1 FROM api_keys a WHERE a.kid = signing_keys.kid AND (a.expires_at IS NULL OR a.expires_at > now()))`

const lock = (db: Queryable) => sql`SELECT pg_advisory_xact_lock(${CREATE_LOCK})`.execute(db)

export class SigningKeys {
  readonly #deps: SigningKeysDeps
  readonly #stopping = new AbortController()
  readonly #upkeep: Promise<void>
  #loaded: Loaded
  #lookedAtMs = -Infinity
  /** Counts who asked for a reload: one that began before the last of them is followed by another. */
  #wanted = 0
  #loading: Promise<void> | undefined

  private constructor(deps: SigningKeysDeps, loaded: Loaded) {
    this.#deps = deps
    this.#loaded = loaded
    this.#upkeep = this.#upkeepLoop()
  }

  /** Makes the first key where there is none. Rejects when a key was sealed with another key of the installation. */
  static async start(deps: SigningKeysDeps): Promise<SigningKeys> {
    await deps.database.transaction(async (tx) => {
      await lock(tx)
      const seconds = maxTokenSeconds(deps)
      const { rows } = await sql`UPDATE signing_keys SET max_token_seconds = greatest(max_token_seconds, ${seconds})
        WHERE retired_at IS NULL RETURNING kid`.execute(tx)
      if (rows.length === 0) await insertKey(tx, deps)
    })
    return new SigningKeys(deps, await load(deps))
  }

  current(): { kid: string; privateKey: KeyObject } {
    return this.#loaded.signing
  }

  /** The public key of a kid, of a retired one too while it verifies; undefined: not known here. */
  publicKeyOf(kid: string): KeyObject | undefined {
    return this.#loaded.publicKeys.get(kid)
  }

  /** Looks in the database for a key that is not known here; at most once a second, however many ask. */
  async lookFor(kid: string): Promise<void> {
    if (this.#loaded.publicKeys.has(kid)) return
    const nowMs = monotonicMs()
    if (nowMs - this.#lookedAtMs >= LOOK_INTERVAL_MS) {
      this.#lookedAtMs = nowMs
      await this.#reload()
    } else await this.#loading
  }

  /** `/keys/.well-known/jwks.json` (RFC 7517, RFC 8037). */
  jwks(): { keys: { kty: string; kid: string; alg: string; crv: string; x: string }[] } {
    return {
      keys: [...this.#loaded.publicKeys].map(([kid, key]) => {
        const { kty, crv, x } = key.export({ format: 'jwk' }) as { kty: string; crv: string; x: string }
        return { kty, kid, alg: 'EdDSA', crv, x }
      }),
    }
  }

  /** Signs with a new key from now on, and gives its kid. With `ifOlderThanMs` only when the present one is that old. */
  async rotate(actor: Actor, options?: { ifOlderThanMs: number }): Promise<string> {
    const kid = await this.#deps.journal.change(actor, async (tx, record) => {
      await lock(tx)
      const { rows } = await sql<{
        kid: string
        age_ms: number
      }>`SELECT kid, (extract(epoch FROM now() - created_at) * 1000)::float8 AS age_ms FROM signing_keys WHERE retired_at IS NULL`.execute(
        tx,
      )
      const [present] = rows
      if (present !== undefined && options !== undefined && present.age_ms < options.ifOlderThanMs) return present.kid
      // A retired key signs nothing any more, wherever a copy of the database goes.
      await sql`UPDATE signing_keys SET retired_at = now(), sealed_private_key = '' WHERE retired_at IS NULL`.execute(
        tx,
      )
      const made = await insertKey(tx, this.#deps)
      record({
        operation: 'signing_key.rotate',
        entityKeys: [SIGNING_KEYS_CHANGED],
        attributes: { kid: made, retired: rows.map((row) => row.kid) },
      })
      return made
    })
    await this.#reload()
    return kid
  }

  forget(entityKeys: readonly number[]): void {
    if (entityKeys.includes(SIGNING_KEYS_CHANGED)) this.clear()
  }

  /** What could not be read now is read when a token with an unknown key comes, or with the next upkeep. */
  clear(): void {
    this.#reload().catch(() => undefined)
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#upkeep
    await this.#loading?.catch(() => undefined)
  }

  /** Loads once more when something changed while it was loading. Rejects while the database is away. */
  #reload(): Promise<void> {
    this.#wanted += 1
    this.#loading ??= (async () => {
      try {
        for (let done = -1; done !== this.#wanted;) {
          done = this.#wanted
          this.#loaded = await load(this.#deps)
        }
      } finally {
        this.#loading = undefined
      }
    })()
    return this.#loading
  }

  async #upkeepLoop(): Promise<void> {
    const { database, keyLifetimeMs } = this.#deps
    while (!this.#stopping.signal.aborted) {
      if (keyLifetimeMs > 0) await this.rotate('system', { ifOlderThanMs: keyLifetimeMs }).catch(() => undefined)
      await sql`DELETE FROM signing_keys WHERE retired_at IS NOT NULL AND ${IS_OVER}`
        .execute(database.db)
        .catch(() => undefined)
      await this.#reload().catch(() => undefined)
      await sleep(UPKEEP_INTERVAL_MS, this.#stopping.signal).catch(() => undefined)
    }
  }
}

const maxTokenSeconds = ({ maxTokenMs }: SigningKeysDeps) => Math.ceil(maxTokenMs / 1000)

async function insertKey(db: Queryable, deps: SigningKeysDeps): Promise<string> {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519')
  const kid = newToken(KID_BYTES)
  const sealed = deps.keyring.seal(SEAL_PURPOSE, kid, privateKey.export({ format: 'pem', type: 'pkcs8' }).toString())
  await sql`INSERT INTO signing_keys (kid, public_key, sealed_private_key, max_token_seconds)
    VALUES (${kid}, ${publicKey.export({ format: 'der', type: 'spki' })}, ${sealed}, ${maxTokenSeconds(deps)})`.execute(
    db,
  )
  return kid
}

async function load({ database, keyring }: SigningKeysDeps): Promise<Loaded> {
  const { rows } =
    await sql<Row>`SELECT kid, public_key, sealed_private_key, retired_at FROM signing_keys WHERE retired_at IS NULL OR NOT (${IS_OVER})
      ORDER BY created_at DESC`.execute(database.db)
  const signing = rows.find((row) => row.retired_at === null)
  if (signing === undefined) throw new Error('no signing key in the database')
  const privateKey = createPrivateKey(keyring.open(SEAL_PURPOSE, signing.kid, signing.sealed_private_key))
  const publicKeys = rows.map(
    (row) => [row.kid, createPublicKey({ key: row.public_key, format: 'der', type: 'spki' })] as const,
  )
  return { signing: { kid: signing.kid, privateKey }, publicKeys: new Map(publicKeys) }
}
