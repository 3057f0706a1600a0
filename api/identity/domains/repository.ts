/** SQL of domains. */
import type { ColumnsOf, Queryable, Transaction } from '#core/database/index.ts'
import { assigned, readPage, refusing, selected } from '#core/database/index.ts'
import { ServiceError, takenField } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { ACTIONS, ADMIN_ROLE_KEY, ADMIN_ROLE_NAME, adminRoleId } from '../access/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { orderedBy } from '../listing/index.ts'
import type { DomainRecord, AssignedRole } from './record.ts'

const COLUMNS = {
  key: 'key',
  id: 'id',
  name: 'name',
  route: 'route',
  tags: 'tags',
  metadata: 'metadata',
  status: 'status',
  retentionDays: 'retention_days',
  alarmRetentionDays: 'alarm_retention_days',
  createdBy: 'created_by',
  createdAt: 'created_at',
  updatedBy: 'updated_by',
  updatedAt: 'updated_at',
} satisfies ColumnsOf<DomainRecord>

const RECORD = selected(COLUMNS, 'd')

const CONFLICTS = {
  domains_id_key: () => takenField('/id', 'a domain with this id already exists'),
  domains_route_key: () => takenField('/alias', 'a domain with this alias (route) already exists'),
}

export type NewDomainRow = Pick<
  DomainRecord,
  'id' | 'name' | 'route' | 'tags' | 'metadata' | 'status' | 'retentionDays' | 'alarmRetentionDays' | 'createdBy'
>

export async function insertDomain(db: Queryable, domain: NewDomainRow): Promise<DomainRecord> {
  const { rows } = await refusing(
    CONFLICTS,
    sql<DomainRecord>`INSERT INTO domains AS d (id, name, route, tags, metadata, status, retention_days, alarm_retention_days, created_by)
      VALUES (${domain.id}, ${domain.name}, ${domain.route}, ${domain.tags}, ${JSON.stringify(domain.metadata)}::jsonb, ${domain.status}, ${domain.retentionDays}, ${domain.alarmRetentionDays}, ${domain.createdBy})
      RETURNING ${RECORD}`.execute(db),
  )
  return rows[0] as DomainRecord
}

export async function findDomain(db: Queryable, key: number): Promise<DomainRecord | undefined> {
  const { rows } = await sql<DomainRecord>`SELECT ${RECORD} FROM domains d WHERE key = ${key}`.execute(db)
  return rows[0]
}

export type DomainChange = Partial<
  Pick<DomainRecord, 'name' | 'route' | 'tags' | 'metadata' | 'retentionDays' | 'alarmRetentionDays' | 'status'>
>

export async function updateDomain(
  db: Queryable,
  key: number,
  change: DomainChange,
  updatedBy: string,
): Promise<DomainRecord> {
  const sets = [sql`updated_at = now()`, sql`updated_by = ${updatedBy}`, ...assigned(change, COLUMNS)]
  if (change.status !== undefined) sets.push(sql`deleted_at = ${change.status === 'deleted' ? sql`now()` : sql`NULL`}`)
  const { rows } = await refusing(
    CONFLICTS,
    sql<DomainRecord>`UPDATE domains d SET ${sql.join(sets)} WHERE key = ${key} RETURNING ${RECORD}`.execute(db),
  )
  if (rows[0] === undefined) throw new ServiceError('not_found', 'entity not found')
  return rows[0]
}

/** Returns the domain, locked until the transaction ends. Undefined when it was removed or is being removed. */
export async function lockDomain(tx: Transaction, key: number): Promise<DomainRecord | undefined> {
  const { rows } = await sql<DomainRecord>`SELECT ${RECORD} FROM domains d
    WHERE key = ${key} AND purge_started_at IS NULL FOR NO KEY UPDATE`.execute(tx)
  return rows[0]
}

/** The user and the roles that a listing selects by. */
export type RoleCondition = {
  userKey: number
  /** Selects only the role with this id. */
  id?: string
  /** The key of the domain whose built-in role has that id. */
  adminOfKey?: number
  name?: string
  /** Selects only roles that contain all of these actions. */
  actions?: readonly string[]
}

export type DomainListing = PageRange & {
  where: Sql<boolean>
  role: RoleCondition
  /** True to list also domains without such a role. */
  isRoleOptional: boolean
  order: string
  dir: 'asc' | 'desc'
}

type RoleRow = { role_key: number; role_id: string | null; role_name: string | null; role_actions: string[] | null }
type ListedRow = DomainRecord & { [Column in keyof RoleRow]: RoleRow[Column] | null }

/** Condition on grants `g`, left joined with roles `r`. */
function grantsOf({ userKey, id, adminOfKey, name, actions }: RoleCondition): Sql<boolean> {
  const conditions = [sql<boolean>`g.user_key = ${userKey} AND g.entity_type = 'domain'`]
  const either = (isBuiltIn: Sql<boolean>, isOwn: Sql<boolean>) =>
    sql<boolean>`(CASE WHEN g.role_key = ${ADMIN_ROLE_KEY} THEN ${isBuiltIn} ELSE ${isOwn} END)`
  if (id !== undefined)
    conditions.push(either(sql<boolean>`g.domain_key = ${adminOfKey ?? null}`, sql<boolean>`r.id = ${id}`))
  if (name !== undefined)
    conditions.push(either(sql<boolean>`${name === ADMIN_ROLE_NAME}`, sql<boolean>`r.name = ${name}`))
  if (actions !== undefined) conditions.push(either(sql<boolean>`true`, sql<boolean>`r.actions @> ${actions}::text[]`))
  return sql<boolean>`${sql.join(conditions, sql` AND `)}`
}

