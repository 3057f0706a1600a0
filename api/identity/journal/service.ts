/** The listings of the journal by user, by entity and by domain (contract section 10). */
import type { Database } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import { NO_MORE } from '#core/cursor.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { AccessPolicy, DomainAccess, UserPrincipal } from '../access/index.ts'
import { allOf } from '../listing/index.ts'
import { startOfPage, totalOf } from './counts.ts'
import type { CountedScope } from './counts.ts'
import type { ManagedType } from './managed.ts'
import { MANAGED, isManagedType } from './managed.ts'
import type { JournalRecord, Scope } from './repository.ts'
import { countRecords, databaseTime, findManagedKey, findRemovedKeys, findUserKey, listRecords } from './repository.ts'
import type { JournalFilter } from './schema.ts'
import { createTotalCache } from './total-cache.ts'
import type { DeviceType } from './visibility.ts'
import { aboutType, findReachable, narrowIds, readsEverything, seenInDomain } from './visibility.ts'

export type JournalPage = Page<JournalRecord> & {
  /** True when the caller may see the addresses of the requests. */
  showsAddress: boolean
}

/** The records of a listing. */
type Listed = {
  scope: Scope
  /** The domain or user whose records are counted in advance. Undefined without such counts. */
  counted: CountedScope | undefined
  /** Listings of one scope with the same name have the same condition. It is part of the cache key. */
  name: string
  /** Condition on the source table `s`. */
  where: Sql<boolean>
}

/** Records older than this are committed: no transaction of Skein takes as long. */
const SETTLED_SECONDS = 120

/** Offset from which on the counts per day are used to find the start of a page. */
const FAR_OFFSET = 2000

export class JournalService {
  readonly #database: Database
  readonly #access: AccessPolicy
  readonly #totals = createTotalCache()

  constructor({ database, access }: { database: Database; access: AccessPolicy }) {
    this.#database = database
    this.#access = access
  }

