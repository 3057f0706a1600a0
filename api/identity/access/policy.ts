/**
 * The access policy of every transport (contract sections 2.4, 2.5 and decision 45). It denies by default: without a
 * role there is no access. An entity without `read` looks exactly like an unknown one.
 */
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { createFactCache } from '#core/fact-cache.ts'
import type { FactCache } from '#core/fact-cache.ts'
import { isId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { ACTIONS } from './actions.ts'
import type { DomainAction, EntityType } from './actions.ts'
import { anyChangeIn } from './any-change.ts'
import { Accessible } from './accessible.ts'
import type { StatusCounts } from './accessible.ts'
import type { DomainAccess } from './domain-access.ts'
import { findEntitiesAnywhere, findEntity } from './entities.ts'
import type { LocatedEntity } from './entities.ts'
import { createEffectiveActions } from './effective-actions.ts'
import type { Caller, EntityFacts, EffectiveActions } from './effective-actions.ts'
import { withinScope } from './scoped-access.ts'
import type { UserPrincipal } from './principal.ts'
import type { DomainGrants } from './domain-grants.ts'
import type { GrantsPlan } from './reachable.ts'
import { accessibleRows, reachable } from './reachable.ts'

/** An entity of a path, and the caller's access to its domain. */
export type Located = { domain: DomainAccess; entity: LocatedEntity }

/** Maximum number of cached counts, one for each user, domain and type; some 200 bytes each. */
const MAX_COUNTS = 50_000

/** Maximum number of domains that one listing spans. A caller with access to more must name a domain in the path. */
const MAX_ENTERED = 200

const ALL_ACTIONS: Record<EntityType, ReadonlySet<string>> = {
  domain: new Set(ACTIONS.domain),
  group: new Set(ACTIONS.group),
  channel: new Set(ACTIONS.channel),
  client: new Set(ACTIONS.client),
}

const NOT_PERMITTED = 'failed to perform authorization: not permitted in this domain'

/** The caches of the policy. An entry is invalidated by the change that makes it stale. */
type Known = { db: Queryable; effective: EffectiveActions; counts: FactCache<StatusCounts> }

export class AccessPolicy {
  readonly #known: Known
  readonly #entered: DomainAccess | undefined

  private constructor(known: Known, entered?: DomainAccess) {
    this.#known = known
    this.#entered = entered
  }

  /** `isFresh` returns true while this process has read all changes, so that cache entries are valid. */
  static create({ database: { db }, isFresh }: { database: Database; isFresh: () => boolean }): AccessPolicy {
    const counts = createFactCache<StatusCounts>({ maxEntries: MAX_COUNTS, isFresh })
    return new AccessPolicy({ db, effective: createEffectiveActions({ db, isFresh }), counts })
  }

  /**
   * Returns the same policy for a caller who has entered the domain. Entering it again reads nothing from the database.
   */
  havingEntered(domain: DomainAccess): AccessPolicy {
    return new AccessPolicy(this.#known, domain)
  }

  /** Throws the same `forbidden` for an unknown domain and a domain that the caller may not enter. */
  async enter(principal: UserPrincipal, domainId: string): Promise<DomainAccess> {
    if (this.#entered?.domainId === domainId) return this.#entered
    const domain = isId(domainId) ? await this.#open(principal, domainId) : undefined
    if (domain === undefined) throw new ServiceError('forbidden', NOT_PERMITTED)
    return domain
  }

  /**
   * Returns every domain that the caller may enter, for paths without a domain (decision 31). Throws `unprocessable`
   * for more than `MAX_ENTERED` domains: a part of them would look like all of them.
   */
  async enterAll(principal: UserPrincipal): Promise<DomainAccess[]> {
    const { rows } = await sql<{ id: string }>`SELECT d.id FROM domains d
      WHERE d.status <> 'deleted' AND (${principal.isPlatformAdmin} OR EXISTS (
        SELECT 1 FROM grants g WHERE g.user_key = ${principal.key} AND g.domain_key = d.key AND g.entity_type = 'domain'))
        AND (${principal.boundDomainKey ?? null}::bigint IS NULL OR d.key = ${principal.boundDomainKey ?? null})
      ORDER BY d.key LIMIT ${MAX_ENTERED + 1}`.execute(this.#known.db)
    if (rows.length > MAX_ENTERED) {
      throw new ServiceError(
        'unprocessable',
        `you have access to more than ${MAX_ENTERED} domains: use the path /<domain_id>/…`,
      )
    }
    const entered = await Promise.all(rows.map(({ id }) => this.#open(principal, id)))
    return entered.filter((domain) => domain !== undefined)
  }

  /**
   * Returns the entity of a path, with a domain in the path or without (decision 31b). It checks `read` and nothing
   * else. Throws `not_found` for an unknown entity or one without `read`, `conflict` when the caller may read entities
   * with this id in several domains, `forbidden` when the caller may not enter the domain of the path.
   */
  async locate(
    principal: UserPrincipal,
    domainId: string | undefined,
    type: EntityFacts['type'],
    id: string,
  ): Promise<Located> {
    if (domainId === undefined) return await this.#locateAnywhere(principal, type, id)
    const domain = await this.enter(principal, domainId)
    const entity = isId(id) ? await findEntity(this.#known.db, domain.domainKey, type, id) : undefined
    return { domain, entity: await domain.requireOn(entity, 'read') }
  }

  /** Throws `forbidden` unless the caller is a platform administrator whose token is not bound to a domain. */
  requirePlatformAdmin(principal: UserPrincipal): void {
    // A token that is bound to a domain is valid in that domain only (decision 40).
    if (!principal.isPlatformAdmin || principal.boundDomainKey !== undefined)
      throw new ServiceError('forbidden', 'failed to perform authorization: requires a platform administrator')
  }

  /** Invalidates the cache entries that depend on these entities. */
  invalidate(entityKeys: readonly number[]): void {
    this.#known.effective.invalidate(entityKeys)
    this.#known.counts.invalidate(entityKeys)
  }

  invalidateAll(): void {
    this.#known.effective.invalidateAll()
    this.#known.counts.invalidateAll()
  }

  /** Returns the caller's access to a domain. Undefined when the caller may not enter it. */
  async #open(principal: UserPrincipal, domainId: string): Promise<DomainAccess | undefined> {
    const caller = await this.#known.effective.resolve(principal.key, domainId)
    if (caller === undefined) return undefined
    const { domainGrants } = caller
    if (principal.boundDomainKey !== undefined && principal.boundDomainKey !== domainGrants.domainKey) return undefined
    // The platform administrator may not enter a deleted domain either, until it is restored (contract 1.2).
    if (domainGrants.domainStatus === 'deleted' || (!principal.isPlatformAdmin && !isOpen(domainGrants)))
      return undefined
    return withinScope(principal, new EnteredDomain(this.#known, principal, domainId, caller))
  }

  /** Returns the only entity with this id that the caller may read in any domain (decision 31b). */
  async #locateAnywhere(principal: UserPrincipal, type: EntityFacts['type'], id: string): Promise<Located> {
    const { key, isPlatformAdmin, boundDomainKey } = principal
    const user = { key, isEverywhere: isPlatformAdmin, boundDomainKey }
    const candidates = isId(id) ? await findEntitiesAnywhere(this.#known.db, user, type, id, MAX_ENTERED) : []
    let located: Located | undefined
    for (const { domainId, entity } of candidates) {
      const domain = await this.#open(principal, domainId)
      if (domain === undefined || !(await domain.actionsOn(entity)).has('read')) continue
      if (located !== undefined)
        throw new ServiceError(
          'conflict',
          `the ${type} id exists in several domains: use the path /<domain_id>/${type}s/${id}`,
        )
      located = { domain, entity }
    }
    if (located === undefined) throw new ServiceError('not_found', 'entity not found')
    return located
  }
}

function isOpen(domainGrants: DomainGrants): boolean {
  if (!domainGrants.isMember) return false
  return (
    domainGrants.domainStatus === 'enabled' || (domainGrants.domainStatus === 'disabled' && domainGrants.isDomainAdmin)
  )
}

/**
 * A caller in a domain with the permissions of their roles. `scoped-access.ts` restricts them to the scopes of a token.
 */
class EnteredDomain implements DomainAccess {
  readonly #known: Known
  readonly #caller: Caller
  /** True for a platform administrator. */
  readonly #mayEverything: boolean
  readonly principal: UserPrincipal
  readonly domainKey: number
  readonly domainId: string
  readonly isAdmin: boolean
  readonly hasGroupRoles: boolean

  constructor(known: Known, principal: UserPrincipal, domainId: string, caller: Caller) {
    this.#known = known
    this.#caller = caller
    this.#mayEverything = principal.isPlatformAdmin
    this.principal = principal
    this.domainKey = caller.domainGrants.domainKey
    this.domainId = domainId
    this.isAdmin = this.#mayEverything || caller.domainGrants.isDomainAdmin
    this.hasGroupRoles = caller.domainGrants.groupActions.size > 0
  }

  can(action: DomainAction): boolean {
    return this.#mayEverything || this.#caller.domainGrants.domainActions.has(action)
  }

  require(action: DomainAction): void {
    if (this.can(action)) return
    throw new ServiceError('forbidden', `failed to perform authorization: requires ${action} in this domain`)
  }

  async actionsOn(entity: EntityFacts): Promise<ReadonlySet<string>> {
    if (this.#mayEverything) return ALL_ACTIONS[entity.type]
    return await this.#known.effective.actionsOn(this.#caller, entity)
  }

  permits(): boolean {
    return true
  }

  async requireOn<F extends EntityFacts>(entity: F | undefined, action: string): Promise<F> {
    if (entity === undefined) throw new ServiceError('not_found', 'entity not found')
    if (this.#mayEverything) return entity
    if (!(await this.#allows(entity, 'read'))) throw new ServiceError('not_found', 'entity not found')
    if (action !== 'read' && !(await this.#allows(entity, action)))
      throw new ServiceError('forbidden', `failed to perform authorization: requires ${action} on this ${entity.type}`)
    return entity
  }

  reachable(type: EntityFacts['type'], action: string, alias: string, plan?: GrantsPlan): Sql<boolean> {
    return reachable(this.#caller.domainGrants, this.#mayEverything, type, action, alias, plan)
  }

  accessible(type: EntityFacts['type'], action: string): Accessible {
    return this.#accessibleBy(this.#caller.domainGrants, this.#mayEverything, type, action)
  }

  async accessibleTo(userKey: number, type: EntityFacts['type']): Promise<Accessible | undefined> {
    const user = await this.#known.effective.resolve(userKey, this.domainId)
    return user?.domainGrants.isMember === true ? this.#accessibleBy(user.domainGrants, false, type, 'read') : undefined
  }

  async #allows(entity: EntityFacts, action: string): Promise<boolean> {
    const { effective } = this.#known
    return effective.allowsNow(this.#caller, entity, action) ?? (await effective.allows(this.#caller, entity, action))
  }

  #accessibleBy(
    domainGrants: DomainGrants,
    mayEverything: boolean,
    type: EntityFacts['type'],
    action: string,
  ): Accessible {
    const { db, counts } = this.#known
    const isWhole = mayEverything || domainGrants.domainActions.has(`${type}_${action}`)
    // A running request can use grants that were resolved before a change, so its counts are cached under the serial of
    // those grants.
    const name = `${domainGrants.serial}/${type}/${action}`
    const dependsOn = [domainGrants.userKey, anyChangeIn(domainGrants.domainKey)]
    return new Accessible({
      db,
      type,
      domainKey: domainGrants.domainKey,
      isAmong: (alias, plan) => reachable(domainGrants, mayEverything, type, action, alias, plan),
      rows: isWhole ? undefined : (columns) => accessibleRows(domainGrants, type, action, columns),
      remember: (count) => counts.get(name, async () => ({ value: await count(), dependsOn })),
    })
  }
}
