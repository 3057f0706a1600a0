/** The listings of the journal (contract section 10): by user, by entity, by domain. */
import type { Database } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { AccessPolicy, DomainAccess, UserPrincipal } from '../access/index.ts'
import { allOf } from '../listing/index.ts'
import { startOfPage, totalOf } from './counts.ts'
import type { CountedScope } from './counts.ts'
import type { JournalRecord, Scope } from './repository.ts'
import { countRecords, databaseTime, findRemovedKeys, findUserKey, listRecords } from './repository.ts'
import type { JournalQuery } from './schema.ts'
import { createTotalCache } from './total-cache.ts'
import type { DeviceType } from './visibility.ts'
import { aboutType, findReachable, narrowIds, readsEverything, seenInDomain } from './visibility.ts'

export type JournalPage = Page<JournalRecord> & {
  /** Whether the caller may see from which addresses the calls came. */
  showsAddress: boolean
}

export type JournalService = {
  /** What the user did and what was done to him. Throws `forbidden` unless it is the caller or he administers the platform. */
  ofUser(caller: UserPrincipal, userId: string, query: JournalQuery): Promise<JournalPage>
  /**
   * What happened to an entity that the caller may read; to a deleted one for administrators of the domain. `domain`: all
   * that happened in the domain and that the caller may read. Throws `forbidden`, `not_found`.
   */
  ofEntity(
    caller: UserPrincipal,
    domainId: string,
    type: DeviceType | 'domain',
    id: string,
    query: JournalQuery,
  ): Promise<JournalPage>
}

/** What a listing is of. */
type Listed = {
  scope: Scope
  /** Whose records are counted beforehand; undefined: nobody's. */
  counted: CountedScope | undefined
  /** Listings of one scope with the same name have the same condition. */
  name: string
  /** A condition on `s`. */
  where: Sql<boolean>
}

/** Records that were written longer ago than this are committed: no transaction of ours lasts so long. */
const SETTLED_SECONDS = 120

/** Farther from the end that a page is read from, it is worth asking by which day it begins. */
const FAR_OFFSET = 2000

/** Operations under names that older consumers know. */
const OLDER_OPERATIONS: Record<string, readonly string[]> = Object.fromEntries(
  ['client', 'channel', 'group'].map((family) => [
    `${family}.change_status`,
    [`${family}.enable`, `${family}.disable`],
  ]),
)