  /**
   * Lists the actions of the user and the changes of their account. Throws `forbidden` unless the caller is the user or
   * a platform administrator.
   */
  async ofUser(caller: UserPrincipal, userId: string, query: JournalFilter): Promise<JournalPage> {
    requireOrder(query)
    if (caller.id !== userId) this.#access.requirePlatformAdmin(caller)
    const user =
      caller.id === userId
        ? { key: caller.key, isGone: false }
        : isId(userId)
          ? await findUserKey(this.#database.db, userId)
          : undefined
    if (user === undefined) throw new ServiceError('not_found', 'entity not found')
    const bound = caller.boundDomainKey
    // A token that is bound to a domain is valid in that domain only (decision 40).
    const scope = { kind: 'entities', keys: [user.key] } as const
    const asked: Listed =
      bound === undefined
        ? {
            scope,
            // The counts of a deleted user are incomplete.
            counted: user.isGone ? undefined : { kind: 'user', key: user.key },
            name: 'user',
            where: sql<boolean>`true`,
          }
        : {
            scope,
            counted: undefined,
            name: `user in ${bound}`,
            where: sql<boolean>`EXISTS (SELECT FROM journal b WHERE b.xid = s.xid AND b.seq = s.seq AND b.domain_key = ${bound})`,
          }
    const page = await this.#list(asked, query)
    // The addresses of other users are not shown to the user.
    const items = page.items.map((record) =>
      record.actorId === null || record.actorId === userId ? record : { ...record, address: null },
    )
    return { ...page, items, showsAddress: true }
  }

  /** The newest changes in the domain that the caller may read, without sessions of devices. Throws `forbidden`. */
  async newestChanges(
    caller: UserPrincipal,
    domainId: string,
    limit: number,
  ): Promise<Pick<JournalPage, 'items' | 'showsAddress'>> {
    const domain = await this.#access.enter(caller, domainId)
    domain.require('read')
    const scope = { kind: 'newest changes', domainKey: domain.domainKey, limit } as const
    const { where } = seenInDomain(domain, 's')
    const { items } = await listRecords(
      this.#database.db,
      { scope, where, dir: 'desc', offset: 0, limit },
      { withAttributes: true },
    )
    return { items: await this.#narrow(domain, items), showsAddress: domain.isAdmin }
  }

  /**
   * Lists the changes of a worker that belongs to no domain. Throws `forbidden` unless the caller is a platform administrator,
   * `not_found`.
   */
  async ofPlatformWorker(caller: UserPrincipal, workerId: string, query: JournalFilter): Promise<JournalPage> {
    requireOrder(query)
    this.#access.requirePlatformAdmin(caller)
    const keys = await this.#findManagedKeys(null, 'worker', workerId, { withRemoved: true })
    return { ...(await this.#listManaged(keys, query)), showsAddress: true }
  }

  /**
   * Lists the changes of an entity that the caller may read, or for administrators of the domain of a deleted entity.
   * For `domain` it lists every change in the domain that the caller may read. Throws `forbidden`, `not_found`.
   */
  async ofEntity(
    caller: UserPrincipal,
    domainId: string,
    type: DeviceType | ManagedType | 'domain',
    id: string,
    query: JournalFilter,
  ): Promise<JournalPage> {
    requireOrder(query)
    const domain = await this.#access.enter(caller, domainId)
    if (type === 'domain') {
      if (id !== domain.domainId) throw new ServiceError('not_found', 'entity not found')
      domain.require('read')
      const { where, name } = seenInDomain(domain, 's')
      const { domainKey } = domain
      const counted = { kind: 'domain', key: domainKey } as const
      const asked = { scope: { kind: 'domain', domainKey }, counted, name, where } as const
      const page =
        readsEverything(domain) && isNewestChanges(query)
          ? await this.#newest(asked, query)
          : await this.#list(asked, query)
      return { ...page, items: await this.#narrow(domain, page.items), showsAddress: domain.isAdmin }
    }
    if (isManagedType(type)) {
      return {
        ...(await this.#listManaged(await this.#findManaged(domain, type, id), query)),
        showsAddress: domain.isAdmin,
      }
    }
    const { keys, seen } = await this.#findEntity(domain, type, id)
    const about = { name: JSON.stringify(seen), where: aboutType(type, seen, 's') }
    const page = await this.#list({ scope: { kind: 'entities', keys }, counted: undefined, ...about }, query)
    const items = (await this.#narrow(domain, page.items)).map((record) => ofOne(record, id))
    return { ...page, items, showsAddress: domain.isAdmin }
  }

  /** Totals of records that are not counted in advance are cached. */
  async #total(asked: Listed, query: JournalFilter): Promise<number> {
    const { scope, name, where } = asked
    const counted = countedOf(asked, query)
    if (counted !== undefined) return await totalOf(this.#database.db, counted, where)
    const filter = JSON.stringify([scope, name, query.operations, query.sessions, query.from, query.to])
    return await this.#totals.total(filter, {
      count: ({ before, from }) =>
        countRecords(
          this.#database.db,
          scope,
          allOf([
            where,
            ...(before === undefined ? [] : [sql<boolean>`s.occurred_at < ${before}::timestamptz`]),
            ...(from === undefined ? [] : [sql<boolean>`s.occurred_at >= ${from}::timestamptz`]),
          ]),
        ),
      settledMoment: () => databaseTime(this.#database.db, SETTLED_SECONDS),
    })
  }

  async #list(asked: Listed, query: JournalFilter): Promise<Page<JournalRecord>> {
    const { scope } = asked
    const where = allOf([asked.where, ...queryConditions(query)])
    const found = await this.#total({ ...asked, where }, query)
    const { offset, limit, cursor, dir = 'desc' } = query
    const withAttributes = query.with_attributes === true || query.with_metadata === true
    const counted = countedOf(asked, query)
    const page = async (from: number, count: number, direction: 'asc' | 'desc') => {
      const start =
        counted === undefined || from < FAR_OFFSET
          ? undefined
          : await startOfPage(this.#database.db, counted, where, { dir: direction, offset: from })
      const slice = start ?? { where, offset: from }
      return await listRecords(
        this.#database.db,
        { scope, ...slice, dir: direction, limit: count, cursor },
        { withAttributes },
      )
    }
    if (cursor !== undefined) return { total: found, offset, limit, ...(await page(0, limit, dir)) }
    const left = Math.min(limit, found - offset)
    if (left <= 0) return { total: found, offset, limit, items: [], next: NO_MORE }
    // Pages of the second half are read from the end.
    if (offset <= found / 2) return { total: found, offset, limit, ...(await page(offset, limit, dir)) }
    const { items, next } = await page(found - offset - left, left, dir === 'desc' ? 'asc' : 'desc')
    // A page that is cut lacks its last rows, and those would be its first ones here.
    if (items.length < left) return { total: found, offset, limit, ...(await page(offset, limit, dir)) }
    const end = { places: next.places.toReversed(), hasMore: offset + left < found }
    return { total: found, offset, limit, items: items.toReversed(), next: end }
  }

  /** The first pages without sessions, which may be most of the newest records: those of each operation are read from an index. */
  async #newest(asked: Listed & { scope: { domainKey: number } }, query: JournalFilter): Promise<Page<JournalRecord>> {
    const where = allOf([asked.where, ...queryConditions(query)])
    const { offset, limit } = query
    const scope = { kind: 'newest changes', domainKey: asked.scope.domainKey, limit: offset + limit + 1 } as const
    const withAttributes = query.with_attributes === true || query.with_metadata === true
    const [found, page] = await Promise.all([
      this.#total({ ...asked, where }, query),
      listRecords(this.#database.db, { scope, where, dir: 'desc', offset, limit }, { withAttributes }),
    ])
    return { total: found, offset, limit, ...page }
  }

  /** Bulk records contain ids of entities that the caller may not read. They are removed. */
  async #narrow(domain: DomainAccess, items: readonly JournalRecord[]): Promise<JournalRecord[]> {
    if (readsEverything(domain)) return [...items]
    const keys = [...new Set(items.flatMap((record) => record.entityKeys))]
    const ids = new Set((await findReachable(this.#database.db, domain, keys, 'read')).map(({ id }) => id))
    return items.map((record) => ({ ...record, attributes: narrowIds(record.attributes, ids) }))
  }

  /** Returns the current and former keys of the id, and whether the caller may see its roles. */
  async #findEntity(domain: DomainAccess, type: DeviceType, id: string) {
    if (!isId(id)) throw new ServiceError('not_found', 'entity not found')
    const removedKeys = domain.isAdmin ? await findRemovedKeys(this.#database.db, domain.domainKey, type, id) : []
    try {
      const { entity } = await this.#access.locate(domain.principal, domain.domainId, type, id)
      const actions = await domain.actionsOn(entity)
      const seen = { seesRoles: actions.has('view_role_users'), seesState: actions.has('state_read') }
      return { keys: [entity.key, ...removedKeys], seen }
    } catch (error) {
      if (removedKeys.length === 0 || !(error instanceof ServiceError) || error.kind !== 'not_found') throw error
      return { keys: removedKeys, seen: { seesRoles: true, seesState: true } }
    }
  }

  /** Returns the current and former keys of a task, a workflow or a worker. */
  async #findManaged(domain: DomainAccess, type: ManagedType, id: string): Promise<number[]> {
    domain.require(MANAGED[type].action)
    return await this.#findManagedKeys(domain.domainKey, type, id, { withRemoved: domain.isAdmin })
  }

  /** If `domainKey` is null, it finds entities that belong to no domain. */
  async #findManagedKeys(
    domainKey: number | null,
    type: ManagedType,
    id: string,
    { withRemoved }: { withRemoved: boolean },
  ): Promise<number[]> {
    const [key, removedKeys] = isId(id)
      ? await Promise.all([
          findManagedKey(this.#database.db, domainKey, type, id),
          withRemoved ? findRemovedKeys(this.#database.db, domainKey, type, id) : [],
        ])
      : [undefined, []]
    const keys = [...(key === undefined ? [] : [key]), ...removedKeys]
    if (keys.length === 0) throw new ServiceError('not_found', 'entity not found')
    return keys
  }

  async #listManaged(keys: readonly number[], query: JournalFilter) {
    return await this.#list(
      { scope: { kind: 'entities', keys }, counted: undefined, name: 'managed', where: sql<boolean>`true` },
      query,
    )
  }
}

/** In the listing of one entity, a bulk record is presented as a record of this entity. */
function ofOne(record: JournalRecord, id: string): JournalRecord {
  const { ids, ...attributes } = record.attributes
  return Array.isArray(ids) && ids.includes(id) ? { ...record, attributes: { id, ...attributes } } : record
}

/** Counts in advance exist only for listings without a time range. */
const countedOf = ({ counted }: Listed, { from, to }: JournalFilter) =>
  from === undefined && to === undefined ? counted : undefined

function requireOrder({ from, to }: JournalFilter): void {
  if (from === undefined || to === undefined || secondsOf(from) <= secondsOf(to)) return
  throw refusedField('from', 'must not be later than to')
}

/** Times above this are in nanoseconds (decision 19). */
const NANOSECONDS_ABOVE = 1e14
const NANOSECONDS = 9
/** 9999-12-31T23:59:59Z. Later times are out of PostgreSQL's range here and are clamped. */
const MAX_SECONDS = 253_402_300_799

/** Returns a time of the query in seconds, as text with all its digits. */
export function secondsTextOf(moment: string): string {
  if (Number(moment) <= NANOSECONDS_ABOVE) return Number(moment) > MAX_SECONDS ? String(MAX_SECONDS) : moment
  const [whole = ''] = moment.split('.', 1)
  return `${whole.slice(0, -NANOSECONDS)}.${whole.slice(-NANOSECONDS)}`
}

const secondsOf = (moment: string) => Number(secondsTextOf(moment))

/** Pages near the beginning, without a filter that an index of the records serves. */
function isNewestChanges({
  sessions,
  operations,
  from,
  to,
  cursor,
  offset,
  limit,
  dir = 'desc',
}: JournalFilter): boolean {
  const hasFilter = operations !== undefined || from !== undefined || to !== undefined || cursor !== undefined
  return sessions === false && !hasFilter && dir === 'desc' && offset + limit <= FAR_OFFSET
}

function queryConditions({ operations, sessions, from, to }: JournalFilter): Sql<boolean>[] {
  const at = (moment: string) => sql`to_timestamp(0) + ${`${secondsTextOf(moment)} seconds`}::interval`
  return [
    ...(operations === undefined ? [] : [sql<boolean>`s.operation = ANY (${operations}::text[])`]),
    ...(sessions === false ? [sql<boolean>`s.operation NOT LIKE 'mqtt.%'`] : []),
    ...(from === undefined ? [] : [sql<boolean>`s.occurred_at >= ${at(from)}`]),
    ...(to === undefined ? [] : [sql<boolean>`s.occurred_at <= ${at(to)}`]),
  ]
}