function assignedRole(domainKey: number, row: RoleRow): AssignedRole {
  if (row.role_key === ADMIN_ROLE_KEY)
    return { id: adminRoleId('domain', domainKey), name: ADMIN_ROLE_NAME, actions: [...ACTIONS.domain] }
  return { id: row.role_id ?? '', name: row.role_name ?? '', actions: row.role_actions ?? [] }
}

/** Condition: the user has such a role in the domain. It reads the grants of the user instead of every domain. */
function withRole(listing: Pick<DomainListing, 'role' | 'isRoleOptional'>): Sql<boolean> {
  if (listing.isRoleOptional) return sql<boolean>`true`
  return sql<boolean>`d.key IN (SELECT g.domain_key FROM grants g LEFT JOIN roles r ON r.key = g.role_key WHERE ${grantsOf(listing.role)})`
}

/**
 * Returns each domain with the first of the matching roles: the built-in one, then the oldest. Throws `malformed` for a cursor of
 * another order.
 */
export async function listDomains(
  db: Queryable,
  listing: DomainListing,
): Promise<{ items: { domain: DomainRecord; role: AssignedRole | undefined }[]; next: PageEnd }> {
  const source = {
    columns: sql`${RECORD}, held.*`,
    from: sql`domains d LEFT JOIN LATERAL (
        SELECT g.role_key, r.id AS role_id, r.name AS role_name, r.actions AS role_actions
          FROM grants g LEFT JOIN roles r ON r.key = g.role_key
         WHERE g.domain_key = d.key AND ${grantsOf(listing.role)} ORDER BY g.role_key LIMIT 1) held ON true`,
    where: sql<boolean>`${withRole(listing)} AND ${listing.where}`,
    keyset: orderedBy('d', listing.order, listing.dir),
  }
  const { rows, next } = await readPage<ListedRow>(db, source, listing)
  const items = rows.map((row) => ({
    domain: row,
    role: row.role_key === null ? undefined : assignedRole(row.key, { ...row, role_key: row.role_key }),
  }))
  return { items, next }
}

export async function countDomains(
  db: Queryable,
  listing: Pick<DomainListing, 'where' | 'role' | 'isRoleOptional'>,
): Promise<number> {
  const { rows } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM domains d WHERE ${withRole(listing)} AND ${listing.where}`.execute(db)
  return rows[0]?.total ?? 0
}

/** The number of domains that the user created and that are not deleted. */
export async function countCreated(db: Queryable, userId: string): Promise<number> {
  const { rows } = await sql<{ total: number }>`SELECT count(*) AS total FROM domains
    WHERE created_by = ${userId} AND status <> 'deleted'`.execute(db)
  return rows[0]?.total ?? 0
}

/** Counts the domains that the user with this key created, like `countCreated`. */
export async function countCreatedByKey(db: Queryable, userKey: number): Promise<number> {
  const { rows } = await sql<{ id: string }>`SELECT id FROM users WHERE key = ${userKey}`.execute(db)
  return rows[0] === undefined ? 0 : await countCreated(db, rows[0].id)
}

/** Returns every role of the user on the domain itself: the built-in one first, then the oldest. */
export async function listAssignedRoles(db: Queryable, userKey: number, domainKey: number): Promise<AssignedRole[]> {
  const { rows } = await sql<RoleRow>`
    SELECT g.role_key, r.id AS role_id, r.name AS role_name, r.actions AS role_actions
      FROM grants g LEFT JOIN roles r ON r.key = g.role_key
     WHERE g.domain_key = ${domainKey} AND ${grantsOf({ userKey })} ORDER BY g.role_key`.execute(db)
  return rows.map((row) => assignedRole(domainKey, row))
}

/** Returns the keys of the domains in which the user has the built-in role. */
export async function listAdministered(db: Queryable, userKey: number): Promise<number[]> {
  const { rows } = await sql<{ domain_key: number }>`SELECT domain_key FROM grants
    WHERE user_key = ${userKey} AND entity_type = 'domain' AND role_key = ${ADMIN_ROLE_KEY}`.execute(db)
  return rows.map((row) => row.domain_key)
}

/** Returns the deleted domain with this id if it can still be restored. */
export async function findRestorable(
  db: Queryable,
  id: string,
  userKey: number,
): Promise<{ key: number; isAdmin: boolean } | undefined> {
  const { rows } = await sql<{ key: number; is_admin: boolean }>`
    SELECT d.key, EXISTS (SELECT 1 FROM grants g WHERE g.user_key = ${userKey} AND g.domain_key = d.key
                             AND g.entity_type = 'domain' AND g.role_key = ${ADMIN_ROLE_KEY}) AS is_admin
      FROM domains d WHERE d.id = ${id} AND d.status = 'deleted' AND d.purge_started_at IS NULL`.execute(db)
  const row = rows[0]
  return row === undefined ? undefined : { key: row.key, isAdmin: row.is_admin }
}
