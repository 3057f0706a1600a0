/**
 * The one access policy, used by every transport (contract sections 2.4, 2.5 and decision 45). Deny by default:
 * no role, no grant, no access; what a caller may not read looks exactly like what does not exist.
 */
import { createHash } from 'node:crypto'
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { createFactCache } from '#core/fact-cache.ts'
import { isId } from '#core/ids.ts'
import { createLru } from '#core/lru.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { monotonicMs } from '#core/time.ts'
import { anyChangeIn } from './any-change.ts'
import { ACTIONS } from './actions.ts'
import type { DomainAction, EntityType } from './actions.ts'
import { findEntitiesAnywhere, findEntity } from './entities.ts'
import type { LocatedEntity } from './entities.ts'
import { createHoldings } from './holdings.ts'
import type { EntityFacts } from './holdings.ts'
import { createKeptLabels } from './kept-labels.ts'
import type { KeptLabels, Within } from './kept-labels.ts'
import { withinScope } from '../pats/scoped-access.ts'
import type { UserPrincipal } from './principal.ts'
import type { Reach } from './reach.ts'
import type { ReachPlan } from './reachable.ts'
import { findKnownReach, findWithin, reachable, reachedRows } from './reachable.ts'

export type { EntityFacts } from './holdings.ts'

/** A caller inside a domain that it may enter. */
export type DomainAccess = {
  readonly principal: UserPrincipal
  readonly domainKey: number
  readonly domainId: string
  /** The caller holds the built-in role `admin` of the domain, or administers the platform. */
  readonly isAdmin: boolean
  /** The caller has a role on a group of the domain. */
  readonly hasGroupRoles: boolean
  can(action: DomainAction): boolean
  /** Throws `forbidden`. */
  require(action: DomainAction): void
  /** Everything that the caller may do on the entity, by whatever path. */
  actionsOn(entity: EntityFacts): Promise<ReadonlySet<string>>
  /** Whether the token that the caller came with is good for the action on the entity. His roles are another question. */
  permits(entity: EntityFacts, action: string): boolean
  /**
   * Returns the entity when the caller may do it; throws `not_found` when there is none or the caller may not read it,
   * `forbidden` when he may read it but not do this.
   */
  requireOn<E extends EntityFacts>(entity: E | undefined, action: string): Promise<E>
  /**
   * The condition of a listing: rows on which the caller may do `action`. `alias` is the listed table in the query; where the
   * rows are named by their keys or ids, `row` is the better plan.
   */
  reachable(type: EntityFacts['type'], action: string, alias: string, plan?: ReachPlan): Sql<boolean>
  /**
   * The same for a listing of many rows, by the size of what the caller reaches: to find a page, and to count. `status`, `all` or one, of
   * clients and channels of which nothing else is asked.
   */
  reachableRows(
    type: EntityFacts['type'],
    action: string,
    alias: string,
    status: string | undefined,
  ): Promise<ReachableRows>
  /** The same of what another user may read, whatever the caller may. Of who is no member nothing. */
  rowsReadBy(
    userKey: number,
    type: EntityFacts['type'],
    alias: string,
    status: string | undefined,
  ): Promise<ReachableRows>
}

export type SortedKeys = {
  remembered(): readonly number[] | undefined
  find(): Promise<readonly number[]>
  /**
   * Finds them for whoever asks later; nobody waits for it. Nothing happens while others are sought so, and where the domains
   * change all the time and these were sought lately.
   */
  prepare(): void
}

export type KeptListing = {
  /** The numbers that its statement gives as `totals`. `known` may find them without it. */
  totals(known?: () => Promise<readonly number[] | undefined>): Promise<readonly number[]>
  /**
   * Those of its keys that are called `which`, as the statement gives them. `remembered` alone gives what is known without asking the
   * database. `known` as of `totals`.
   */
  keys(
    which: string,
    statement: () => Sql<{ key: number }>,
    known?: () => Promise<readonly number[] | undefined>,
  ): SortedKeys
}

/** Keys as an array of PostgreSQL, and how many. */
export type KnownReach = { keys: string; size: number }

/** Two forms of one condition, and whether it is true of every row of the domain. */
export type ReachableRows = {
  page: Sql<boolean>
  count: Sql<boolean>
  isWhole: boolean
  /** Whether `count` names the rows by their keys. */
  isByKeys: boolean
  /** Where it does and a status was asked for: all that have it. */
  known?: KnownReach
  /**
   * Where there are many but not all: the same rows as a table of `key`, `parent_group_key`, `status` and `domain_key`, and as what rows
   * in memory are held against.
   */
  many?: { table: Sql<unknown>; within: () => Promise<Within> }
}