export function createJournalService({
  database,
  access,
}: {
  database: Database
  access: AccessPolicy
}): JournalService {
  const { db } = database
  const totals = createTotalCache()

  /** Of others than those that are counted beforehand the total is remembered. */
  async function total(asked: Listed, query: JournalQuery): Promise<number> {
    const { scope, name, where } = asked
    const counted = countedOf(asked, query)
    if (counted !== undefined) return await totalOf(db, counted, where)
    const filter = JSON.stringify([scope, name, query.operation, query.from, query.to])
    return await totals.total(filter, {
      count: ({ before, from }) =>
        countRecords(
          db,
          scope,
          allOf([
            where,
            ...(before === undefined ? [] : [sql<boolean>`s.occurred_at < ${before}::timestamptz`]),
            ...(from === undefined ? [] : [sql<boolean>`s.occurred_at >= ${from}::timestamptz`]),
          ]),
        ),
      settledMoment: () => databaseTime(db, SETTLED_SECONDS),
    })
  }

  async function list(asked: Listed, query: JournalQuery): Promise<Page<JournalRecord>> {
    const { scope } = asked
    const where = allOf([asked.where, ...queryConditions(query)])
    const found = await total({ ...asked, where }, query)
    const { offset, limit, dir = 'desc' } = query
    const withAttributes = query.with_attributes === true || query.with_metadata === true
    const counted = countedOf(asked, query)
    const page = async (from: number, count: number, direction: 'asc' | 'desc') => {
      const start =
        counted === undefined || from < FAR_OFFSET
          ? undefined
          : await startOfPage(db, counted, where, { dir: direction, offset: from })
      const slice = start ?? { where, offset: from }
      return await listRecords(db, { scope, ...slice, dir: direction, limit: count }, { withAttributes })
    }
    const left = Math.min(limit, found - offset)
    if (left <= 0) return { total: found, offset, limit, items: [] }
    // The last pages are read from the end.
    const isFar = offset > found / 2
    const items = isFar
      ? (await page(found - offset - left, left, dir === 'desc' ? 'asc' : 'desc')).toReversed()
      : await page(offset, limit, dir)
    return { total: found, offset, limit, items }
  }

  /** Bulk records name entities that the caller may not read. */
  async function narrow(domain: DomainAccess, items: readonly JournalRecord[]): Promise<JournalRecord[]> {
    if (readsEverything(domain)) return [...items]
    const keys = [...new Set(items.flatMap((record) => record.entityKeys))]
    const ids = new Set((await findReachable(db, domain, keys, 'read')).map(({ id }) => id))
    return items.map((record) => ({ ...record, attributes: narrowIds(record.attributes, ids) }))
  }

  /** The keys that the id has and had, and what the caller may do there. */
  async function findEntity(domain: DomainAccess, type: DeviceType, id: string) {
    if (!isId(id)) throw new ServiceError('not_found', 'entity not found')
    const removedKeys = domain.isAdmin ? await findRemovedKeys(db, domain.domainKey, type, id) : []
    try {
      const { entity } = await access.locate(domain.principal, domain.domainId, type, id)
      return { keys: [entity.key, ...removedKeys], seesRoles: (await domain.actionsOn(entity)).has('view_role_users') }
    } catch (error) {
      if (removedKeys.length === 0 || !(error instanceof ServiceError) || error.kind !== 'not_found') throw error
      return { keys: removedKeys, seesRoles: true }
    }
  }

  return {
    async ofUser(caller, userId, query) {
      requireOrder(query)
      if (caller.id !== userId) access.requirePlatformAdmin(caller)
      const user =
        caller.id === userId
          ? { key: caller.key, isGone: false }
          : isId(userId)
            ? await findUserKey(db, userId)
            : undefined
      if (user === undefined) throw new ServiceError('not_found', 'entity not found')
      const bound = caller.boundDomainKey
      // A token bound to a domain works in that domain alone (decision 40).
      const scope = { kind: 'entities', keys: [user.key] } as const
      const asked: Listed =
        bound === undefined
          ? {
              scope,
              // Of a user who is gone not everything was counted.
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
      const page = await list(asked, query)
      // From where somebody else called is not the user's business, whatever was done to him.
      const items = page.items.map((record) =>
        record.actorId === null || record.actorId === userId ? record : { ...record, address: null },
      )
      return { ...page, items, showsAddress: true }
    },
    async ofEntity(caller, domainId, type, id, query) {
      requireOrder(query)
      const domain = await access.enter(caller, domainId)
      if (type === 'domain') {
        if (id !== domain.domainId) throw new ServiceError('not_found', 'entity not found')
        domain.require('read')
        const { where, name } = seenInDomain(domain, 's')
        const { domainKey } = domain
        const counted = { kind: 'domain', key: domainKey } as const
        const page = await list({ scope: { kind: 'domain', domainKey }, counted, name, where }, query)
        return { ...page, items: await narrow(domain, page.items), showsAddress: domain.isAdmin }
      }
      const { keys, seesRoles } = await findEntity(domain, type, id)
      const about = { name: `roles ${seesRoles}`, where: aboutType(type, seesRoles, 's') }
      const page = await list({ scope: { kind: 'entities', keys }, counted: undefined, ...about }, query)
      const items = (await narrow(domain, page.items)).map((record) => ofOne(record, id))
      return { ...page, items, showsAddress: domain.isAdmin }
    },
  }
}

/** In the listing of one entity a record of many is about that one. */
function ofOne(record: JournalRecord, id: string): JournalRecord {
  const { ids, ...attributes } = record.attributes
  return Array.isArray(ids) && ids.includes(id) ? { ...record, attributes: { id, ...attributes } } : record
}

/** Without a limit in time domains and users are counted beforehand. */
const countedOf = ({ counted }: Listed, { from, to }: JournalQuery) =>
  from === undefined && to === undefined ? counted : undefined

function requireOrder({ from, to }: JournalQuery): void {
  if (from === undefined || to === undefined || secondsOf(from) <= secondsOf(to)) return
  throw refusedField('from', 'must not be later than to')
}

/** Above this a moment is in nanoseconds (decision 19). */
const NANOSECONDS_ABOVE = 1e14
const NANOSECONDS = 9
/** 9999-12-31T23:59:59Z: later moments are none of PostgreSQL's concern. */
const MAX_SECONDS = 253_402_300_799

/** Seconds of a moment of the query, as text with all its digits. */
export function secondsTextOf(moment: string): string {
  if (Number(moment) <= NANOSECONDS_ABOVE) return Number(moment) > MAX_SECONDS ? String(MAX_SECONDS) : moment
  const [whole = ''] = moment.split('.', 1)
  return `${whole.slice(0, -NANOSECONDS)}.${whole.slice(-NANOSECONDS)}`
}

const secondsOf = (moment: string) => Number(secondsTextOf(moment))

function queryConditions({ operation, from, to }: JournalQuery): Sql<boolean>[] {
  const at = (moment: string) => sql`to_timestamp(0) + ${`${secondsTextOf(moment)} seconds`}::interval`
  return [
    ...(operation === undefined || operation === ''
      ? []
      : [sql<boolean>`s.operation = ANY (${OLDER_OPERATIONS[operation] ?? [operation]}::text[])`]),
    ...(from === undefined ? [] : [sql<boolean>`s.occurred_at >= ${at(from)}`]),
    ...(to === undefined ? [] : [sql<boolean>`s.occurred_at <= ${at(to)}`]),
  ]
}
