/** The rules of domains (contract sections 1.1 and 1.2, decisions 23 and 45). */
import { sql } from 'kysely'
import type { RawBuilder, SqlBool } from 'kysely'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId, newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import type { AccessPolicy, DomainAction, UserPrincipal } from '../access/index.ts'
import { ACTIONS, ADMIN_ROLE_KEY } from '../access/index.ts'
import type { Journal } from '../journal/index.ts'
import { ADMIN_ROLE_NAME, adminRoleId, grantAdmin } from '../roles/index.ts'
import { allOf, contains, containsMetadata, parseMetadataFilter } from '../wire/index.ts'
import type { DomainRecord } from './repository.ts'
import { countDomains, findDomain, insertDomain, listDomains, updateDomain } from './repository.ts'
import { requireRoute, routeFromName } from './route-name.ts'
import type { DomainQuery, DomainUpdate, NewDomain } from './schema.ts'

export type DomainsService = {
  /** The creator becomes the member of the built-in role. Throws `malformed` or `conflict`. */
  create(caller: UserPrincipal, input: NewDomain): Promise<DomainRecord>
  get(caller: UserPrincipal, id: string): Promise<DomainRecord>
  /** Domains in which the caller has a role; the platform administrator sees all. */
  list(caller: UserPrincipal, query: DomainQuery): Promise<Page<DomainRecord>>
  update(caller: UserPrincipal, id: string, input: DomainUpdate): Promise<DomainRecord>
  /** Idempotent: a domain that has the status already is returned unchanged (decision 13). */
  setStatus(caller: UserPrincipal, id: string, status: 'enabled' | 'disabled'): Promise<DomainRecord>
}

export type DomainsDeps = {
  database: Database
  journal: Journal
  access: AccessPolicy
  /** First path segments of the API: a route must not shadow one. */
  reservedRoutes: ReadonlySet<string>
}

export function createDomainsService({ database, journal, access, reservedRoutes }: DomainsDeps): DomainsService {
  async function requireDomain(caller: UserPrincipal, id: string, action: DomainAction): Promise<DomainRecord> {
    const domain = await access.enter(caller, id)
    domain.require(action)
    const record = await findDomain(database.db, domain.domainKey)
    if (record === undefined) throw new ServiceError('not_found', 'entity not found')
    return record
  }

  return {
    async create(caller, input) {
      const given = input.alias ?? input.route
      const route =
        given === undefined || given === ''
          ? routeFromName(input.name)
          : requireDomainRoute(given, input.id, reservedRoutes)
      return await journal.change(caller, async (tx, record) => {
        const domain = await insertDomain(tx, {
          id: input.id ?? newId(),
          name: input.name,
          route,
          tags: input.tags ?? [],
          metadata: input.metadata ?? {},
          retentionDays: input.retention_days ?? null,
          createdBy: caller.id,
        })
        await grantAdmin(tx, caller.key, 'domain', domain.key, [domain.key])
        record({
          operation: 'domain.create',
          domainKey: domain.key,
          entityKeys: [domain.key, caller.key],
          attributes: { id: domain.id, name: domain.name, route: domain.route },
        })
        return domain
      })
    },
    get: (caller, id) => requireDomain(caller, id, 'read'),
    async list(caller, query) {
      const listing = {
        where: allOf(conditionsOf(caller, query)),
        userKey: caller.key,
        seesAll: caller.isPlatformAdmin,
      }
      const [total, rows] = await Promise.all([
        countDomains(database.db, listing),
        query.only_total === true
          ? []
          : listDomains(database.db, {
              ...listing,
              order: query.order,
              dir: query.dir ?? 'asc',
              offset: query.offset,
              limit: query.limit,
            }),
      ])
      const items = rows.map(({ record, roleKey, role }) => {
        const shown =
          roleKey === ADMIN_ROLE_KEY
            ? { id: adminRoleId('domain', record.key), name: ADMIN_ROLE_NAME, actions: [...ACTIONS.domain] }
            : role
        return shown === undefined ? record : { ...record, role: shown }
      })
      return { total, offset: query.offset, limit: query.limit, items }
    },
    async update(caller, id, input) {
      const route = input.alias === undefined ? undefined : requireDomainRoute(input.alias, id, reservedRoutes)
      const domain = await requireDomain(caller, id, 'update')
      return await journal.change(caller, async (tx, record) => {
        const updated = await updateDomain(
          tx,
          domain.key,
          {
            ...(input.name === undefined ? {} : { name: input.name }),
            ...(route === undefined ? {} : { route }),
            ...(input.tags === undefined ? {} : { tags: input.tags }),
            ...(input.metadata === undefined ? {} : { metadata: input.metadata }),
            ...(input.retention_days === undefined ? {} : { retentionDays: input.retention_days }),
          },
          caller.id,
        )
        // The fields that we know and no others: a body may hold anything (decision 43).
        const { name, alias, tags, metadata, retention_days } = input
        record({
          operation: 'domain.update',
          domainKey: domain.key,
          entityKeys: [domain.key],
          attributes: { id, name, alias, tags, metadata, retention_days },
        })
        return updated
      })
    },
    async setStatus(caller, id, status) {
      const domain = await requireDomain(caller, id, status === 'enabled' ? 'enable' : 'disable')
      if (domain.status === status) return domain
      return await journal.change(caller, async (tx, record) => {
        const updated = await updateDomain(tx, domain.key, { status }, caller.id)
        record({
          operation: status === 'enabled' ? 'domain.enable' : 'domain.disable',
          domainKey: domain.key,
          entityKeys: [domain.key],
          attributes: { id, status },
        })
        return updated
      })
    },
  }
}

/** A route may be a UUID only when it is the domain's own id (decision 23). */
function requireDomainRoute(route: string, id: string | undefined, reserved: ReadonlySet<string>): string {
  return route === id ? route : requireRoute(route, 'alias', reserved)
}

function conditionsOf(caller: UserPrincipal, query: DomainQuery): RawBuilder<SqlBool>[] {
  const conditions: RawBuilder<SqlBool>[] = []
  if (query.status !== 'all') conditions.push(sql<SqlBool>`d.status = ${query.status}`)
  if (caller.boundDomainKey !== undefined) conditions.push(sql<SqlBool>`d.key = ${caller.boundDomainKey}`)
  if (query.name !== undefined) conditions.push(contains('d.name', query.name))
  if (query.tag !== undefined) conditions.push(sql<SqlBool>`${query.tag} = ANY (d.tags)`)
  if (query.id !== undefined) conditions.push(isId(query.id) ? sql<SqlBool>`d.id = ${query.id}` : sql<SqlBool>`false`)
  if (query.metadata !== undefined) conditions.push(containsMetadata('d.metadata', parseMetadataFilter(query.metadata)))
  return conditions
}
