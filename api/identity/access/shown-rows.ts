/** Which rows a listing of clients, channels or groups shows, domain by domain: those that the caller may read (contract 2.4). */
import type { Queryable } from '#core/database/index.ts'
import type { Sql } from '#core/sql.ts'
import { allOf } from '../wire/index.ts'
import { accessConditions, requireMayListFor, rowsReadBy } from './access-filter.ts'
import type { AccessQuery } from './access-filter.ts'
import type { Within } from './kept-labels.ts'
import type { DomainAccess, EntityFacts, ReachableRows } from './policy.ts'

/** Rows of one domain that are shown: its key and the conditions on the listed table, or on the table of what is reached. */
export type ShownRows = Omit<ReachableRows, 'many'> & {
  domain: DomainAccess
  reached?: { table: Sql<unknown>; count: Sql<boolean> }
  /** Of rows in memory those are shown that are within this. */
  within?: () => Promise<Within>
  /** Not whole, but most of it by all that is known. */
  isMost: boolean
}

/**
 * Rows of the table `alias` that the caller may read, of these those that the query asks for by access, and `more` in each
 * domain. `status`, `all` or one, of clients and channels of which nothing else is asked. Throws `forbidden` for the reach of somebody else.
 */
export async function shownRows(
  db: Queryable,
  domains: readonly DomainAccess[],
  listed: { type: EntityFacts['type']; alias: string; status?: string | undefined },
  { actions, query }: { actions: readonly string[]; query: AccessQuery },
  more: (domain: DomainAccess) => readonly Sql<boolean>[],
): Promise<ShownRows[]> {
  requireMayListFor(domains, query.user)
  return await Promise.all(
    domains.map(async (domain) => {
      const asked = await accessConditions(db, domain, listed, actions, query)
      const others = more(domain)
      const isAllAsked = others.length + asked.count.length === 0
      // Whatever else is asked of the rows, each of them is opened for it anyway.
      const status = isAllAsked ? listed.status : undefined
      const own = await domain.reachableRows(listed.type, 'read', listed.alias, status)
      const { page, count, isWhole, isByKeys, known, many } =
        query.user === undefined ? own : bothOf(own, await rowsReadBy(db, domain, { ...listed, status }, query.user))
      return {
        domain,
        page: allOf([page, ...asked.page, ...others]),
        count: allOf([count, ...asked.count, ...others]),
        isWhole: isWhole && asked.page.length + others.length === 0,
        // Who is shown everything by a role of the domain has few roles on what lies in it.
        isMost: isWhole && query.access_type === 'domain',
        isByKeys,
        ...(known === undefined ? {} : { known }),
        ...(many === undefined || others.length > 0
          ? {}
          : { reached: { table: many.table, count: allOf(asked.count) } }),
        ...(many !== undefined && isAllAsked ? { within: many.within } : {}),
      }
    }),
  )
}

function bothOf(own: ReachableRows, other: ReachableRows): ReachableRows {
  if (own.isWhole) return other
  if (other.isWhole) return own
  return {
    page: allOf([own.page, other.page]),
    count: allOf([own.count, other.count]),
    isWhole: false,
    isByKeys: own.isByKeys || other.isByKeys,
  }
}
