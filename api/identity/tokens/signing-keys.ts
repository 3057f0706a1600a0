/**
 * The Ed25519 keys that sign tokens: created at the first start, sealed in the database, shared by all nodes. After a
 * rotation the new key signs, and the old one verifies until the last token that it signed has expired, so no user is
 * logged out. Other nodes learn of a rotation from the journal. A node that gets an unknown key id reads the database
 * immediately.
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync } from 'node:crypto'
import type { KeyObject } from 'node:crypto'
import type { Database, Queryable } from '#core/database/index.ts'
import { newToken } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'
import { startPeriodicRounds } from '#core/rounds.ts'
import type { PeriodicRounds } from '#core/rounds.ts'
import { sql } from '#core/sql.ts'
import { monotonicMs } from '#core/time.ts'
import type { Actor, Journal } from '../journal/index.ts'

export type SigningKeysDeps = {
  database: Database
  keyring: Keyring
  journal: Journal
  /** Maximum lifetime of a token that this process signs. */
  maxTokenMs: number
  /** Age at which a key is replaced. 0 disables automatic rotation. */
  keyLifetimeMs: number
}

const SEAL_PURPOSE = 'signing key'
const KID_BYTES = 12
/** Advisory lock, so that two nodes do not create keys concurrently. */
const CREATE_LOCK = 0x5ce1_0002
/** Key in the journal entry of a new signing key. No entity has this key. */
const SIGNING_KEYS_CHANGED = -1
/** Minimum interval between look-ups for unknown key ids. */
const LOOK_INTERVAL_MS = 1000
/** Interval of rotation checks and of the removal of expired keys. */
const UPKEEP_INTERVAL_MS = 600_000
/** Tolerated clock skew between nodes: retired keys verify for this time longer. */
const CLOCK_MARGIN_SECONDS = 60

type Row = { kid: string; public_key: Buffer; sealed_private_key: Buffer; retired_at: string | null }
type Loaded = { signing: { kid: string; privateKey: KeyObject }; publicKeys: ReadonlyMap<string, KeyObject> }

/** Condition: the key is retired, every session token that it signed has expired, and no API key of it remains. */
const IS_OVER = sql`retired_at + make_interval(secs => max_token_seconds + ${CLOCK_MARGIN_SECONDS}) < now()
  AND NOT EXISTS (SELECT 1 FROM api_keys a WHERE a.kid = signing_keys.kid AND (a.expires_at IS NULL OR a.expires_at > now()))`

const lock = (db: Queryable) => sql`SELECT pg_advisory_xact_lock(${CREATE_LOCK})`.execute(db)

export class SigningKeys {
  readonly #deps: SigningKeysDeps
  readonly #upkeep: PeriodicRounds
  #loaded: Loaded
  #lookedAtMs = -Infinity
  /** Number of requested reloads. A reload that began before the last request is repeated. */
  #wanted = 0
  #loading: Promise<void> | undefined

  private constructor(deps: SigningKeysDeps, loaded: Loaded) {
    this.#deps = deps
    this.#loaded = loaded
    this.#upkeep = startPeriodicRounds({
      firstPauseMs: 0,
      pauseMs: UPKEEP_INTERVAL_MS,
      round: () => this.#maintain(),
      onFailure: () => undefined,
    })
  }

  /** Creates the first key if there is none. Rejects when a key was sealed with another secret key. */
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

  /** Returns the public key of a kid, also of a retired one that still verifies. Undefined for an unknown kid. */
  publicKeyOf(kid: string): KeyObject | undefined {
    return this.#loaded.publicKeys.get(kid)
  }

  /** Reads the database for an unknown key, at most once a second. */
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

  /**
   * Replaces the signing key and returns the kid of the current one. If `ifOlderThanMs` is given, the key is replaced only if it is older
   * than that.
   */
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
      // The private key is erased, so that copies of the database cannot sign with a retired key.
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

  invalidate(entityKeys: readonly number[]): void {
    if (entityKeys.includes(SIGNING_KEYS_CHANGED)) this.invalidateAll()
  }

  /** After an error, the next token with an unknown key or the next upkeep reads the keys. */
  invalidateAll(): void {
    this.#reload().catch(() => undefined)
  }

  async stop(): Promise<void> {
    await this.#upkeep.stop()
    await this.#loading?.catch(() => undefined)
  }

  /** Repeats the load when a change arrived while it was running. Rejects while the database is unavailable. */
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

  async #maintain(): Promise<void> {
    const { database, keyLifetimeMs } = this.#deps
    if (keyLifetimeMs > 0) await this.rotate('system', { ifOlderThanMs: keyLifetimeMs }).catch(() => undefined)
    await sql`DELETE FROM signing_keys WHERE retired_at IS NOT NULL AND ${IS_OVER}`
      .execute(database.db)
      .catch(() => undefined)
    await this.#reload().catch(() => undefined)
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
