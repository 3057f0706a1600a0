/**
 * The one access policy, used by every transport (contract sections 2.4, 2.5 and decision 45). Deny by default:
 * no role, no grant, no access; what a caller may not read looks exactly like what does not exist.
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
import { createHoldings } from './holdings.ts'
import type { Caller, EntityFacts, Holdings } from './holdings.ts'
import { withinScope } from './scoped-access.ts'
import type { UserPrincipal } from './principal.ts'
import type { Reach } from './reach.ts'
import type { ReachPlan } from './reachable.ts'
import { accessibleRows, reachable } from './reachable.ts'

/** An entity of a path, and its domain as the caller entered it. */
export type Located = { domain: DomainAccess; entity: LocatedEntity }

/** Users times domains times types of which is known how much they reach; some 200 bytes each. */
const MAX_COUNTS = 50_000

/** Domains that one listing spans; a caller who reaches more names one in the path. */
const MAX_ENTERED = 200

const ALL_ACTIONS: Record<EntityType, ReadonlySet<string>> = {
  domain: new Set(ACTIONS.domain),
  group: new Set(ACTIONS.group),
  channel: new Set(ACTIONS.channel),
  client: new Set(ACTIONS.client),
}

const NOT_PERMITTED = 'failed to perform authorization: not permitted in this domain'

/** What the policy remembers of the database; everything in it is forgotten with the change that makes it wrong. */
type Known = { db: Queryable; holdings: Holdings; counts: FactCache<StatusCounts> }

export class AccessPolicy {
  readonly #known: Known
  readonly #entered: DomainAccess | undefined

  private constructor(known: Known, entered?: DomainAccess) {
    this.#known = known
    this.#entered = entered
  }

  /** `isFresh`: whether all changes are known here, so that what is remembered may answer. */
  static create({ database: { db }, isFresh }: { database: Database; isFresh: () => boolean }): AccessPolicy {
    const counts = createFactCache<StatusCounts>({ maxEntries: MAX_COUNTS, isFresh })
    return new AccessPolicy({ db, holdings: createHoldings({ db, isFresh }), counts })
  }

  /** The same policy for a caller that entered the domain already: to enter it again asks nothing of the database. */
  havingEntered(domain: DomainAccess): AccessPolicy {
    return new AccessPolicy(this.#known, domain)
  }

  /** Throws `forbidden` alike for an unknown domain, a foreign one and one that is not open to the caller. */
  async enter(principal: UserPrincipal, domainId: string): Promise<DomainAccess> {
    if (this.#entered?.domainId === domainId) return this.#entered
    const domain = isId(domainId) ? await this.#open(principal, domainId) : undefined
    if (domain === undefined) throw new ServiceError('forbidden', NOT_PERMITTED)
    return domain
  }

  /**
   * Every domain that is open to the caller, for calls without a domain in the path (decision 31). Throws
   * `unprocessable` when there are more than `MAX_ENTERED`: a part of them would look like the whole.
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
        `you reach more than ${MAX_ENTERED} domains: name one in the path, /<domain_id>/…`,
      )
    }
    const entered = await Promise.all(rows.map(({ id }) => this.#open(principal, id)))
    return entered.filter((domain) => domain !== undefined)
  }

  /**
   * The entity of a path, with its domain in the path or without (decision 31b). The caller may read it; nothing else is
   * checked. Throws `not_found` when there is none that they may read, `conflict` when they may read one in several domains,
   * `forbidden` when the named domain is not open to them.
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

  /** Throws `forbidden` unless the caller administers the platform, and with a token that is good for all of it. */
  requirePlatformAdmin(principal: UserPrincipal): void {
    // A token bound to a domain works in that domain alone (decision 40).
    if (!principal.isPlatformAdmin || principal.boundDomainKey !== undefined)
      throw new ServiceError(
        'forbidden',
        'failed to perform authorization: only the platform administrator may do this',
      )
  }

  /** Drops what depends on entities that changed. */
  forget(entityKeys: readonly number[]): void {
    this.#known.holdings.forget(entityKeys)
    this.#known.counts.forget(entityKeys)
  }

  clear(): void {
    this.#known.holdings.clear()
    this.#known.counts.clear()
  }

  /** The caller in a domain; undefined when it is not open to them. */
  async #open(principal: UserPrincipal, domainId: string): Promise<DomainAccess | undefined> {
    const caller = await this.#known.holdings.resolve(principal.key, domainId)
    if (caller === undefined) return undefined
    const { reach } = caller
    if (principal.boundDomainKey !== undefined && principal.boundDomainKey !== reach.domainKey) return undefined
    // A deleted domain is closed to the platform administrator too, until it is restored (contract 1.2).
    if (reach.domainStatus === 'deleted' || (!principal.isPlatformAdmin && !isOpen(reach))) return undefined
    return withinScope(principal, new EnteredDomain(this.#known, principal, domainId, caller))
  }

  /** The one entity of this id that the caller may read in whatever domain (decision 31b). */
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
          `the ${type} id exists in several domains: name one in the path, /<domain_id>/${type}s/${id}`,
        )
      located = { domain, entity }
    }
    if (located === undefined) throw new ServiceError('not_found', 'entity not found')
    return located
  }
}