const NEVER = sql<boolean>`false`
export const SHOWING_NOTHING: ReachableRows = { page: NEVER, count: NEVER, isWhole: false, isByKeys: false }

/** An entity of a path, and its domain as the caller entered it. */
export type Located = { domain: DomainAccess; entity: LocatedEntity }

export type AccessPolicy = {
  /** Throws `forbidden` alike for an unknown domain, a foreign one and one that is not open to the caller. */
  enter(principal: UserPrincipal, domainId: string): Promise<DomainAccess>
  /**
   * Every domain that is open to the caller, for listings without a domain in the path (decision 31). Throws
   * `unprocessable` when there are more than `MAX_ENTERED`: a part of them would look like the whole.
   */
  enterAll(principal: UserPrincipal): Promise<DomainAccess[]>
  /**
   * The entity of a path, with its domain in the path or without (decision 31b). The caller may read it; nothing else is
   * checked. Throws `not_found` when there is none that he may read, `conflict` when he may read one in several domains,
   * `forbidden` when the named domain is not open to him.
   */
  locate(
    principal: UserPrincipal,
    domainId: string | undefined,
    type: EntityFacts['type'],
    id: string,
  ): Promise<Located>
  /** The listing of these domains that the statement counts, for its totals and keys to be kept until anything changes there. */
  listing(domains: readonly DomainAccess[], count: Sql<{ totals: number[] }>): KeptListing
  /** Names and tags of large domains, kept to be counted by. */
  readonly labels: Omit<KeptLabels, 'forget' | 'clear'>
  /** Throws `forbidden` unless the caller administers the platform, and with a token that is good for all of it. */
  requirePlatformAdmin(principal: UserPrincipal): void
  /** Drops what depends on entities that changed. */
  forget(entityKeys: readonly number[]): void
  clear(): void
}

/** Totals that are remembered. */
const MAX_TOTALS = 20_000
/** Reaches that are remembered, and the bytes of their keys. */
const MAX_REACHES = 20_000
/** How large a large one is is not asked again before. */
const LARGE_REACH_MS = 60_000
const MAX_REACH_BYTES = 32 * 1024 * 1024
/** Sorted keys of listings that are remembered. */
const MAX_SORTED_LISTINGS = 10_000
const MAX_SORTED_BYTES = 32 * 1024 * 1024
const KEY_BYTES = 8
/** Keys for later are not sought again before so many times as long as it took. */
const PREPARED_AGAIN = 20
/** A reach of at most so many entities is sorted as a whole for a page; of a larger one only pages far from the ends. */
const SMALL_REACH = 2000

/** Domains that one listing spans; who reaches more names one in the path. */
const MAX_ENTERED = 200

const ALL_ACTIONS: Record<EntityType, ReadonlySet<string>> = {
  domain: new Set(ACTIONS.domain),
  group: new Set(ACTIONS.group),
  channel: new Set(ACTIONS.channel),
  client: new Set(ACTIONS.client),
}

/**
 * The keys in the order of the statement, as one text: as rows twenty thousand take the driver twenty milliseconds in which nobody else has a
 * turn. As JSON, since PostgreSQL does that in no parts, which would come in any order.
 */
export async function readKeys(db: Queryable, statement: Sql<{ key: number }>): Promise<number[]> {
  const { rows } = await sql<{ keys: string | null }>`
    SELECT json_agg(key)::text AS keys FROM (${statement}) listed`.execute(db)
  return JSON.parse(rows[0]?.keys ?? '[]') as number[]
}

const NOT_PERMITTED = 'failed to perform authorization: not permitted in this domain'

