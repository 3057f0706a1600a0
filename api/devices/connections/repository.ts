/** SQL of connections. Rows of one statement are sorted by key: two unsorted ones deadlock. */
import { sql } from 'kysely'
import type { DomainAccess } from '#api/identity/index.ts'
import type { Queryable } from '#core/database/index.ts'
import type { ConnectableType, EnabledStatus } from '../connectable/record.ts'

export type Endpoint = {
  type: ConnectableType
  key: number
  id: string
  status: EnabledStatus
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

/** Adds the types to every pair; a pair that has them already is not touched. Gives how many pairs changed. */
export async function insertConnections(
  db: Queryable,
  domainKey: number,
  items: readonly Connecting[],
  createdBy: string,
): Promise<number> {
  const { numAffectedRows } = await sql`INSERT INTO connections (client_key, channel_key, domain_key, types, created_by)
    SELECT client_key, channel_key, ${domainKey}, types, ${createdBy} FROM ${pairsOf(items)} ORDER BY client_key, channel_key
    ON CONFLICT ON CONSTRAINT connections_pkey DO UPDATE SET types = connections.types | EXCLUDED.types, updated_at = now()
     WHERE connections.types | EXCLUDED.types <> connections.types`.execute(db)
  return Number(numAffectedRows ?? 0n)
}

/** Takes the types from every pair; a pair without any left is removed. Gives how many pairs changed. */
export async function removeConnections(db: Queryable, items: readonly Connecting[]): Promise<number> {
  const { rows } = await sql<{ changed: number }>`WITH affected AS MATERIALIZED (
      SELECT n.client_key, n.channel_key, n.types & ~wanted.types AS rest
        FROM connections n JOIN ${pairsOf(items)} ON wanted.client_key = n.client_key AND wanted.channel_key = n.channel_key
       WHERE n.types & wanted.types <> 0 ORDER BY n.client_key, n.channel_key FOR UPDATE OF n),
    removed AS (
      DELETE FROM connections n USING affected a
       WHERE n.client_key = a.client_key AND n.channel_key = a.channel_key AND a.rest = 0),
    reduced AS (
      UPDATE connections n SET types = a.rest, updated_at = now() FROM affected a
       WHERE n.client_key = a.client_key AND n.channel_key = a.channel_key AND a.rest <> 0)
    SELECT count(*) AS changed FROM affected`.execute(db)
  return rows[0]?.changed ?? 0
}

export type ConnectionRecord = {
  clientId: string
  channelId: string
  bits: number
  createdBy: string | null
  createdAt: string
  updatedAt: string | null
}

/** The connection of a pair that is connected. */
export async function getConnection(db: Queryable, client: Endpoint, channel: Endpoint): Promise<ConnectionRecord> {
  const { rows } = await sql<{
    types: number
    created_by: string | null
    created_at: string
    updated_at: string | null
  }>`SELECT types, created_by, created_at, updated_at FROM connections
      WHERE client_key = ${client.key} AND channel_key = ${channel.key}`.execute(db)
  const row = rows[0]
  if (row === undefined) throw new Error(`the pair ${client.key} and ${channel.key} is not connected`)
  return {
    clientId: client.id,
    channelId: channel.id,
    bits: row.types,
    createdBy: row.created_by,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
  }
}