function isOpen(reach: Reach): boolean {
  if (!reach.isMember) return false
  return reach.domainStatus === 'enabled' || (reach.domainStatus === 'disabled' && reach.isDomainAdmin)
}

/** A caller in a domain with everything that their roles give; what their token leaves of it is `scoped-access.ts`. */
class EnteredDomain implements DomainAccess {
  readonly #known: Known
  readonly #caller: Caller
  /** By administering the platform. */
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
    this.domainKey = caller.reach.domainKey
    this.domainId = domainId
    this.isAdmin = this.#mayEverything || caller.reach.isDomainAdmin
    this.hasGroupRoles = caller.reach.groupActions.size > 0
  }

  can(action: DomainAction): boolean {
    return this.#mayEverything || this.#caller.reach.domainActions.has(action)
  }

  require(action: DomainAction): void {
    if (this.can(action)) return
    throw new ServiceError('forbidden', `failed to perform authorization: needs ${action} in this domain`)
  }

  async actionsOn(entity: EntityFacts): Promise<ReadonlySet<string>> {
    if (this.#mayEverything) return ALL_ACTIONS[entity.type]
    return await this.#known.holdings.actionsOn(this.#caller, entity)
  }

  permits(): boolean {
    return true
  }

  async requireOn<F extends EntityFacts>(entity: F | undefined, action: string): Promise<F> {
    if (entity === undefined) throw new ServiceError('not_found', 'entity not found')
    if (this.#mayEverything) return entity
    if (!(await this.#holds(entity, 'read'))) throw new ServiceError('not_found', 'entity not found')
    if (action !== 'read' && !(await this.#holds(entity, action)))
      throw new ServiceError('forbidden', `failed to perform authorization: needs ${action} on this ${entity.type}`)
    return entity
  }

  reachable(type: EntityFacts['type'], action: string, alias: string, plan?: ReachPlan): Sql<boolean> {
    return reachable(this.#caller.reach, this.#mayEverything, type, action, alias, plan)
  }

  accessible(type: EntityFacts['type'], action: string): Accessible {
    return this.#accessibleBy(this.#caller.reach, this.#mayEverything, type, action)
  }

  async accessibleTo(userKey: number, type: EntityFacts['type']): Promise<Accessible | undefined> {
    const user = await this.#known.holdings.resolve(userKey, this.domainId)
    return user?.reach.isMember === true ? this.#accessibleBy(user.reach, false, type, 'read') : undefined
  }

  async #holds(entity: EntityFacts, action: string): Promise<boolean> {
    const { holdings } = this.#known
    return holdings.holdsNow(this.#caller, entity, action) ?? (await holdings.holds(this.#caller, entity, action))
  }

  #accessibleBy(reach: Reach, mayEverything: boolean, type: EntityFacts['type'], action: string): Accessible {
    const { db, counts } = this.#known
    const isWhole = mayEverything || reach.domainActions.has(`${type}_${action}`)
    // A request may still hold a reach that was true before a change, so what it counts is kept for this reach alone.
    const name = `${reach.serial}/${type}/${action}`
    const dependsOn = [reach.userKey, anyChangeIn(reach.domainKey)]
    return new Accessible({
      db,
      type,
      domainKey: reach.domainKey,
      isAmong: (alias, plan) => reachable(reach, mayEverything, type, action, alias, plan),
      rows: isWhole ? undefined : accessibleRows(reach, type, action),
      remember: (count) => counts.get(name, async () => ({ value: await count(), dependsOn })),
    })
  }
}
