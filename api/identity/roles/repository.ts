/** SQL of roles and their members. */
import type { Queryable, Transaction } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import { Keyset, readPage, refusing } from '#core/database/index.ts'
import { ServiceError, takenField } from '#core/errors/index.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import { ADMIN_ROLE_KEY, ENTITY_TABLES } from '../access/index.ts'
import type { RoleEntity, RoleRecord } from './role.ts'
import { adminRoleOf } from './role.ts'

type Row = {
  key: number
  id: string
  name: string
  actions: string[]
  created_by: string | null
  created_at: string
  updated_by: string | null
  updated_at: string | null
}

function fromRow(row: Row): RoleRecord {
  return {
    key: row.key,
    id: row.id,
    name: row.name,
    actions: row.actions,
    createdBy: row.created_by,
    createdAt: row.created_at,
    updatedBy: row.updated_by,
    updatedAt: row.updated_at,
  }
}

export const roleNameTaken = () => takenField('/role_name', 'a role with this name exists on the entity')

const CONFLICTS = { roles_entity_name_key: roleNameTaken }

export async function findAdminRole(db: Queryable, entity: RoleEntity): Promise<RoleRecord> {
  const table = entity.type === 'domain' ? 'domains' : ENTITY_TABLES[entity.type].table
  const { rows } = await sql<{ created_by: string | null; created_at: string }>`
    SELECT created_by, created_at FROM ${sql.table(table)} WHERE key = ${entity.key}`.execute(db)
  const made = rows[0]
  return adminRoleOf(entity, { createdBy: made?.created_by ?? null, createdAt: made?.created_at ?? null })
}

export async function insertRole(
  tx: Transaction,
  entity: RoleEntity,
  role: { id: string; name: string; actions: readonly string[]; createdBy: string },
): Promise<RoleRecord> {
  const { rows } = await refusing(
    CONFLICTS,
    sql<Row>`INSERT INTO roles (id, entity_type, domain_key, entity_key, name, actions, created_by)
      VALUES (${role.id}, ${entity.type}, ${entity.domainKey}, ${entity.key}, ${role.name}, ${role.actions}, ${role.createdBy})
      RETURNING *`.execute(tx),
  )
  return fromRow(rows[0] as Row)
}

/** Returns a stored role of the entity, not the built-in one. */
export async function findRole(db: Queryable, entityKey: number, roleId: string): Promise<RoleRecord | undefined> {
  const { rows } = await sql<Row>`SELECT * FROM roles WHERE id = ${roleId} AND entity_key = ${entityKey}`.execute(db)
  return rows[0] === undefined ? undefined : fromRow(rows[0])
}

export async function findRoleByName(db: Queryable, entityKey: number, name: string): Promise<RoleRecord | undefined> {
  const { rows } = await sql<Row>`SELECT * FROM roles WHERE entity_key = ${entityKey} AND name = ${name}`.execute(db)
  return rows[0] === undefined ? undefined : fromRow(rows[0])
}

/** Sorted by creation, which a change of the name does not affect. */
export async function listRoles(
  db: Queryable,
  entityKey: number,
  range: PageRange,
): Promise<{ roles: RoleRecord[]; next: PageEnd }> {
  const where = sql<boolean>`entity_key = ${entityKey}`
  const source = { columns: sql`*`, from: sql`roles`, where, keyset: BY_KEY }
  const { rows, next } = await readPage<Row>(db, source, range)
  return { roles: rows.map(fromRow), next }
}

const BY_KEY = new Keyset([{ by: sql`key`, type: 'number' }])