export function createAccessPolicy({
  database,
  isFresh,
}: {
  database: Database
  isFresh: () => boolean
}): AccessPolicy {
  const { db } = database
  const holdings = createHoldings({ db, isFresh })
  const totals = createFactCache<readonly number[]>({ maxEntries: MAX_TOTALS, isFresh })
  const reaches = createFactCache<KnownReach | 'many'>({
    maxEntries: MAX_REACHES,
    bytes: { max: MAX_REACH_BYTES, of: (found) => (found === 'many' ? 0 : found.keys.length) },
    isFresh,
  })

  const largeReaches = createLru<string, true>(MAX_REACHES, { ttlMs: LARGE_REACH_MS })
  const sorted = createFactCache<readonly number[]>({
    maxEntries: MAX_SORTED_LISTINGS,
    bytes: { max: MAX_SORTED_BYTES, of: (keys) => keys.length * KEY_BYTES },
    isFresh,
  })
  const labels = createKeptLabels({ db, isFresh })
  /** When keys may be sought for later again, by listing. */
  const preparedUntilMs = createLru<string, number>(MAX_SORTED_LISTINGS)
  let isPreparing = false

  const nameOf = (statement: Sql<unknown>) => {
    const { text, values } = statement.statement()
    return createHash('sha256').update(text).update(JSON.stringify(values)).digest('base64')
  }
  /** What a listing of these domains by their callers depends on. */
  const contentsOf = (domains: readonly DomainAccess[]) =>
    domains.flatMap(({ domainKey, principal }) => [anyChangeIn(domainKey), principal.key])

  async function findReached(
    reach: Reach,
    type: EntityFacts['type'],
    action: string,
    status: string | undefined,
  ): Promise<KnownReach | 'many'> {
    const place = `${reach.userKey}/${reach.domainKey}/${type}/${action}`
    // With every change of the domain it would be found out again. What is found in the way of a large reach is as true of a small one.
    if (largeReaches.get(place) === true) return 'many'
    // A request may still hold a reach that was true before a change.
    const name = `${reach.serial}/${type}/${action}/${status ?? ''}`
    return await reaches.get(name, async () => {
      const found = await findKnownReach(db, reach, type, action, status)
      if (found === undefined) largeReaches.set(place, true)
      return { value: found ?? ('many' as const), dependsOn: [reach.userKey, anyChangeIn(reach.domainKey)] }
    })
  }

  async function rowsOf(
    reach: Reach,
    everything: boolean,
    listed: { type: EntityFacts['type']; action: string; alias: string; status: string | undefined },
  ): Promise<ReachableRows> {
    const { type, action, alias, status } = listed
    const rows = (plan: ReachPlan) => reachable(reach, everything, type, action, alias, plan)
    const isWhole = everything || reach.domainActions.has(`${type}_${action}`)
    const reached = isWhole ? 'many' : await findReached(reach, type, action, status)
    if (reached === 'many') {
      const found = { page: rows('row'), count: rows('set'), isWhole, isByKeys: false }
      if (isWhole || type === 'group') return found
      const within = () => findWithin(db, reach, type, action)
      return { ...found, many: { table: reachedRows(reach, type, action), within } }
    }
    const isAmong = sql<boolean>`${sql.ref(`${alias}.key`)} = ANY (${reached.keys}::bigint[])`
    const page = reached.size <= SMALL_REACH ? isAmong : rows('row')
    const known = status === undefined ? {} : { known: reached }
    return { page, count: isAmong, isWhole, isByKeys: true, ...known }
  }

  function isOpen(reach: Reach): boolean {
    if (!reach.isMember) return false
    return reach.domainStatus === 'enabled' || (reach.domainStatus === 'disabled' && reach.isDomainAdmin)
  }

  /** The caller in a domain; undefined when it is not open to him. */
  async function open(principal: UserPrincipal, domainId: string): Promise<DomainAccess | undefined> {
    const caller = await holdings.resolve(principal.key, domainId)
    if (caller === undefined) return undefined
    const { reach } = caller
    const { domainKey } = reach
    if (principal.boundDomainKey !== undefined && principal.boundDomainKey !== domainKey) return undefined
    const everything = principal.isPlatformAdmin
    // A deleted domain is closed to the platform administrator too, until it is restored (contract 1.2).
    if (reach.domainStatus === 'deleted' || (!everything && !isOpen(reach))) return undefined
    const holds = async (entity: EntityFacts, action: string) =>
      holdings.holdsNow(caller, entity, action) ?? (await holdings.holds(caller, entity, action))
    return withinScope(principal, {
      principal,
      domainKey,
      domainId,
      isAdmin: everything || reach.isDomainAdmin,
      hasGroupRoles: reach.groupActions.size > 0,
      can: (action) => everything || reach.domainActions.has(action),
      require(action) {
        if (everything || reach.domainActions.has(action)) return
        throw new ServiceError('forbidden', `failed to perform authorization: needs ${action} in this domain`)
      },
      actionsOn: (entity) =>
        everything ? Promise.resolve(ALL_ACTIONS[entity.type]) : holdings.actionsOn(caller, entity),
      permits: () => true,
      async requireOn(entity, action) {
        if (entity === undefined) throw new ServiceError('not_found', 'entity not found')
        if (everything) return entity
        if (!(await holds(entity, 'read'))) throw new ServiceError('not_found', 'entity not found')
        if (action !== 'read' && !(await holds(entity, action)))
          throw new ServiceError('forbidden', `failed to perform authorization: needs ${action} on this ${entity.type}`)
        return entity
      },
      reachable: (type, action, alias, plan) => reachable(reach, everything, type, action, alias, plan),
      reachableRows: async (type, action, alias, status) =>
        await rowsOf(reach, everything, { type, action, alias, status }),
      async rowsReadBy(userKey, type, alias, status) {
        const user = await holdings.resolve(userKey, domainId)
        if (user?.reach.isMember !== true) return SHOWING_NOTHING
        return await rowsOf(user.reach, false, { type, action: 'read', alias, status })
      },
    })
  }

  async function enter(principal: UserPrincipal, domainId: string): Promise<DomainAccess> {
    const domain = isId(domainId) ? await open(principal, domainId) : undefined
    if (domain === undefined) throw new ServiceError('forbidden', NOT_PERMITTED)
    return domain
  }

  /** The one entity of this id that the caller may read in whatever domain (decision 31b). */
  async function locateAnywhere(principal: UserPrincipal, type: EntityFacts['type'], id: string): Promise<Located> {
    const { key, isPlatformAdmin, boundDomainKey } = principal
    const user = { key, isEverywhere: isPlatformAdmin, boundDomainKey }
    const candidates = isId(id) ? await findEntitiesAnywhere(db, user, type, id, MAX_ENTERED) : []
    let located: Located | undefined
    for (const { domainId, entity } of candidates) {
      const domain = await open(principal, domainId)
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

  return {
    enter,
    async locate(principal, domainId, type, id) {
      if (domainId === undefined) return await locateAnywhere(principal, type, id)
      const domain = await enter(principal, domainId)
      const entity = isId(id) ? await findEntity(db, domain.domainKey, type, id) : undefined
      return { domain, entity: await domain.requireOn(entity, 'read') }
    },
    async enterAll(principal) {
      const { rows } = await sql<{ id: string }>`SELECT d.id FROM domains d
        WHERE d.status <> 'deleted' AND (${principal.isPlatformAdmin} OR EXISTS (
          SELECT 1 FROM grants g WHERE g.user_key = ${principal.key} AND g.domain_key = d.key AND g.entity_type = 'domain'))
          AND (${principal.boundDomainKey ?? null}::bigint IS NULL OR d.key = ${principal.boundDomainKey ?? null})
        ORDER BY d.key LIMIT ${MAX_ENTERED + 1}`.execute(db)
      if (rows.length > MAX_ENTERED) {
        throw new ServiceError(
          'unprocessable',
          `you reach more than ${MAX_ENTERED} domains: name one in the path, /<domain_id>/…`,
        )
      }
      const entered = await Promise.all(rows.map(({ id }) => open(principal, id)))
      return entered.filter((domain) => domain !== undefined)
    },
    requirePlatformAdmin(principal) {
      // A token bound to a domain works in that domain alone (decision 40).
      if (!principal.isPlatformAdmin || principal.boundDomainKey !== undefined)
        throw new ServiceError(
          'forbidden',
          'failed to perform authorization: only the platform administrator may do this',
        )
    },
    labels,
    listing(domains, count) {
      // By what it counts: a statement for its keys may have as many parts as there are domains, and is seldom run.
      const listing = nameOf(count)
      return {
        totals: async (known) =>
          await totals.get(listing, async () => {
            const value = (await known?.()) ?? (await count.execute(db)).rows[0]?.totals ?? []
            return { value, dependsOn: contentsOf(domains) }
          }),
        keys(which, statement, known) {
          const name = `${listing}/${which}`
          const find = () =>
            sorted.get(name, async () => {
              const value = (await known?.()) ?? (await readKeys(db, statement()))
              return { value, dependsOn: contentsOf(domains) }
            })
          return {
            remembered: () => sorted.peek(name),
            find,
            prepare() {
              const beganMs = monotonicMs()
              if (isPreparing || beganMs < (preparedUntilMs.get(name) ?? 0)) return
              isPreparing = true
              const end = () => {
                isPreparing = false
                const endedMs = monotonicMs()
                preparedUntilMs.set(name, endedMs + PREPARED_AGAIN * (endedMs - beganMs))
              }
              // Whoever asks for a page meets the same failure, and is told.
              find().then(end, end)
            },
          }
        },
      }
    },
    forget(entityKeys) {
      for (const cache of [holdings, totals, reaches, sorted, labels]) cache.forget(entityKeys)
    },
    clear() {
      for (const cache of [holdings, totals, reaches, sorted, labels]) cache.clear()
    },
  }
}
