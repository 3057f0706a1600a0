/** SQL of domains. */
import { sql } from 'kysely'
import type { RawBuilder, SqlBool } from 'kysely'
import type { Queryable } from '#core/database/index.ts'
import { refusing } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { orderOf } from '../wire/index.ts'
import type { DOMAIN_STATUSES } from './schema.ts'

export type DomainStatus = (typeof DOMAIN_STATUSES)[number]

export type DomainRecord = {
  key: number
  id: string
  name: string
  route: string
  tags: string[]
  metadata: Record<string, unknown>
  status: DomainStatus
  retentionDays: number | null
  createdBy: string | null
  createdAt: string
  updatedBy: string | null
  updatedAt: string | null
  /** In lists: the role of the caller in the domain. */
  role?: { id: string; name: string; actions: string[] }
}

type Row = {
  key: number
  id: string
  name: string
  route: string
  tags: string[]
  metadata: Record<string, unknown>
  status: DomainStatus
  retention_days: number | null
  created_by: string | null
  created_at: string
  updated_by: string | null
  updated_at: string | null
}

function fromRow(row: Row): DomainRecord {
  return {
    key: row.key,
    id: row.id,
    name: row.name,
    route: row.route,
    tags: row.tags,
    metadata: row.metadata,
    status: row.status,
    retentionDays: row.retention_days,
    createdBy: row.created_by,
    createdAt: row.created_at,
    updatedBy: row.updated_by,
    updatedAt: row.updated_at,
  }
}

const CONFLICTS = {
  domains_id_key: () => new ServiceError('conflict', 'a domain with this id exists already'),
  domains_route_key: () => new ServiceError('conflict', 'a domain with this alias (route) exists already'),
}

export type NewDomainRow = Pick<
  DomainRecord,
  'id' | 'name' | 'route' | 'tags' | 'metadata' | 'retentionDays' | 'createdBy'
>

export async function insertDomain(db: Queryable, domain: NewDomainRow): Promise<DomainRecord> {
  const { rows } = await refusing(
    CONFLICTS,
    sql<Row>`INSERT INTO domains (id, name, route, tags, metadata, retention_days, created_by)
      VALUES (${domain.id}, ${domain.name}, ${domain.route}, ${domain.tags}, ${JSON.stringify(domain.metadata)}::jsonb, ${domain.retentionDays}, ${domain.createdBy})
      RETURNING *`.execute(db),
  )
  return fromRow(rows[0] as Row)
}

export async function findDomain(db: Queryable, key: number): Promise<DomainRecord | undefined> {
  const { rows } = await sql<Row>`SELECT * FROM domains WHERE key = ${key}`.execute(db)
  return rows[0] === undefined ? undefined : fromRow(rows[0])
}

export type DomainChange = Partial<
  Pick<DomainRecord, 'name' | 'route' | 'tags' | 'metadata' | 'retentionDays' | 'status'>
>

export async function updateDomain(
  db: Queryable,
  key: number,
  change: DomainChange,
  updatedBy: string,
): Promise<DomainRecord> {
  const sets: RawBuilder<unknown>[] = [sql`updated_at = now()`, sql`updated_by = ${updatedBy}`]
  if (change.name !== undefined) sets.push(sql`name = ${change.name}`)
  if (change.route !== undefined) sets.push(sql`route = ${change.route}`)
  if (change.tags !== undefined) sets.push(sql`tags = ${change.tags}`)
  if (change.metadata !== undefined) sets.push(sql`metadata = ${JSON.stringify(change.metadata)}::jsonb`)
  if (change.retentionDays !== undefined) sets.push(sql`retention_days = ${change.retentionDays}`)
  if (change.status !== undefined) sets.push(sql`status = ${change.status}`)
  const { rows } = await refusing(
    CONFLICTS,
    sql<Row>`UPDATE domains SET ${sql.join(sets)} WHERE key = ${key} RETURNING *`.execute(db),
  )
  if (rows[0] === undefined) throw new ServiceError('not_found', 'entity not found')
  return fromRow(rows[0])
}

export type DomainListing = {
  where: RawBuilder<SqlBool>
  /** The user whose role is shown; undefined lists every domain. */
  userKey: number
  seesAll: boolean
  order: string
  dir: 'asc' | 'desc'
  offset: number
  limit: number
}

type ListedRow = Row & {
  role_key: number | null
  role_id: string | null
  role_name: string | null
  role_actions: string[] | null
}

/** The caller's strongest role comes first: the built-in one, then the oldest. */
export async function listDomains(
  db: Queryable,
  listing: DomainListing,
): Promise<{ record: DomainRecord; roleKey: number | null; role: DomainRecord['role'] }[]> {
  const { rows } = await sql<ListedRow>`
    SELECT d.*, mine.role_key, mine.role_id, mine.role_name, mine.role_actions
      FROM domains d LEFT JOIN LATERAL (
        SELECT g.role_key, r.id AS role_id, r.name AS role_name, r.actions AS role_actions
          FROM grants g LEFT JOIN roles r ON r.key = g.role_key
         WHERE g.user_key = ${listing.userKey} AND g.domain_key = d.key AND g.entity_type = 'domain'
         ORDER BY g.role_key LIMIT 1) mine ON true
     WHERE (${listing.seesAll} OR mine.role_key IS NOT NULL) AND ${listing.where}
     ORDER BY ${orderOf('d', listing.order, listing.dir)} OFFSET ${listing.offset} LIMIT ${listing.limit}`.execute(db)
  return rows.map((row) => ({
    record: fromRow(row),
    roleKey: row.role_key,
    role:
      row.role_id === null
        ? undefined
        : { id: row.role_id, name: row.role_name ?? '', actions: row.role_actions ?? [] },
  }))
}

export async function countDomains(
  db: Queryable,
  listing: Pick<DomainListing, 'where' | 'userKey' | 'seesAll'>,
): Promise<number> {
  const { rows } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM domains d WHERE ${listing.where} AND (${listing.seesAll} OR EXISTS (
    SELECT 1 FROM grants g WHERE g.user_key = ${listing.userKey} AND g.domain_key = d.key AND g.entity_type = 'domain'))`.execute(
    db,
  )
  return rows[0]?.total ?? 0
}
