/** Finds clients, channels and groups by the ids of a path. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { EntityType } from './actions.ts'

export type LocatedEntity = {
  type: Exclude<EntityType, 'domain'>
  key: number
  id: string
  parentGroupKey: number | null
}

/** The table of each entity type and the column of its parent group. */
export const ENTITY_TABLES = {
  client: { table: 'clients', parent: 'parent_group_key' },
  channel: { table: 'channels', parent: 'parent_group_key' },
  group: { table: 'groups', parent: 'parent_key' },
} as const satisfies Record<LocatedEntity['type'], { table: string; parent: string }>

type Row = { key: number; parent_key: number | null }

export async function findEntity(
  db: Queryable,
  domainKey: number,
  type: LocatedEntity['type'],
  id: string,
): Promise<LocatedEntity | undefined> {
  const { table, parent } = ENTITY_TABLES[type]
  const { rows } = await sql<Row>`SELECT key, ${sql.ref(parent)} AS parent_key FROM ${sql.table(table)}
    WHERE domain_key = ${domainKey} AND id = ${id}`.executePrepared(db, `locate-${type}`)
  const row = rows[0]
  return row === undefined ? undefined : { type, key: row.key, id, parentGroupKey: row.parent_key }
}

/**
 * Finds entities with this id in the domains in which the user has a role, at most `limit`. `isEverywhere` searches all
 * domains. Ids are unique per domain only, so the statement probes the index (domain, id) for each domain.
 */
export async function findEntitiesAnywhere(
  db: Queryable,
  user: { key: number; isEverywhere: boolean; boundDomainKey: number | undefined },
  type: LocatedEntity['type'],
  id: string,
  limit: number,
): Promise<{ domainKey: number; domainId: string; entity: LocatedEntity }[]> {
  const { table, parent } = ENTITY_TABLES[type]
  const domains = user.isEverywhere
    ? sql`domains d`
    : sql`(SELECT DISTINCT domain_key FROM grants WHERE user_key = ${user.key} AND entity_type = 'domain') mine
          JOIN domains d ON d.key = mine.domain_key`
  const { rows } = await sql<Row & { domain_key: number; domain_id: string }>`
    SELECT d.key AS domain_key, d.id AS domain_id, e.key, e.parent_key FROM ${domains}
      CROSS JOIN LATERAL (SELECT key, ${sql.ref(parent)} AS parent_key FROM ${sql.table(table)}
                           WHERE domain_key = d.key AND id = ${id} OFFSET 0) e
     WHERE d.status <> 'deleted' AND (${user.boundDomainKey ?? null}::bigint IS NULL OR d.key = ${user.boundDomainKey ?? null})
     ORDER BY d.key LIMIT ${limit}`.execute(db)
  return rows.map((row) => ({
    domainKey: row.domain_key,
    domainId: row.domain_id,
    entity: { type, key: row.key, id, parentGroupKey: row.parent_key },
  }))
}
