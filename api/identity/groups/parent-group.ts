/** How clients, channels and other groups get a group as their parent (contract sections 3 and 4). */
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

type Row = { key: number; id: string; parent_key: number | null; status: ParentGroup['status'] }

const facts = (row: Row): ParentGroup => ({
  type: 'group',
  key: row.key,
  id: row.id,
  parentGroupKey: row.parent_key,
  status: row.status,
})

function refuse(reason: string): ServiceError {
  return new ServiceError('unprocessable', `failed to set the parent group: ${reason}`)
}

/**
 * The group that the caller wants to put something into, before the transaction. Unknown, foreign and unreadable ones are
 * `unprocessable` alike, so is a disabled one; `forbidden` when he holds none of the actions on it.
 */
export async function requireParentGroup(
  db: Queryable,
  domain: DomainAccess,
  groupId: string,
  anyOf: readonly string[] = ['set_child'],
): Promise<ParentGroup> {
  const { rows } = isId(groupId)
    ? await sql<Row>`SELECT key, id, parent_key, status FROM groups WHERE domain_key = ${domain.domainKey} AND id = ${groupId}`.execute(
        db,
      )
    : { rows: [] }
  const group = rows[0] === undefined ? undefined : facts(rows[0])
  const actions = group === undefined ? new Set<string>() : await domain.actionsOn(group)
  if (group === undefined || !actions.has('read')) throw refuse(`no group ${groupId} in this domain`)
  if (!anyOf.some((action) => actions.has(action)))
    throw new ServiceError(
      'forbidden',
      `failed to perform authorization: needs ${anyOf.join(' or ')} on the group ${group.id}`,
    )
  return requireEnabled(group)
}

/**
 * The same group inside the transaction that makes it a parent: until this ends it cannot be deleted, so nothing is left
 * pointing at nothing. Lock it before the rows that get it as parent, as a deletion does. Throws `unprocessable` when it
 * is gone, of another domain or disabled.
 */
export async function lockGroupFor(tx: Transaction, domainKey: number, groupId: string): Promise<ParentGroup> {
  const { rows } = isId(groupId)
    ? await sql<Row>`SELECT key, id, parent_key, status FROM groups
        WHERE domain_key = ${domainKey} AND id = ${groupId} FOR KEY SHARE`.execute(tx)
    : { rows: [] }
  if (rows[0] === undefined) throw refuse(`no group ${groupId} in this domain`)
  return requireEnabled(facts(rows[0]))
}

function requireEnabled(group: ParentGroup): ParentGroup {
  if (group.status !== 'enabled') throw refuse(`the group ${group.id} is disabled`)
  return group
}
