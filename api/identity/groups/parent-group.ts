/** Checks of the parent group of clients, channels and groups (contract sections 3 and 4). */
import type { Queryable, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { DomainAccess } from '../access/index.ts'

export type ParentGroup = {
  type: 'group'
  key: number
  id: string
  parentGroupKey: number | null
  status: 'enabled' | 'disabled'
}

const COLUMNS = sql`'group' AS type, key, id, parent_key AS "parentGroupKey", status`

function refuse(reason: string): ServiceError {
  return new ServiceError('unprocessable', `failed to set the parent group: ${reason}`)
}

/**
 * Returns the requested parent group, before the transaction. Throws the same `unprocessable` for an unknown group, a
 * group of another domain and one without `read`; `unprocessable` for a disabled group; `forbidden` without any of the
 * actions on it.
 */
export async function requireParentGroup(
  db: Queryable,
  domain: DomainAccess,
  groupId: string,
  anyOf: readonly string[] = ['set_child'],
): Promise<ParentGroup> {
  const { rows } = isId(groupId)
    ? await sql<ParentGroup>`SELECT ${COLUMNS} FROM groups WHERE domain_key = ${domain.domainKey} AND id = ${groupId}`.execute(
        db,
      )
    : { rows: [] }
  const group = rows[0]
  const actions = group === undefined ? new Set<string>() : await domain.actionsOn(group)
  if (group === undefined || !actions.has('read')) throw refuse(`group ${groupId} does not exist in this domain`)
  if (!anyOf.some((action) => actions.has(action)))
    throw new ServiceError(
      'forbidden',
      `failed to perform authorization: requires ${anyOf.join(' or ')} on the group ${group.id}`,
    )
  return requireEnabled(group)
}

/**
 * Returns the group in the transaction that makes it a parent, locked against deletion until the transaction ends. It
 * must be locked before the rows that get it as parent, in the same order as a deletion. Throws `unprocessable` when it
 * was deleted, belongs to another domain or is disabled.
 */
export async function lockGroupFor(tx: Transaction, domainKey: number, groupId: string): Promise<ParentGroup> {
  const { rows } = isId(groupId)
    ? await sql<ParentGroup>`SELECT ${COLUMNS} FROM groups
        WHERE domain_key = ${domainKey} AND id = ${groupId} FOR KEY SHARE`.execute(tx)
    : { rows: [] }
  if (rows[0] === undefined) throw refuse(`group ${groupId} does not exist in this domain`)
  return requireEnabled(rows[0])
}

function requireEnabled(group: ParentGroup): ParentGroup {
  if (group.status !== 'enabled') throw refuse(`group ${group.id} is disabled`)
  return group
}
