/**
 * The rules of domains: creating, viewing, listing and changing them (contract sections 1.1 and 1.2, decisions 23 and
 * 45).
 */
import { NO_MORE } from '#core/cursor.ts'
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId, newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { formatTime } from '#core/time.ts'
import type { AccessPolicy, UserPrincipal } from '../access/index.ts'
import { adminRoleId, listedBy, parseActions } from '../access/index.ts'
import type { Journal } from '../journal/index.ts'
import type { Quotas } from '../quotas/index.ts'
import { grantAdmin } from '../roles/index.ts'
import { findUser } from '../users/index.ts'
import { allOf, contains, containsMetadata, parseMetadataFilter, createdWithin, withTags } from '../listing/index.ts'
import { recordDomainChange } from './changes.ts'
import type { DomainRecord, AssignedRole } from './record.ts'
import type { DomainChange, DomainListing, RoleCondition } from './repository.ts'
import {
  countCreated,
  countCreatedByKey,
  countDomains,
  findDomain,
  insertDomain,
  listAdministered,
  listDomains,
  listAssignedRoles,
  lockDomain,
  updateDomain,
} from './repository.ts'
import { parseRouteName, routeFromName } from './route-name.ts'
import type { DomainQuery, DomainUpdate, NewDomain } from './schema.ts'

export type ListedDomain = { domain: DomainRecord; role: AssignedRole | undefined }

export type DomainsDeps = {
  database: Database
  journal: Journal
  access: AccessPolicy
  quotas: Quotas
  /** First path segments of the API. A route must not shadow them. */
  reservedRoutes: ReadonlySet<string>
}

const isUnscopedPlatformAdmin = (caller: UserPrincipal) => caller.isPlatformAdmin && caller.boundDomainKey === undefined

export class DomainsService {
  readonly #db: Queryable
  readonly #journal: Journal
  readonly #access: AccessPolicy
  readonly #quotas: Quotas
  readonly #reservedRoutes: ReadonlySet<string>

  constructor({ database, journal, access, quotas, reservedRoutes }: DomainsDeps) {
    this.#db = database.db
    this.#journal = journal
    this.#access = access
    this.#quotas = quotas
    quotas.measureOfUser('domains', (userKey) => countCreatedByKey(database.db, userKey))
    this.#reservedRoutes = reservedRoutes
  }

