/** The listings of the journal (contract section 10): by user, by entity, by domain. */
import { sql } from 'kysely'
import type { RawBuilder, SqlBool } from 'kysely'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import type { AccessPolicy, DomainAccess, UserPrincipal } from '../access/index.ts'
import { allOf } from '../wire/index.ts'
import type { JournalRecord, Scope } from './repository.ts'
import { countRecords, databaseTime, findDepartedKeys, findUserKey, listRecords } from './repository.ts'
import type { JournalQuery } from './schema.ts'
import { createTotals } from './totals.ts'
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

/** Records that were written longer ago than this are committed: no transaction of ours lasts so long. */
const SETTLED_SECONDS = 120

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
  const totals = createTotals()

  async function list(
    scope: Scope,
    conditions: readonly RawBuilder<SqlBool>[],
    query: JournalQuery,
    filterName: string,
  ): Promise<Page<JournalRecord>> {
    const where = allOf([...conditions, ...queryConditions(query)])
    const filter = JSON.stringify([scope, filterName, query.operation, query.from, query.to])
    const total = await totals.total(filter, {
      count: ({ before, from }) =>
        countRecords(
          db,
          scope,
          allOf([
            where,
            ...(before === undefined ? [] : [sql<SqlBool>`s.occurred_at < ${before}::timestamptz`]),
            ...(from === undefined ? [] : [sql<SqlBool>`s.occurred_at >= ${from}::timestamptz`]),
          ]),
        ),
      settledMoment: () => databaseTime(db, SETTLED_SECONDS),
    })
    const { offset, limit, dir = 'desc' } = query
    const withAttributes = query.with_attributes === true || query.with_metadata === true
    const page = (from: number, count: number, direction: 'asc' | 'desc') =>
      listRecords(db, { scope, where, dir: direction, offset: from, limit: count }, { withAttributes })
    const left = Math.min(limit, total - offset)
    if (left <= 0) return { total, offset, limit, items: [] }
    // The last pages are read from the end.
    const isFar = offset > total / 2
    const items = isFar
      ? (await page(total - offset - left, left, dir === 'desc' ? 'asc' : 'desc')).toReversed()
      : await page(offset, limit, dir)
    return { total, offset, limit, items }
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
    const departed = domain.isAdmin ? await findDepartedKeys(db, domain.domainKey, type, id) : []
    try {
      const { entity } = await access.locate(domain.principal, domain.domainId, type, id)
      return { keys: [entity.key, ...departed], seesRoles: (await domain.actionsOn(entity)).has('view_role_users') }
    } catch (error) {
      if (departed.length === 0 || !(error instanceof ServiceError) || error.kind !== 'not_found') throw error
      return { keys: departed, seesRoles: true }
    }
  }

  return {
    async ofUser(caller, userId, query) {
      requireOrder(query)
      if (caller.id !== userId) access.requirePlatformAdmin(caller)
      const key = caller.id === userId ? caller.key : isId(userId) ? await findUserKey(db, userId) : undefined
      if (key === undefined) throw new ServiceError('not_found', 'entity not found')
      const bound = caller.boundDomainKey
      // A token bound to a domain works in that domain alone (decision 40).
      const inDomain =
        bound === undefined
          ? []
          : [
              sql<SqlBool>`EXISTS (SELECT FROM journal b WHERE b.xid = s.xid AND b.seq = s.seq AND b.domain_key = ${bound})`,
            ]
      const page = await list({ kind: 'entities', keys: [key] }, inDomain, query, `user in ${bound}`)
      return { ...page, showsAddress: true }
    },
    async ofEntity(caller, domainId, type, id, query) {
      requireOrder(query)
      const domain = await access.enter(caller, domainId)
      if (type === 'domain') {
        if (id !== domain.domainId) throw new ServiceError('not_found', 'entity not found')
        domain.require('read')
        const { where, name } = seenInDomain(domain, 's')
        const page = await list({ kind: 'domain', domainKey: domain.domainKey }, [where], query, name)
        return { ...page, items: await narrow(domain, page.items), showsAddress: domain.isAdmin }
      }
      const { keys, seesRoles } = await findEntity(domain, type, id)
      const page = await list(
        { kind: 'entities', keys },
        [aboutType(type, seesRoles, 's')],
        query,
        `roles ${seesRoles}`,
      )
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

function requireOrder({ from, to }: JournalQuery): void {
  if (from === undefined || to === undefined || secondsOf(from) <= secondsOf(to)) return
  throw new ServiceError('malformed', 'from must not be later than to', {
    details: [{ path: 'from', message: 'must not be later than to' }],
  })
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

function queryConditions({ operation, from, to }: JournalQuery): RawBuilder<SqlBool>[] {
  const at = (moment: string) => sql`to_timestamp(0) + ${`${secondsTextOf(moment)} seconds`}::interval`
  return [
    ...(operation === undefined || operation === ''
      ? []
      : [sql<SqlBool>`s.operation = ANY (${OLDER_OPERATIONS[operation] ?? [operation]}::text[])`]),
    ...(from === undefined ? [] : [sql<SqlBool>`s.occurred_at >= ${at(from)}`]),
    ...(to === undefined ? [] : [sql<SqlBool>`s.occurred_at <= ${at(to)}`]),
  ]
}
