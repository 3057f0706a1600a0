/** SQL of connections. Rows of one statement are sorted by key: two unsorted ones deadlock. */
import { sql } from 'kysely'
import type { DomainAccess } from '#api/identity/index.ts'
import type { Queryable } from '#core/database/index.ts'

export type Endpoint = {
  type: 'client' | 'channel'
  key: number
  id: string
  status: 'enabled' | 'disabled'
  /** Whether the caller may read it at all, and whether he may do what was asked. */
  isReadable: boolean
  isAllowed: boolean
}

/** The given clients or channels of a domain that exist, locked against deletion until the transaction ends. */
export async function findEndpoints(
  db: Queryable,
  domain: DomainAccess,
  type: Endpoint['type'],
  ids: readonly string[],
  action: string,
): Promise<Endpoint[]> {
  const { rows } = await sql<{
    key: number
    id: string
    status: Endpoint['status']
    is_readable: boolean
    is_allowed: boolean
  }>`
    SELECT e.key, e.id, e.status, ${domain.reachable(type, 'read', 'e')} AS is_readable, ${domain.reachable(type, action, 'e')} AS is_allowed
      FROM ${sql.table(`${type}s`)} e
     WHERE e.domain_key = ${domain.domainKey} AND e.id = ANY (${ids}::uuid[]) ORDER BY e.key FOR KEY SHARE OF e`.execute(
    db,
  )
  return rows.map((row) => ({
    type,
    key: row.key,
    id: row.id,
    status: row.status,
    isReadable: row.is_readable,
    isAllowed: row.is_allowed,
  }))
}

/** Every client of the one list with every channel of the other, and the bits of the types that are meant. */
export type Connecting = { clientKeys: readonly number[]; channelKeys: readonly number[]; bits: number }

/** The pairs of all items, each once with the types of every item that names it: one statement cannot touch a row twice. */
const pairsOf = (items: readonly Connecting[]) => sql`(
  SELECT client_key::bigint AS client_key, channel_key::bigint AS channel_key, bit_or((item ->> 'bits')::smallint) AS types
    FROM jsonb_array_elements(${JSON.stringify(items)}::jsonb) AS items (item),
         jsonb_array_elements_text(item -> 'clientKeys') AS client_key, jsonb_array_elements_text(item -> 'channelKeys') AS channel_key
   GROUP BY 1, 2) AS wanted`

/** Adds the types to every pair; a pair that has them already is not touched. */
export async function insertConnections(
  db: Queryable,
  domainKey: number,
  items: readonly Connecting[],
  createdBy: string,
): Promise<void> {
  await sql`INSERT INTO connections (client_key, channel_key, domain_key, types, created_by)
    SELECT client_key, channel_key, ${domainKey}, types, ${createdBy} FROM ${pairsOf(items)} ORDER BY client_key, channel_key
    ON CONFLICT ON CONSTRAINT connections_pkey DO UPDATE SET types = connections.types | EXCLUDED.types, updated_at = now()
     WHERE connections.types | EXCLUDED.types <> connections.types`.execute(db)
}

/** Takes the types from every pair; a pair without any left is removed. Unknown pairs are no error. */
export async function removeConnections(db: Queryable, items: readonly Connecting[]): Promise<void> {
  await sql`WITH affected AS MATERIALIZED (
      SELECT n.client_key, n.channel_key, n.types & ~wanted.types AS rest
        FROM connections n JOIN ${pairsOf(items)} ON wanted.client_key = n.client_key AND wanted.channel_key = n.channel_key
       WHERE n.types & wanted.types <> 0 ORDER BY n.client_key, n.channel_key FOR UPDATE OF n),
    removed AS (
      DELETE FROM connections n USING affected a
       WHERE n.client_key = a.client_key AND n.channel_key = a.channel_key AND a.rest = 0)
    UPDATE connections n SET types = a.rest, updated_at = now() FROM affected a
     WHERE n.client_key = a.client_key AND n.channel_key = a.channel_key AND a.rest <> 0`.execute(db)
}
