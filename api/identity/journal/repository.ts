/** SQL of the listings of the journal. */
import { Keyset, pageOf, rangeOf, withinPage } from '#core/database/index.ts'
import type { Queryable } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { ManagedType } from './managed.ts'
import { MANAGED } from './managed.ts'

export type JournalRecord = {
  /** The position of the record as text. */
  id: string
  operation: string
  occurredAt: string
  domainId: string | null
  actorId: string | null
  address: string | null
  requestId: string | null
  tokenType: string | null
  superAdmin: boolean
  entityKeys: number[]
  attributes: Record<string, unknown>
}

type Row = {
  id: string
  operation: string
  occurred_at: string
  domain_id: string | null
  actor_id: string | null
  address: string | null
  request_id: string | null
  token_type: string | null
  super_admin: boolean
  entity_keys: (string | number)[]
  attributes: Record<string, unknown>
}

/**
 * The listed records: all of a domain, those of these entities, or the newest of a domain without those of sessions, which devices can
 * begin and end thousands of times for each change.
 */
export type Scope =
  | { kind: 'domain'; domainKey: number }
  | { kind: 'entities'; keys: readonly number[] }
  | { kind: 'newest changes'; domainKey: number; limit: number }

export type Listing = PageRange & {
  scope: Scope
  /** Conditions on `s`, the source table of the scope. It has the columns `operation` and `occurred_at`. */
  where: Sql<boolean>
  dir: 'asc' | 'desc'
}

/** Operations are few: for each, the beginning of an index is read, however many records of sessions there are. */
function newestOfEach({ domainKey, limit }: { domainKey: number; limit: number }): Sql<unknown> {
  const next = (after: Sql<unknown>) =>
    sql`SELECT j.operation FROM journal j WHERE j.domain_key = ${domainKey} ${after} ORDER BY j.operation LIMIT 1`
  return sql`
    WITH RECURSIVE operations (operation) AS (
      (${next(sql``)}) UNION ALL
      SELECT (${next(sql`AND j.operation > o.operation`)}) FROM operations o WHERE o.operation IS NOT NULL
    )
    SELECT newest.* FROM operations o CROSS JOIN LATERAL (
      SELECT j.xid, j.seq, j.occurred_at, j.operation FROM journal j WHERE j.domain_key = ${domainKey} AND j.operation = o.operation
       ORDER BY j.occurred_at DESC, j.xid DESC, j.seq DESC LIMIT ${limit}) newest
     WHERE o.operation NOT LIKE 'mqtt.%'`
}

function sourceOf(scope: Scope): { table: Sql<unknown>; where: Sql<boolean> } {
  if (scope.kind === 'domain') return { table: sql`journal s`, where: sql<boolean>`s.domain_key = ${scope.domainKey}` }
  if (scope.kind === 'newest changes') return { table: sql`(${newestOfEach(scope)}) s`, where: sql<boolean>`true` }
  const [only, ...more] = scope.keys
  // With one key the index returns the records in order. With several (an id that was reused) they are sorted.
  const where =
    more.length === 0
      ? sql<boolean>`s.entity_key = ${only ?? 0}`
      : sql<boolean>`s.entity_key = ANY (${scope.keys}::bigint[])`
  return { table: sql`journal_subjects s`, where }
}

