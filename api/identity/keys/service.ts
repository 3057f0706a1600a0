/**
 * API keys (contract section 6): tokens for programs, without a session. A key is a JWT like an access token, but it is
 * valid only while its row exists with its hash, so that deleting the row revokes it.
 */
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { createFactCache } from '#core/fact-cache.ts'
import type { FactCache } from '#core/fact-cache.ts'
import { isId, newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import { ANY_CHANGE } from '../access/any-change.ts'
import type { Origin, UserPrincipal } from '../access/index.ts'
import type { Journal } from '../journal/index.ts'
import type { SigningKeys, UseRecorder } from '../tokens/index.ts'
import { TOKEN_TYPE, hashToken, isHashOf, newClaims, requireLiveLogin, signToken } from '../tokens/index.ts'
import type { ApiKeyFacts, ApiKeyRecord } from './repository.ts'
import {
  countApiKeys,
  deleteApiKey,
  findApiKey,
  findApiKeyFacts,
  findDomainId,
  insertApiKey,
  listApiKeys,
} from './repository.ts'
import type { ApiKeyQuery, NewApiKey } from './schema.ts'

export type ApiKeysDeps = { database: Database; journal: Journal; keys: SigningKeys; uses: UseRecorder }

/** Maximum number of keys of one user, including those that expired in the last month. */
export const MAX_KEYS_PER_USER = 1000
/** Maximum number of cached keys. */
const MAX_FACTS = 20_000

const notFound = () => new ServiceError('not_found', 'entity not found')

export class ApiKeysService {
  readonly #database: Database
  readonly #journal: Journal
  readonly #keys: SigningKeys
  readonly #uses: UseRecorder
  readonly #facts: FactCache<ApiKeyFacts | 'none'>

  constructor({ database, journal, keys, uses }: ApiKeysDeps) {
    this.#database = database
    this.#journal = journal
    this.#keys = keys
    this.#uses = uses
    this.#facts = createFactCache({ maxEntries: MAX_FACTS, isFresh: journal.isFresh })
  }

  /**
   * A key that is created with a token that is bound to a domain is bound to it too (decision 40). Throws
   * `unprocessable` for too many keys.
   */
  async create(caller: UserPrincipal, input: NewApiKey): Promise<{ apiKey: ApiKeyRecord; value: string }> {
    const id = newId()
    const issuedAtSeconds = Math.floor(Date.now() / 1000)
    const lifetimeSeconds = input.duration === 0 ? undefined : input.duration
    const { kid, privateKey } = this.#keys.current()
    const { boundDomainKey } = caller
    const domainId = boundDomainKey === undefined ? undefined : await findDomainId(this.#database.db, boundDomainKey)
    const claims = newClaims(
      {
        jti: id,
        sub: caller.id,
        type: TOKEN_TYPE.apiKey,
        role: caller.isPlatformAdmin ? 'admin' : 'user',
        ...(domainId === undefined ? {} : { domain: domainId }),
      },
      issuedAtSeconds,
      lifetimeSeconds,
    )
    const value = signToken(claims, kid, privateKey)
    const apiKey = await this.#journal.change(caller, async (tx, record) => {
      await requireLiveLogin(tx, caller)
      const created = await insertApiKey(
        tx,
        {
          id,
          userKey: caller.key,
          domainKey: boundDomainKey,
          tokenHash: hashToken(value),
          kid,
          issuedAtSeconds,
          expiresAtSeconds: lifetimeSeconds === undefined ? undefined : issuedAtSeconds + lifetimeSeconds,
        },
        MAX_KEYS_PER_USER,
      )
      if (created === undefined)
        throw new ServiceError('unprocessable', `a user is limited to ${MAX_KEYS_PER_USER} API keys: delete one first`)
      record({
        operation: 'api_key.create',
        entityKeys: [created.key, caller.key],
        attributes: { id, user_id: caller.id, expires_at: created.expiresAt, domain_id: created.domainId },
      })
      return created
    })
    return { apiKey, value }
  }

  /** Returns a key of the caller, with a bound token only one of its domain. Throws `not_found` for any other id. */
  async get(caller: UserPrincipal, id: string): Promise<ApiKeyRecord> {
    const found = isId(id) ? await findApiKey(this.#database.db, ownerOf(caller), id) : undefined
    if (found === undefined) throw notFound()
    return found
  }

  async list(caller: UserPrincipal, query: ApiKeyQuery): Promise<Page<ApiKeyRecord>> {
    const { offset, limit } = query
    const [total, page] = await Promise.all([
      countApiKeys(this.#database.db, ownerOf(caller)),
      listApiKeys(this.#database.db, ownerOf(caller), query),
    ])
    return { total, offset, limit, ...page }
  }

  async remove(caller: UserPrincipal, id: string): Promise<void> {
    if (!isId(id)) throw notFound()
    await this.#journal.change(caller, async (tx, record) => {
      const key = await deleteApiKey(tx, ownerOf(caller), id)
      if (key === undefined) throw notFound()
      record({
        operation: 'api_key.remove',
        entityKeys: [key, caller.key],
        attributes: { id, user_id: caller.id },
      })
    })
  }

  /** Returns the user of a key whose signature and expiry were already verified. Throws `unauthenticated`. */
  async authenticate(id: string, text: string, origin: Origin): Promise<UserPrincipal> {
    const apiKey = isId(id)
      ? await this.#facts.get(id, async () => {
          const found = await findApiKeyFacts(this.#database.db, id)
          if (found === undefined) return { value: 'none', dependsOn: [ANY_CHANGE] }
          const domain = found.domainKey === null ? [] : [found.domainKey]
          return { value: found, dependsOn: [found.key, found.userKey, ...domain] }
        })
      : 'none'
    if (apiKey === 'none' || apiKey.userStatus !== 'enabled' || !isHashOf(text, apiKey.tokenHash))
      throw new ServiceError('unauthenticated', 'failed to perform authentication: missing or invalid bearer')
    this.#uses.used('api_keys', apiKey.id)
    return {
      kind: 'user',
      key: apiKey.userKey,
      id: apiKey.userId,
      isPlatformAdmin: apiKey.userRole === 'admin',
      boundDomainKey: apiKey.domainKey ?? undefined,
      credential: 'api_key',
      scope: undefined,
      sessionId: undefined,
      origin,
    }
  }

  invalidate(entityKeys: readonly number[]): void {
    this.#facts.invalidate(entityKeys)
  }

  invalidateAll(): void {
    this.#facts.invalidateAll()
  }
}

const ownerOf = (caller: UserPrincipal) => ({ userKey: caller.key, domainKey: caller.boundDomainKey })
