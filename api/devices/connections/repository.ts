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

/** Each pair once: a client, a channel and the bits of the types that are meant. */
export type Pairs = readonly { clientKey: number; channelKey: number; bits: number }[]

const asTable = (pairs: Pairs) => sql`unnest(${pairs.map((pair) => pair.clientKey)}::bigint[],
  ${pairs.map((pair) => pair.channelKey)}::bigint[], ${pairs.map((pair) => pair.bits)}::smallint[]) AS wanted (client_key, channel_key, types)`

/** Adds the types to every pair; a pair that has them already is not touched. */
export async function insertConnections(
  db: Queryable,
  domainKey: number,
  pairs: Pairs,
  createdBy: string,
): Promise<void> {
  await sql`INSERT INTO connections (client_key, channel_key, domain_key, types, created_by)
    SELECT client_key, channel_key, ${domainKey}, types, ${createdBy} FROM ${asTable(pairs)} ORDER BY client_key, channel_key
    ON CONFLICT ON CONSTRAINT connections_pkey DO UPDATE SET types = connections.types | EXCLUDED.types, updated_at = now()
     WHERE connections.types | EXCLUDED.types <> connections.types`.execute(db)
}

/** Takes the types from every pair; a pair without any left is removed. Unknown pairs are no error. */
export async function removeConnections(db: Queryable, pairs: Pairs): Promise<void> {
  await sql`WITH affected AS MATERIALIZED (
      SELECT n.client_key, n.channel_key, n.types & ~wanted.types AS rest
        FROM connections n JOIN ${asTable(pairs)} ON wanted.client_key = n.client_key AND wanted.channel_key = n.channel_key
       WHERE n.types & wanted.types <> 0 ORDER BY n.client_key, n.channel_key FOR UPDATE OF n),
    removed AS (
      DELETE FROM connections n USING affected a
       WHERE n.client_key = a.client_key AND n.channel_key = a.channel_key AND a.rest = 0)
    UPDATE connections n SET types = a.rest, updated_at = now() FROM affected a
     WHERE n.client_key = a.client_key AND n.channel_key = a.channel_key AND a.rest <> 0`.execute(db)
}