export async function countRoles(db: Queryable, entityKey: number): Promise<number> {
  const { rows } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM roles WHERE entity_key = ${entityKey}`.execute(db)
  return rows[0]?.total ?? 0
}

export async function updateRole(
  tx: Transaction,
  roleKey: number,
  change: { name: string; actions: readonly string[] },
  updatedBy: string,
): Promise<RoleRecord> {
  const { rows } = await refusing(
    CONFLICTS,
    sql<Row>`UPDATE roles SET name = ${change.name}, actions = ${change.actions}, updated_by = ${updatedBy}, updated_at = now()
      WHERE key = ${roleKey} RETURNING *`.execute(tx),
  )
  if (rows[0] === undefined) throw new ServiceError('not_found', 'role not found')
  return fromRow(rows[0])
}

export async function deleteRole(tx: Transaction, roleKey: number): Promise<void> {
  await sql`DELETE FROM roles WHERE key = ${roleKey}`.execute(tx)
}

/** Returns the members of several roles of an entity, oldest membership first, at most `limit` for each role. */
export async function findMembers(
  db: Queryable,
  entityKey: number,
  roleKeys: readonly number[],
  limit: number,
): Promise<Map<number, string[]>> {
  const { rows } = await sql<{ role_key: number; user_ids: string[] }>`
    SELECT wanted.role_key, ARRAY(
        SELECT u.id::text FROM grants g JOIN users u ON u.key = g.user_key
         WHERE g.entity_key = ${entityKey} AND g.role_key = wanted.role_key
         ORDER BY g.created_at, u.key LIMIT ${limit}) AS user_ids
      FROM unnest(${roleKeys}::bigint[]) AS wanted (role_key)`.execute(db)
  return new Map(rows.map((row) => [row.role_key, row.user_ids]))
}

export async function listMembers(
  db: Queryable,
  entityKey: number,
  roleKey: number,
  range: PageRange,
): Promise<{ items: string[]; next: PageEnd }> {
  const source = {
    columns: sql`u.id`,
    from: sql`grants g`,
    where: sql<boolean>`g.entity_key = ${entityKey} AND g.role_key = ${roleKey}`,
    keyset: OLDEST_FIRST,
    joined: { alias: 'g', tables: sql`JOIN users u ON u.key = g.user_key` },
  }
  const { rows, next } = await readPage<{ id: string }>(db, source, range)
  return { items: rows.map((row) => row.id), next }
}

const OLDEST_FIRST = new Keyset([
  { by: sql`g.created_at`, type: 'time' },
  { by: sql`g.user_key`, type: 'number' },
])

export async function countMembers(db: Queryable, entityKey: number, roleKey: number): Promise<number> {
  const { rows } = await sql<{ total: number }>`SELECT count(*) AS total FROM grants
    WHERE entity_key = ${entityKey} AND role_key = ${roleKey}`.execute(db)
  return rows[0]?.total ?? 0
}

/** Returns which of these users have a role in the domain. */
export async function findDomainMembers(
  db: Queryable,
  domainKey: number,
  userKeys: readonly number[],
): Promise<Set<number>> {
  const { rows } = await sql<{ user_key: number }>`SELECT DISTINCT user_key FROM grants
    WHERE user_key = ANY (${userKeys}::bigint[]) AND domain_key = ${domainKey} AND entity_type = 'domain'`.execute(db)
  return new Set(rows.map((row) => row.user_key))
}

/** Existing members are not an error. */
export async function insertGrants(
  tx: Transaction,
  entity: RoleEntity,
  roleKey: number,
  userKeys: readonly number[],
): Promise<void> {
  await sql`INSERT INTO grants (user_key, entity_type, domain_key, entity_key, role_key)
    SELECT user_key, ${entity.type}, ${entity.domainKey}, ${entity.key}, ${roleKey}
      FROM unnest(${userKeys}::bigint[]) user_key ORDER BY user_key
    ON CONFLICT ON CONSTRAINT grants_pkey DO NOTHING`.execute(tx)
}

/**
 * Removes these users, or all users, from one role or every role of the entity. Returns the keys of the removed users.
 */
export async function deleteGrants(
  tx: Transaction,
  entity: RoleEntity,
  roleKey: number | 'every',
  userKeys: readonly number[] | 'all',
): Promise<number[]> {
  const ofRole = roleKey === 'every' ? sql`` : sql` AND role_key = ${roleKey}`
  const ofUsers = userKeys === 'all' ? sql`` : sql` AND user_key = ANY (${userKeys}::bigint[])`
  const { rows } = await sql<{ user_key: number }>`DELETE FROM grants
    WHERE entity_key = ${entity.key} AND domain_key = ${entity.domainKey} AND entity_type = ${entity.type}${ofRole}${ofUsers}
    RETURNING user_key`.execute(tx)
  return [...new Set(rows.map((row) => row.user_key))]
}

/** True when a user other than these is an administrator of the entity. For a domain only enabled users are counted. */
export async function hasAdmin(
  db: Queryable,
  entity: RoleEntity,
  exceptUserKeys: readonly number[] = [],
): Promise<boolean> {
  const mustBeEnabled = entity.type === 'domain'
  const { rows } = await sql`SELECT 1 FROM grants g JOIN users u ON u.key = g.user_key
    WHERE g.entity_key = ${entity.key} AND g.role_key = ${ADMIN_ROLE_KEY} AND g.user_key <> ALL (${exceptUserKeys}::bigint[])
      AND (NOT ${mustBeEnabled} OR u.status = 'enabled')
    LIMIT 1`.execute(db)
  return rows.length > 0
}
