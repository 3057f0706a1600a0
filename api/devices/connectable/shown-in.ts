/** Which rows a listing shows: those that the caller may read, in the way that the query asks for (contract 2.4, 4.1). */
import { sql } from 'kysely'
import type { RawBuilder, SqlBool } from 'kysely'
import { accessConditions, allOf, parseActions, requireMayListFor } from '#api/identity/index.ts'
import type { AccessQuery, DomainAccess, ShownRows } from '#api/identity/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { isId } from '#core/ids.ts'
import type { ConnectableType } from './record.ts'

export type ShownQuery = AccessQuery & {
  actions?: string
  ownerID?: string
  visibility?: 'all' | 'mine' | 'shared'
}

/** The specification calls the parent group `parentID`. */
export function withParent<Q extends { group?: string; parentID?: string }>(query: Q): Q {
  return query.group === undefined && query.parentID !== undefined ? { ...query, group: query.parentID } : query
}

/** What is malformed in the query is said before anything is looked up (decision 45). */
export function parseShown(
  type: ConnectableType,
  query: ShownQuery,
): { query: ShownQuery; actions: readonly string[] } {
  return { query, actions: parseActions(type, query.actions) }
}

/** Rows of the table `alias`, by domain. Throws `forbidden` for the reach of somebody else. */
export async function shownIn(
  db: Queryable,
  domains: readonly DomainAccess[],
  listed: { type: ConnectableType; alias: string },
  { query, actions }: ReturnType<typeof parseShown>,
): Promise<ShownRows[]> {
  requireMayListFor(domains, query.user)
  return await Promise.all(
    domains.map(async (domain) => {
      const { page, count, isWhole } = await domain.reachableRows(listed.type, 'read', listed.alias)
      const asked = await accessConditions(db, domain, listed, actions, query)
      const owned = ownedAs(domain, sql.ref(`${listed.alias}.created_by`), query)
      return {
        domain,
        page: allOf([page, ...asked.page, ...owned]),
        count: allOf([count, ...asked.count, ...owned]),
        isWhole: isWhole && asked.page.length + owned.length === 0,
      }
    }),
  )
}

/** `mine`: created by the caller; `shared`: by somebody else (decisions 29 and 51). */
function ownedAs(
  { principal }: DomainAccess,
  createdBy: RawBuilder<unknown>,
  { ownerID, visibility }: ShownQuery,
): RawBuilder<SqlBool>[] {
  const conditions: RawBuilder<SqlBool>[] = []
  if (ownerID !== undefined)
    conditions.push(isId(ownerID) ? sql<SqlBool>`${createdBy} = ${ownerID}` : sql<SqlBool>`false`)
  if (visibility === 'mine') conditions.push(sql<SqlBool>`${createdBy} = ${principal.id}`)
  if (visibility === 'shared') conditions.push(sql<SqlBool>`${createdBy} IS DISTINCT FROM ${principal.id}`)
  return conditions
}