/** Reads the attributes only on request: those of a bulk change are large. */
export async function listRecords(
  db: Queryable,
  { scope, where, dir, ...range }: Listing,
  { withAttributes }: { withAttributes: boolean },
): Promise<{ items: JournalRecord[]; next: PageEnd }> {
  const source = sourceOf(scope)
  const [ofSource, ofPage] = [inOrderOfTime('s', dir), inOrderOfTime('page', dir)]
  const { rows } = await withinPage(sql<Row & { row_place: string }>`
    SELECT j.xid::text || '-' || j.seq AS id, j.operation, j.occurred_at, coalesce(d.id, removed.id) AS domain_id, j.actor_id, j.address,
           j.request_id, j.token_type, j.super_admin, ${ofPage.place}::text AS row_place,
           ${withAttributes ? sql`j.entity_keys, j.attributes` : sql`'{}'::bigint[] AS entity_keys, '{}'::jsonb AS attributes`}
      FROM (SELECT s.xid, s.seq, s.occurred_at FROM ${source.table} WHERE ${source.where} AND ${where}
               AND ${ofSource.after(range.cursor)} ${rangeOf(ofSource, range)}) page
      JOIN journal j ON j.xid = page.xid AND j.seq = page.seq
      LEFT JOIN domains d ON d.key = j.domain_key
      LEFT JOIN removed_entities removed ON removed.key = j.domain_key
     ORDER BY ${ofPage.order}`).execute(db)
  const page = pageOf(rows, range.limit)
  const items = page.rows.map((row) => ({
    id: row.id,
    operation: row.operation,
    occurredAt: row.occurred_at,
    domainId: row.domain_id,
    actorId: row.actor_id,
    address: row.address,
    requestId: row.request_id,
    tokenType: row.token_type,
    superAdmin: row.super_admin,
    entityKeys: row.entity_keys.map(Number),
    attributes: row.attributes,
  }))
  return { items, next: page.next }
}

const inOrderOfTime = (alias: 's' | 'page', dir: 'asc' | 'desc') =>
  new Keyset(
    [
      { by: sql.ref(`${alias}.occurred_at`), type: 'time' },
      { by: sql.ref(`${alias}.xid`), type: 'xid' },
      { by: sql.ref(`${alias}.seq`), type: 'number' },
    ],
    dir,
  )

export async function countRecords(db: Queryable, scope: Scope, where: Sql<boolean>): Promise<number> {
  const source = sourceOf(scope)
  const { rows } = await sql<{
    total: number
  }>`SELECT count(*) AS total FROM ${source.table} WHERE ${source.where} AND ${where}`.execute(db)
  return rows[0]?.total ?? 0
}

/** Returns the time of the database minus some seconds. */
export async function databaseTime(db: Queryable, secondsAgo: number): Promise<string> {
  const { rows } = await sql<{
    at: string
  }>`SELECT clock_timestamp() - make_interval(secs => ${secondsAgo}) AS at`.execute(db)
  return (rows[0] as { at: string }).at
}

/** Returns the keys of deleted entities with this id, newest first. */
export async function findRemovedKeys(
  db: Queryable,
  domainKey: number | null,
  type: string,
  id: string,
): Promise<number[]> {
  const { rows } = await sql<{ key: number }>`SELECT key FROM removed_entities
    WHERE id = ${id}::uuid AND type = ${type} AND domain_key IS NOT DISTINCT FROM ${domainKey}::bigint ORDER BY key DESC LIMIT 100`.execute(
    db,
  )
  return rows.map((row) => row.key)
}

/** Returns the key of a task, a workflow or a worker in the journal. Null `domainKey`: of no domain. */
export async function findManagedKey(
  db: Queryable,
  domainKey: number | null,
  type: ManagedType,
  id: string,
): Promise<number | undefined> {
  const { table, firstKey } = MANAGED[type]
  const { rows } = await sql<{ key: number }>`SELECT key FROM ${sql.table(table)}
    WHERE id = ${id}::uuid AND domain_key IS NOT DISTINCT FROM ${domainKey}::bigint`.execute(db)
  return rows[0] === undefined ? undefined : firstKey + rows[0].key
}

/** Returns the key of a user, also of a purged one. */
export async function findUserKey(db: Queryable, id: string): Promise<{ key: number; isGone: boolean } | undefined> {
  const { rows } = await sql<{ key: number }>`SELECT key FROM users WHERE id = ${id}::uuid`.execute(db)
  const key = rows[0]?.key
  if (key !== undefined) return { key, isGone: false }
  const [removed] = await findRemovedKeys(db, null, 'user', id)
  return removed === undefined ? undefined : { key: removed, isGone: true }
}
