/**
 * Personal access tokens (contract section 6): created and changed by a login of their owner. They grant the
 * intersection of their scopes and the permissions of the owner. `access/scoped-access.ts` and `access/route-rules.ts`
 * check scopes.
 */
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { createFactCache } from '#core/fact-cache.ts'
import type { FactCache } from '#core/fact-cache.ts'
import { isId, newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { parseDurationMs } from '#core/time.ts'
import { ANY_CHANGE, createScopeSet } from '../access/index.ts'
import type { AccessPolicy, Origin, ScopeSet, UserPrincipal } from '../access/index.ts'
import type { Journal, Recorder } from '../journal/index.ts'
import type { UseRecorder } from '../tokens/index.ts'
import { hashToken, isHashOf, requireLiveLogin } from '../tokens/index.ts'
import { allOf, contains } from '../listing/index.ts'
import type { PatRecord, ScopeRecord } from './record.ts'
import type { PatFacts } from './repository.ts'
import {
  countPats,
  countScopes,
  deletePats,
  deleteScopes,
  findPat,
  findPatFacts,
  insertPat,
  insertScopes,
  listPats,
  listScopes,
  lockPatsOf,
  ofStatus,
  updatePat,
} from './repository.ts'
import type { NewPat, NewScope, PatQuery, ScopeQuery } from './schema.ts'
import { resolveScopes } from './scope-targets.ts'
import { newPatSecret, parsePatSecret } from './secret.ts'

export type PatWithSecret = { pat: PatRecord; secret: string }

export type PatsDeps = { database: Database; journal: Journal; access: AccessPolicy; uses: UseRecorder }

/** Maximum number of tokens of one user, including expired and revoked ones. */
export const MAX_PATS_PER_USER = 1000
/** Maximum number of scopes of one token. */
export const MAX_SCOPES_PER_PAT = 1000
const MAX_LIFETIME_MS = 100 * 365 * 86_400_000
/** Maximum number of cached tokens. */
const MAX_FACTS = 20_000

const BAD_TOKEN = 'failed to perform authentication: missing or invalid bearer'

type KnownPat = Omit<PatFacts, 'scopes'> & { scope: ScopeSet }

const notFound = () => new ServiceError('not_found', 'entity not found')

const entry = (
  operation: string,
  caller: UserPrincipal,
  pat: { key: number; id: string },
  attributes: object = {},
) => ({
  operation,
  entityKeys: [pat.key, caller.key],
  attributes: { id: pat.id, user_id: caller.id, ...attributes },
})

export class PatsService {
  readonly #database: Database
  readonly #journal: Journal
  readonly #access: AccessPolicy
  readonly #uses: UseRecorder
  readonly #facts: FactCache<KnownPat | 'none'>

  constructor({ database, journal, access, uses }: PatsDeps) {
    this.#database = database
    this.#journal = journal
    this.#access = access
    this.#uses = uses
    this.#facts = createFactCache({ maxEntries: MAX_FACTS, isFresh: journal.isFresh })
  }

  /** Throws `malformed` for an invalid duration, `unprocessable` for a user with the maximum number of tokens. */
  async create(caller: UserPrincipal, input: NewPat): Promise<PatWithSecret> {
    const lifetimeSeconds = parseLifetimeSeconds(input.duration)
    const id = newId()
    const secret = newPatSecret(caller.id, id)
    const pat = await this.#journal.change(caller, async (tx, record) => {
      const { name, description = '' } = input
      const row = { id, userKey: caller.key, name, description, secretHash: hashToken(secret), lifetimeSeconds }
      await requireLiveLogin(tx, caller)
      const created = await insertPat(tx, row, MAX_PATS_PER_USER)
      if (created === undefined)
        throw new ServiceError(
          'unprocessable',
          `a user is limited to ${MAX_PATS_PER_USER} personal access tokens: delete one first`,
        )
      record(entry('pat.create', caller, created, { name, description, expires_at: created.expiresAt }))
      return created
    })
    return { pat, secret }
  }

  async list(caller: UserPrincipal, query: PatQuery): Promise<Page<PatRecord>> {
    const conditions: Sql<boolean>[] = [sql<boolean>`p.user_key = ${caller.key}`]
    if (query.name !== undefined) conditions.push(contains('p.name', query.name))
    if (query.id !== undefined) conditions.push(isId(query.id) ? sql<boolean>`p.id = ${query.id}` : sql<boolean>`false`)
    if (query.status !== 'all') conditions.push(ofStatus(query.status))
    const where = allOf(conditions)
    const { offset, limit, cursor, dir = 'desc' } = query
    const [total, page] = await Promise.all([
      countPats(this.#database.db, where),
      listPats(this.#database.db, { where, dir, offset, limit, cursor }),
    ])
    return { total, offset, limit, ...page }
  }

  /** Returns a token of the caller. Throws `not_found` for any other id. */
  get(caller: UserPrincipal, id: string): Promise<PatRecord> {
    return this.#requirePat(caller, id)
  }

  update(caller: UserPrincipal, id: string, fields: { name?: string; description?: string }): Promise<PatRecord> {
    return this.#change(caller, id, async (tx, pat, record) => {
      await updatePat(tx, pat.key, fields)
      const before = Object.fromEntries(Object.keys(fields).map((name) => [name, pat[name as 'name']]))
      record(entry('pat.update', caller, pat, { before, after: fields }))
    })
  }

  /** Replaces the secret and the lifetime. The old secret is invalid immediately. */
  async resetSecret(caller: UserPrincipal, id: string, duration: string): Promise<PatWithSecret> {
    const lifetimeSeconds = parseLifetimeSeconds(duration)
    const secret = newPatSecret(caller.id, id)
    const pat = await this.#change(caller, id, async (tx, found, record) => {
      await updatePat(tx, found.key, { secret: { hash: hashToken(secret), lifetimeSeconds } })
      record(entry('pat.reset_secret', caller, found))
    })
    return { pat, secret }
  }

  async revoke(caller: UserPrincipal, id: string): Promise<void> {
    await this.#change(caller, id, async (tx, pat, record) => {
      if (pat.revokedAt !== null) return
      await updatePat(tx, pat.key, { isRevoked: true })
      record(entry('pat.revoke_secret', caller, pat))
    })
  }

  async remove(caller: UserPrincipal, id: string): Promise<void> {
    if (!isId(id)) throw notFound()
    await this.#journal.change(caller, async (tx, record) => {
      const pat = await findPat(tx, caller.key, id, { forUpdate: true })
      if (pat === undefined) throw notFound()
      await deletePats(tx, [pat.key])
      record(entry('pat.remove', caller, pat))
    })
  }

  async removeAll(caller: UserPrincipal): Promise<void> {
    await this.#journal.change(caller, async (tx, record) => {
      const pats = await lockPatsOf(tx, caller.key)
      if (pats.length === 0) return
      const keys = pats.map((pat) => pat.key)
      await deletePats(tx, keys)
      record({
        operation: 'pat.remove_all',
        entityKeys: [...keys, caller.key],
        attributes: { ids: pats.map((pat) => pat.id), user_id: caller.id },
      })
    })
  }

  /**
   * Adds all scopes or none. Throws `malformed` for an inconsistent scope, `forbidden` for a domain that the owner may
   * not enter, `unprocessable` for an entity without `read`, `conflict` for a scope that the token already has.
   */
  async addScopes(caller: UserPrincipal, id: string, scopes: readonly NewScope[]): Promise<ScopeRecord[]> {
    const pat = await this.#requirePat(caller, id)
    const rows = await resolveScopes({ db: this.#database.db, access: this.#access }, caller, scopes)
    await this.#change(caller, id, async (tx, _pat, record) => {
      await insertScopes(tx, pat.key, rows)
      if ((await countScopes(tx, pat.key)) > MAX_SCOPES_PER_PAT)
        throw new ServiceError('unprocessable', `a personal access token is limited to ${MAX_SCOPES_PER_PAT} scopes`)
      record(entry('pat.add_scope', caller, pat, { scopes: rows.map(attributesOfScope) }))
    })
    return rows.map(({ domainKey: _domain, entityKey: _entity, ...row }) => ({ ...row, patId: pat.id }))
  }

  async listScopes(caller: UserPrincipal, id: string, query: ScopeQuery): Promise<Page<ScopeRecord>> {
    const pat = await this.#requirePat(caller, id)
    const { offset, limit } = query
    const [total, page] = await Promise.all([
      countScopes(this.#database.db, pat.key),
      listScopes(this.#database.db, pat.key, query),
    ])
    return { total, offset, limit, ...page }
  }

  /** Removing a missing scope is not an error. Without ids it removes all scopes. */
  async removeScopes(caller: UserPrincipal, id: string, scopeIds: readonly string[] | undefined): Promise<void> {
    const known = scopeIds?.filter(isId)
    await this.#change(caller, id, async (tx, pat, record) => {
      const removed = await deleteScopes(tx, pat.key, known)
      if (removed.length > 0) record(entry('pat.remove_scope', caller, pat, { scopes_id: removed }))
    })
  }

  /** Returns the principal of a token, with its scopes. Throws `unauthenticated`. */
  async authenticate(text: string, origin: Origin): Promise<UserPrincipal> {
    const named = parsePatSecret(text)
    if (named === undefined) throw new ServiceError('unauthenticated', BAD_TOKEN)
    const pat = await this.#facts.get(named.patId, async () => {
      const found = await findPatFacts(this.#database.db, named.patId)
      if (found === undefined) return { value: 'none', dependsOn: [ANY_CHANGE] }
      const { scopes, ...rest } = found
      return { value: { ...rest, scope: createScopeSet(scopes) }, dependsOn: [found.key, found.userKey] }
    })
    const isGood =
      pat !== 'none' &&
      isHashOf(text, pat.secretHash) &&
      !pat.isRevoked &&
      pat.expiresAtMs > Date.now() &&
      pat.userStatus === 'enabled'
    if (!isGood) throw new ServiceError('unauthenticated', BAD_TOKEN)
    this.#uses.used('pats', pat.id)
    return {
      kind: 'user',
      key: pat.userKey,
      id: pat.userId,
      // A personal access token is never a platform administrator: it could create a login without scopes.
      isPlatformAdmin: false,
      boundDomainKey: undefined,
      credential: 'pat',
      scope: pat.scope,
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

  async #requirePat(caller: UserPrincipal, id: string): Promise<PatRecord> {
    const pat = isId(id) ? await findPat(this.#database.db, caller.key, id) : undefined
    if (pat === undefined) throw notFound()
    return pat
  }

  /** Changes one token in a transaction that locks it, and returns the changed token. */
  async #change(
    caller: UserPrincipal,
    id: string,
    work: (tx: Transaction, pat: PatRecord, record: Recorder) => Promise<void>,
  ): Promise<PatRecord> {
    if (!isId(id)) throw notFound()
    return await this.#journal.change(caller, async (tx, record) => {
      await requireLiveLogin(tx, caller)
      const pat = await findPat(tx, caller.key, id, { forUpdate: true })
      if (pat === undefined) throw notFound()
      await work(tx, pat, record)
      const changed = await findPat(tx, caller.key, id)
      if (changed === undefined) throw notFound()
      return changed
    })
  }
}

function parseLifetimeSeconds(duration: string): number {
  const lifetimeMs = parseDurationMs(duration, '/duration')
  if (lifetimeMs >= 1000 && lifetimeMs <= MAX_LIFETIME_MS) return lifetimeMs / 1000
  throw refusedField('/duration', 'must be between 1s and 100 years')
}

function attributesOfScope(scope: Pick<ScopeRecord, 'id' | 'type' | 'operation' | 'domainId' | 'entityId'>) {
  return {
    id: scope.id,
    entity_type: scope.type,
    operation: scope.operation,
    domain_id: scope.domainId,
    entity_id: scope.entityId ?? '*',
  }
}