  /**
   * The creator becomes a member of the built-in role. Throws `malformed`, `conflict`, and `forbidden` for a token that
   * is bound to a domain (decision 40).
   */
  async create(caller: UserPrincipal, input: NewDomain): Promise<DomainRecord> {
    const given = input.alias ?? input.route
    const route =
      given === undefined || given === ''
        ? routeFromName(input.name)
        : requireDomainRoute(given, input.id, this.#reservedRoutes)
    if (caller.boundDomainKey !== undefined) {
      throw new ServiceError(
        'forbidden',
        'failed to perform authorization: a token that is bound to a domain cannot create domains',
      )
    }
    return await this.#journal.change(caller, async (tx, record) => {
      await this.#quotas.requireRoomOfUser(tx, caller.key, 'domains', 1, () => countCreated(tx, caller.id))
      const domain = await insertDomain(tx, {
        id: input.id ?? newId(),
        name: input.name,
        route,
        tags: input.tags ?? [],
        metadata: input.metadata ?? {},
        status: input.status ?? 'enabled',
        retentionDays: input.retention_days ?? null,
        alarmRetentionDays: input.alarm_retention_days ?? null,
        createdBy: caller.id,
      })
      await grantAdmin(tx, caller.key, 'domain', domain.key, [domain.key])
      record({
        operation: 'domain.create',
        domainKey: domain.key,
        entityKeys: [domain.key, caller.key],
        attributes: {
          id: domain.id,
          name: domain.name,
          alias: domain.route,
          route: domain.route,
          tags: domain.tags,
          metadata: domain.metadata,
          status: domain.status,
          created_by: domain.createdBy,
          created_at: formatTime(domain.createdAt),
        },
      })
      return domain
    })
  }

  /** Throws the same `forbidden` for an unknown domain and one that the caller may not enter. */
  get(caller: UserPrincipal, id: string): Promise<DomainRecord> {
    return this.#requireReadable(caller, id)
  }

  /** Returns the domain with every role of the caller in it. */
  async getWithRoles(caller: UserPrincipal, id: string): Promise<{ domain: DomainRecord; roles: AssignedRole[] }> {
    const domain = await this.#requireReadable(caller, id)
    return { domain, roles: await listAssignedRoles(this.#db, caller.key, domain.key) }
  }

  /** Lists the domains in which the caller has a role. Platform administrators see all domains. */
  async list(caller: UserPrincipal, query: DomainQuery): Promise<Page<ListedDomain>> {
    const filter = conditionsOf(caller, query)
    return await this.#page(caller, query, await this.#roleConditionOf(caller, query), filter)
  }

  /**
   * Lists the domains in which the user has a role, with that role. The user and platform administrators see all of
   * them, other callers those that they administer. Throws `forbidden` for a caller who administers none of them.
   */
  async listOfUser(caller: UserPrincipal, userId: string, query: DomainQuery): Promise<Page<ListedDomain>> {
    // `malformed` has precedence over `forbidden` (decision 45).
    const filter = conditionsOf(caller, query)
    const role = await this.#roleConditionOf(caller, { ...query, user: userId })
    if (isUnscopedPlatformAdmin(caller) && role === undefined) throw new ServiceError('not_found', 'entity not found')
    if (userId !== caller.id && !isUnscopedPlatformAdmin(caller)) {
      const administered = await listAdministered(this.#db, caller.key)
      const where = sql<boolean>`d.key = ANY (${administered}::bigint[])`
      const shared =
        role === undefined
          ? 0
          : await countDomains(this.#db, { where, role: { userKey: role.userKey }, isRoleOptional: false })
      if (shared === 0)
        throw new ServiceError(
          'forbidden',
          'failed to perform authorization: requires the user, an administrator of one of their domains or a platform administrator',
        )
    }
    return await this.#page(caller, { ...query, user: userId }, role, filter)
  }

  /** Absent fields are unchanged. Throws `malformed`, `forbidden` or `conflict`. */
  async update(caller: UserPrincipal, id: string, input: DomainUpdate): Promise<DomainRecord> {
    const route = input.alias === undefined ? undefined : requireDomainRoute(input.alias, id, this.#reservedRoutes)
    const domain = await this.#access.enter(caller, id)
    domain.require('update')
    const change: DomainChange = {
      ...(input.name === undefined ? {} : { name: input.name }),
      ...(route === undefined ? {} : { route }),
      ...(input.tags === undefined ? {} : { tags: input.tags }),
      ...(input.metadata === undefined ? {} : { metadata: input.metadata }),
      ...(input.retention_days === undefined ? {} : { retentionDays: input.retention_days }),
      ...(input.alarm_retention_days === undefined ? {} : { alarmRetentionDays: input.alarm_retention_days }),
    }
    return await this.#journal.change(caller, async (tx, record) => {
      const before = await lockDomain(tx, domain.domainKey)
      if (before === undefined) throw new ServiceError('not_found', 'entity not found')
      const after = await updateDomain(tx, before.key, change, caller.id)
      recordDomainChange(record, 'domain.update', before, after)
      return after
    })
  }

  async #requireReadable(caller: UserPrincipal, id: string): Promise<DomainRecord> {
    const domain = await this.#access.enter(caller, id)
    domain.require('read')
    const record = await findDomain(this.#db, domain.domainKey)
    if (record === undefined) throw new ServiceError('not_found', 'entity not found')
    return record
  }

  /**
   * Returns the role filter of the listing: the roles of the caller, or of the user in `user`. Undefined for an unknown
   * user.
   */
  async #roleConditionOf(caller: UserPrincipal, query: DomainQuery): Promise<RoleCondition | undefined> {
    const userKey =
      query.user === undefined || query.user === caller.id
        ? caller.key
        : isId(query.user)
          ? (await findUser(this.#db, query.user))?.key
          : undefined
    if (userKey === undefined) return undefined
    const condition: RoleCondition = { userKey }
    if (query.role_id !== undefined) {
      condition.id = query.role_id
      // The id of a built-in role is a digest, so its domain is found by comparison.
      const adminOfKey = (await listAdministered(this.#db, userKey)).find(
        (key) => adminRoleId('domain', key) === query.role_id,
      )
      if (adminOfKey !== undefined) condition.adminOfKey = adminOfKey
    }
    if (query.role_name !== undefined) condition.name = query.role_name
    if (query.actions !== undefined) condition.actions = parseActions('domain', query.actions)
    return condition
  }

  async #page(
    caller: UserPrincipal,
    query: DomainQuery,
    role: RoleCondition | undefined,
    filter: readonly Sql<boolean>[],
  ): Promise<Page<ListedDomain>> {
    const { offset, limit, cursor } = query
    if (role === undefined) return { total: 0, offset, limit, items: [], next: NO_MORE }
    const isFiltered = query.role_id !== undefined || query.role_name !== undefined || query.actions !== undefined
    const conditions = [...filter]
    if (role.userKey !== caller.key && !isUnscopedPlatformAdmin(caller)) {
      const administered = await listAdministered(this.#db, caller.key)
      conditions.push(sql<boolean>`d.key = ANY (${administered}::bigint[])`)
    }
    const listing: DomainListing = {
      where: allOf(conditions),
      role,
      isRoleOptional:
        caller.isPlatformAdmin && query.user === undefined && query.access_type === undefined && !isFiltered,
      order: query.order,
      dir: query.dir ?? 'asc',
      offset,
      limit,
      cursor,
    }
    const [total, page] = await Promise.all([
      countDomains(this.#db, listing),
      query.only_total === true ? { items: [], next: NO_MORE } : listDomains(this.#db, listing),
    ])
    return { total, offset, limit, ...page }
  }
}

/** A route can be a UUID only if it is the id of the domain (decision 23). */
function requireDomainRoute(route: string, id: string | undefined, reserved: ReadonlySet<string>): string {
  return route === id ? route : parseRouteName(route, 'alias', reserved)
}

function conditionsOf(caller: UserPrincipal, query: DomainQuery): Sql<boolean>[] {
  const conditions = [sql<boolean>`d.purge_started_at IS NULL`, ...listedBy(caller, 'domains', 'd.key')]
  if (query.status !== 'all') conditions.push(sql<boolean>`d.status = ${query.status}`)
  if (caller.boundDomainKey !== undefined) conditions.push(sql<boolean>`d.key = ${caller.boundDomainKey}`)
  if (query.name !== undefined) conditions.push(contains('d.name', query.name))
  if (query.tag !== undefined) conditions.push(sql<boolean>`${query.tag} = ANY (d.tags)`)
  conditions.push(...withTags('d', query.tags), ...createdWithin('d', query))
  if (query.access_type !== undefined && query.access_type !== 'direct') conditions.push(sql<boolean>`false`)
  if (query.id !== undefined) conditions.push(isId(query.id) ? sql<boolean>`d.id = ${query.id}` : sql<boolean>`false`)
  if (query.metadata !== undefined) conditions.push(containsMetadata('d.metadata', parseMetadataFilter(query.metadata)))
  return conditions
}
