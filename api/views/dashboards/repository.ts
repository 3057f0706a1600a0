/** SQL of dashboards and preferences. */
import { Keyset, readPage } from '#core/database/index.ts'
import type { Queryable, Transaction } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'

export type DashboardRecord = {
  id: string
  ownerKey: number
  ownerId: string
  name: string
  isShared: boolean
  createdAt: string
  updatedAt: string
}
export type WholeDashboard = DashboardRecord & { content: Record<string, unknown> }
export type PreferencesRecord = { preferences: Record<string, unknown>; updatedAt: string }

type Row = {
  id: string
  user_key: number
  user_id: string
  name: string
  is_shared: boolean
  created_at: string
  updated_at: string
}

const COLUMNS = sql`d.id, d.user_key, u.id AS user_id, d.name, d.is_shared, d.created_at, d.updated_at`

const fromRow = (row: Row): DashboardRecord => ({
  id: row.id,
  ownerKey: row.user_key,
  ownerId: row.user_id,
  name: row.name,
  isShared: row.is_shared,
  createdAt: row.created_at,
  updatedAt: row.updated_at,
})

/** The viewer of a domain: their own dashboards and the shared ones. */
export type Viewer = { domainKey: number; userKey: number }

const visible = ({ domainKey, userKey }: Viewer) =>
  sql<boolean>`d.domain_key = ${domainKey} AND (d.user_key = ${userKey} OR d.is_shared)`

export async function findDashboard(db: Queryable, viewer: Viewer, id: string): Promise<WholeDashboard | undefined> {
  const { rows } = await sql<Row & { content: Record<string, unknown> }>`SELECT ${COLUMNS}, d.content
    FROM dashboards d JOIN users u ON u.key = d.user_key WHERE d.id = ${id} AND ${visible(viewer)}`.execute(db)
  return rows[0] === undefined ? undefined : { ...fromRow(rows[0]), content: rows[0].content }
}

/** Own dashboards first, then by name. */
export async function listDashboards(
  db: Queryable,
  viewer: Viewer,
  range: PageRange,
): Promise<{ items: DashboardRecord[]; next: PageEnd }> {
  const source = {
    columns: COLUMNS,
    from: sql`dashboards d`,
    where: visible(viewer),
    keyset: new Keyset([
      { by: sql`(d.user_key = ${viewer.userKey})`, type: 'boolean', dir: 'desc' },
      { by: sql`d.name`, type: 'text' },
      { by: sql`d.id`, type: 'uuid' },
    ]),
    joined: { alias: 'd', tables: sql`JOIN users u ON u.key = d.user_key` },
  }
  const { rows, next } = await readPage<Row>(db, source, range)
  return { items: rows.map(fromRow), next }
}

export async function countDashboards(db: Queryable, viewer: Viewer): Promise<number> {
  const { rows } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM dashboards d WHERE ${visible(viewer)}`.execute(db)
  return rows[0]?.total ?? 0
}

export type NewRow = Viewer & { id: string; name: string; isShared: boolean; content: string }

/** False when the user has the maximum number of dashboards in the domain. */
export async function insertDashboard(tx: Transaction, row: NewRow, max: number): Promise<boolean> {
  // Without the lock, two requests at once could both be the last that is allowed.
  await sql`SELECT 1 FROM users WHERE key = ${row.userKey} FOR NO KEY UPDATE`.execute(tx)
  const { rows } = await sql`INSERT INTO dashboards (id, domain_key, user_key, name, is_shared, content)
    SELECT ${row.id}::uuid, ${row.domainKey}::bigint, ${row.userKey}::bigint, ${row.name}, ${row.isShared}, ${row.content}::jsonb
     WHERE (SELECT count(*) FROM dashboards WHERE domain_key = ${row.domainKey} AND user_key = ${row.userKey}) < ${max}
    RETURNING id`.execute(tx)
  return rows.length > 0
}

export type DashboardChange = { name?: string; isShared?: boolean; content?: string }

export async function updateDashboard(db: Queryable, id: string, change: DashboardChange): Promise<boolean> {
  const { rows } = await sql`UPDATE dashboards SET name = coalesce(${change.name ?? null}, name),
      is_shared = coalesce(${change.isShared ?? null}, is_shared), content = coalesce(${change.content ?? null}::jsonb, content),
      updated_at = now() WHERE id = ${id} RETURNING id`.execute(db)
  return rows.length > 0
}

export async function deleteDashboard(db: Queryable, id: string): Promise<void> {
  await sql`DELETE FROM dashboards WHERE id = ${id}`.execute(db)
}

export async function findPreferences(
  db: Queryable,
  { domainKey, userKey }: Viewer,
): Promise<PreferencesRecord | undefined> {
  const { rows } = await sql<{ content: Record<string, unknown>; updated_at: string }>`SELECT content, updated_at
    FROM preferences WHERE domain_key = ${domainKey} AND user_key = ${userKey}`.execute(db)
  return rows[0] === undefined ? undefined : { preferences: rows[0].content, updatedAt: rows[0].updated_at }
}

export async function storePreferences(db: Queryable, { domainKey, userKey }: Viewer, content: string): Promise<void> {
  await sql`INSERT INTO preferences (domain_key, user_key, content) VALUES (${domainKey}, ${userKey}, ${content}::jsonb)
    ON CONFLICT ON CONSTRAINT preferences_pkey DO UPDATE SET content = excluded.content, updated_at = now()`.execute(db)
}
