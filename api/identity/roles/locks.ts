/**
 * The locks under which roles change, taken in one order by everybody: domain, entity, users (each sorted by key). Two
 * changes of one entity's roles follow each other, so what one of them checked still holds when it writes. Who leaves a
 * domain is kept out of it until all his roles there are gone.
 */
import type { Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import { ENTITY_TABLES } from '../access/index.ts'
import type { RoleEntity } from './role.ts'

/** Throws `not_found` when the entity was deleted meanwhile. Safe to call again in the same transaction. */
export async function lockForRoles(tx: Transaction, entity: RoleEntity): Promise<void> {
  if (entity.type === 'domain') {
    await lockDomains(tx, [entity.domainKey])
    return
  }
  // Shared: roles of two entities change side by side, but not while members of the domain do.
  await sql`SELECT key FROM domains WHERE key = ${entity.domainKey} FOR SHARE`.execute(tx)
  const { table } = ENTITY_TABLES[entity.type]
  const { rows } = await sql`SELECT key FROM ${sql.table(table)} WHERE key = ${entity.key} FOR NO KEY UPDATE`.execute(
    tx,
  )
  if (rows.length === 0) throw new ServiceError('not_found', 'entity not found')
}

/** Keeps everybody else from changing roles of these domains, on themselves and on everything in them. */
export async function lockDomains(tx: Transaction, domainKeys: readonly number[]): Promise<void> {
  await sql`SELECT key FROM domains WHERE key = ANY (${domainKeys}::bigint[]) ORDER BY key FOR NO KEY UPDATE`.execute(
    tx,
  )
}

export type LockedUser = { key: number; id: string }

/** The users of these ids that exist, kept from being deleted or disabled until the transaction ends. */
export async function lockUsers(tx: Transaction, userIds: readonly string[]): Promise<LockedUser[]> {
  const { rows } = await sql<LockedUser>`SELECT key, id FROM users
    WHERE id = ANY (${userIds}::uuid[]) AND status <> 'deleted' ORDER BY key FOR SHARE`.execute(tx)
  return rows
}
