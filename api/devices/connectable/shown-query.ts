/** Filters of a listing by access and by creator (contract 2.4, 4.1). */
import { parseActions } from '#api/identity/index.ts'
import type { AccessQuery, DomainAccess } from '#api/identity/index.ts'
import { isId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { ConnectableType } from './record.ts'

export type ShownQuery = AccessQuery & {
  actions?: string
  ownerID?: string
  visibility?: 'all' | 'mine' | 'shared'
}

/** Copies `parentID`, the specification's name of the parent group, to `group`. */
export function withParent<Q extends { group?: string; parentID?: string }>(query: Q): Q {
  return query.group === undefined && query.parentID !== undefined ? { ...query, group: query.parentID } : query
}

/** Throws `malformed` before anything is looked up (decision 45). */
export function parseShown(
  type: ConnectableType,
  query: ShownQuery,
): { query: ShownQuery; actions: readonly string[] } {
  return { query, actions: parseActions(type, query.actions) }
}

/** `mine`: created by the caller. `shared`: created by other users (decisions 29 and 51). */
export function ownedAs(
  { principal }: DomainAccess,
  alias: string,
  { ownerID, visibility }: ShownQuery,
): Sql<boolean>[] {
  const createdBy = sql.ref(`${alias}.created_by`)
  const conditions: Sql<boolean>[] = []
  if (ownerID !== undefined)
    conditions.push(isId(ownerID) ? sql<boolean>`${createdBy} = ${ownerID}` : sql<boolean>`false`)
  if (visibility === 'mine') conditions.push(sql<boolean>`${createdBy} = ${principal.id}`)
  if (visibility === 'shared') conditions.push(sql<boolean>`${createdBy} IS DISTINCT FROM ${principal.id}`)
  return conditions
}
