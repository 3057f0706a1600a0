/** SQL of bulk imports: which of many ids exist in a domain. */
import type { DomainAccess } from '#api/identity/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

export type KnownEnd = { id: string; status: string; isAllowed: boolean }

/** Returns the entities with these ids on which the caller has `read`, and whether they have the action. */
export async function findKnown(
  db: Queryable,
  domain: DomainAccess,
  type: 'client' | 'channel',
  ids: readonly string[],
  action: string,
): Promise<Map<string, KnownEnd>> {
  const { rows } = await sql<{ id: string; status: string; is_allowed: boolean }>`
    SELECT e.id, e.status, ${domain.reachable(type, action, 'e')} AS is_allowed FROM ${sql.table(`${type}s`)} e
     WHERE e.domain_key = ${domain.domainKey} AND e.id = ANY (${ids}::uuid[]) AND ${domain.reachable(type, 'read', 'e')}`.execute(
    db,
  )
  return new Map(rows.map((row) => [row.id, { id: row.id, status: row.status, isAllowed: row.is_allowed }]))
}

/** Returns which of the ids exist in the domain, readable or not, because ids are unique per domain. */
export async function findTaken(
  db: Queryable,
  domainKey: number,
  type: 'client' | 'channel',
  ids: readonly string[],
): Promise<Set<string>> {
  const { rows } = await sql<{ id: string }>`SELECT id FROM ${sql.table(`${type}s`)}
    WHERE domain_key = ${domainKey} AND id = ANY (${ids}::uuid[])`.execute(db)
  return new Set(rows.map(({ id }) => id))
}
