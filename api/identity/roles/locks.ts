/**
 * The locks for changes of roles. Every transaction takes them in one order: domain, entity, users (each sorted by
 * key). Changes of one entity's roles are serialized, so checks stay valid until the change is written. A user who
 * leaves a domain cannot get roles in it until all of their roles there are removed.
 */
import type { Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import { ENTITY_TABLES } from '../access/index.ts'
import type { RoleEntity } from './role.ts'

/** Throws `not_found` when the entity was deleted meanwhile. It can be called repeatedly in one transaction. */
export async function lockForRoles(tx: Transaction, entity: RoleEntity): Promise<void> {
  if (entity.type === 'domain') {
    await lockDomains(tx, [entity.domainKey])
    return
  }
  // A shared lock: roles of two entities can change concurrently, but not while members of the domain change.
  await sql`SELECT key FROM domains WHERE key = ${entity.domainKey} FOR SHARE`.execute(tx)
  const { table } = ENTITY_TABLES[entity.type]
  const { rows } = await sql`SELECT key FROM ${sql.table(table)} WHERE key = ${entity.key} FOR NO KEY UPDATE`.execute(
    tx,
  )
  if (rows.length === 0) throw new ServiceError('not_found', 'entity not found')
}

/** Locks the roles of these domains and of all entities in them against other transactions. */
export async function lockDomains(tx: Transaction, domainKeys: readonly number[]): Promise<void> {
  await sql`SELECT key FROM domains WHERE key = ANY (${domainKeys}::bigint[]) ORDER BY key FOR NO KEY UPDATE`.execute(
    tx,
  )
}

export type LockedUser = { key: number; id: string }

/** Returns the existing users with these ids, locked against deletion and disabling until the transaction ends. */
export async function lockUsers(tx: Transaction, userIds: readonly string[]): Promise<LockedUser[]> {
  const { rows } = await sql<LockedUser>`SELECT key, id FROM users
    WHERE id = ANY (${userIds}::uuid[]) AND status <> 'deleted' ORDER BY key FOR SHARE`.execute(tx)
  return rows
}
