/**
 * The rows that a listing of clients, channels or groups contains, by domain: those that the caller may read (contract
 * 2.4).
 */
import type { Queryable } from '#core/database/index.ts'
import type { Sql } from '#core/sql.ts'
import type { Accessible, DomainAccess, EntityFacts, GrantsPlan } from '../access/index.ts'
import { accessConditions, accessibleToUser, requireMayListFor } from './access-filter.ts'
import type { AccessQuery } from './access-filter.ts'

/** The listed rows of one domain. */
export type ShownRows = {
  domain: DomainAccess
  accessible: Accessible
  /** Further conditions on the access to the rows. */
  narrowed(plan: GrantsPlan): readonly Sql<boolean>[]
  isNarrowed: boolean
}

/**
 * Returns the rows of the table `alias` that the caller may read and that match the access filters of the query, with
 * `more` conditions for each domain. Throws `forbidden` when the query asks for the access of another user and the
 * caller is not an administrator.
 */
export async function shownRows(
  db: Queryable,
  domains: readonly DomainAccess[],
  listed: { type: EntityFacts['type']; alias: string },
  { actions, query }: { actions: readonly string[]; query: AccessQuery },
  more: (domain: DomainAccess) => readonly Sql<boolean>[],
): Promise<ShownRows[]> {
  requireMayListFor(domains, query.user)
  const shown = await Promise.all(
    domains.map(async (domain): Promise<ShownRows | undefined> => {
      const asked = await accessConditions(db, domain, listed, actions, query)
      const others = more(domain)
      const own = domain.accessible(listed.type, 'read')
      const other = query.user === undefined ? undefined : await accessibleToUser(db, domain, listed.type, query.user)
      if (query.user !== undefined && other === undefined) return undefined
      const [accessible, beside] =
        other === undefined || other.isWhole ? [own, undefined] : own.isWhole ? [other, undefined] : [own, other]
      const narrowed = (plan: GrantsPlan) => [
        ...(beside === undefined ? [] : [beside.isAmong(listed.alias, plan)]),
        ...asked(plan),
        ...others,
      ]
      return { domain, accessible, narrowed, isNarrowed: narrowed('row').length > 0 }
    }),
  )
  return shown.filter((rows) => rows !== undefined)
}
