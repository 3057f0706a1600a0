/** SQL of connections. Rows of one statement are sorted by key: two unsorted ones deadlock. */
import { sql } from 'kysely'
import type { Queryable } from '#core/database/index.ts'

export type Endpoint = {
  type: 'client' | 'channel'
  key: number
  id: string
  status: 'enabled' | 'disabled'
  parentGroupKey: number | null
}

/** The given clients or channels of a domain that exist, locked against deletion until the transaction ends. */
export async function findEndpoints(
  db: Queryable,
  type: Endpoint['type'],
  domainKey: number,
  ids: readonly string[],
): Promise<Endpoint[]> {
  const { rows } = await sql<{ key: number; id: string; status: Endpoint['status']; parent_group_key: number | null }>`
    SELECT key, id, status, parent_group_key FROM ${sql.table(`${type}s`)}
     WHERE domain_key = ${domainKey} AND id = ANY (${ids}::uuid[]) ORDER BY key FOR KEY SHARE`.execute(db)
  return rows.map((row) => ({
    type,
    key: row.key,
    id: row.id,
    status: row.status,
    parentGroupKey: row.parent_group_key,
  }))
}

/** Adds the types to every pair; a pair that has them already is not touched. */
export async function insertConnections(
  db: Queryable,
  domainKey: number,
  clientKeys: readonly number[],
  channelKeys: readonly number[],
  bits: number,
  createdBy: string,
): Promise<void> {
  await sql`INSERT INTO connections (client_key, channel_key, domain_key, types, created_by)
    SELECT client_key, channel_key, ${domainKey}, ${bits}::smallint, ${createdBy}
      FROM unnest(${clientKeys}::bigint[]) client_key CROSS JOIN unnest(${channelKeys}::bigint[]) channel_key
     ORDER BY client_key, channel_key
    ON CONFLICT ON CONSTRAINT connections_pkey DO UPDATE SET types = connections.types | EXCLUDED.types, updated_at = now()
     WHERE connections.types | EXCLUDED.types <> connections.types`.execute(db)
}

/** Takes the types from every pair; a pair without any left is removed. Unknown pairs are no error. */
export async function removeConnections(
  db: Queryable,
  clientKeys: readonly number[],
  channelKeys: readonly number[],
  bits: number,
): Promise<void> {
  const pairs = sql`client_key = ANY (${clientKeys}::bigint[]) AND channel_key = ANY (${channelKeys}::bigint[])`
  await sql`SELECT 1 FROM connections WHERE ${pairs} ORDER BY client_key, channel_key FOR UPDATE`.execute(db)
  await sql`DELETE FROM connections WHERE ${pairs} AND types & ~${bits}::smallint & 3 = 0`.execute(db)
  await sql`UPDATE connections SET types = types & ~${bits}::smallint & 3, updated_at = now() WHERE ${pairs} AND types & ${bits}::smallint <> 0`.execute(
    db,
  )
}
