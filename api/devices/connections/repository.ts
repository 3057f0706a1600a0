/** SQL of connections. Rows of one statement are sorted by key: two unsorted statements deadlock. */
import type { DomainAccess } from '#api/identity/index.ts'
import { prepared } from '#core/database/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { ConnectableType, EnabledStatus } from '../connectable/record.ts'

export type Endpoint = {
  type: ConnectableType
  key: number
  id: string
  status: EnabledStatus
  /** `isReadable`: the caller has `read`. `isAllowed`: the caller has the required action. */
  isReadable: boolean
  isAllowed: boolean
}

/** Returns the given clients or channels of a domain that exist, locked against deletion until the transaction ends. */
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
    SELECT e.key, e.id, e.status, ${domain.reachable(type, 'read', 'e', 'row')} AS is_readable, ${domain.reachable(type, action, 'e', 'row')} AS is_allowed
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

/** Every client of the first list with every channel of the second, and the bits of the connection types. */
export type Connecting = { clientKeys: readonly number[]; channelKeys: readonly number[]; bits: number }

type Pair = { clientKey: number; channelKey: number; bits: number }

/**
 * Returns the pairs of all items in the order of their keys. Each pair occurs once, with the types of every item that
 * contains it: one statement cannot change a row twice.
 */
function pairsOf(items: readonly Connecting[]): Pair[] {
  const byClient = new Map<number, Map<number, number>>()
  for (const { clientKeys, channelKeys, bits } of items) {
    for (const clientKey of clientKeys) {
      const channels = byClient.get(clientKey) ?? new Map<number, number>()
      byClient.set(clientKey, channels)
      for (const channelKey of channelKeys) channels.set(channelKey, (channels.get(channelKey) ?? 0) | bits)
    }
  }
  const byKey = ([left]: readonly [number, unknown], [right]: readonly [number, unknown]) => left - right
  return [...byClient]
    .toSorted(byKey)
    .flatMap(([clientKey, channels]) =>
      [...channels].toSorted(byKey).map(([channelKey, bits]) => ({ clientKey, channelKey, bits })),
    )
}

/** Number of pairs that one statement inserts. The event loop runs between statements. */
const INSERTED_AT_ONCE = 10_000

const INSERT = prepared(
  'insert_connections',
  `INSERT INTO connections (client_key, channel_key, domain_key, types, created_by)
   SELECT client_key, channel_key, $1, types, $2
     FROM unnest($3::bigint[], $4::bigint[], $5::smallint[]) AS wanted (client_key, channel_key, types) ORDER BY client_key, channel_key
   ON CONFLICT ON CONSTRAINT connections_pkey DO UPDATE SET types = connections.types | EXCLUDED.types, updated_at = now()
    WHERE connections.types | EXCLUDED.types <> connections.types`,
)

/** Adds the types to every pair. A pair that already has them is not changed. Returns the number of changed pairs. */
export async function insertConnections(
  db: Queryable,
  domainKey: number,
  items: readonly Connecting[],
  createdBy: string,
): Promise<number> {
  const pairs = pairsOf(items)
  let changed = 0
  for (let first = 0; first < pairs.length; first += INSERTED_AT_ONCE) {
    const some = pairs.slice(first, first + INSERTED_AT_ONCE)
    const column = (name: keyof Pair) => some.map((pair) => pair[name])
    const columns = [column('clientKey'), column('channelKey'), column('bits')]
    const { numAffectedRows } = await INSERT(db, [domainKey, createdBy, ...columns])
    changed += Number(numAffectedRows ?? 0n)
  }
  return changed
}

/**
 * Removes the types from every pair and deletes pairs without a type. Returns the number of changed pairs. It uses no
 * join: without statistics of the table the planner joins a hundred thousand pairs in a nested loop that exceeds the
 * deadline. An array is compared by hash or index, independent of the statistics.
 */
export async function removeConnections(db: Queryable, items: readonly Connecting[]): Promise<number> {
  const pairs = pairsOf(items)
  const between = (some: typeof pairs) => {
    const clientKeys = [...new Set(some.map((pair) => pair.clientKey))]
    const channelKeys = [...new Set(some.map((pair) => pair.channelKey))]
    const all = sql`client_key = ANY (${clientKeys}::bigint[]) AND channel_key = ANY (${channelKeys}::bigint[])`
    if (some.length === clientKeys.length * channelKeys.length) return all
    const names = some.map((pair) => `${pair.clientKey}/${pair.channelKey}`)
    return sql`${all} AND (client_key || '/' || channel_key) = ANY (${names}::text[])`
  }
  await sql`SELECT count(*) FROM (
    SELECT FROM connections WHERE ${between(pairs)} ORDER BY client_key, channel_key FOR UPDATE) AS locked`.execute(db)
  // Each statement sees pairs that were committed since the previous one. Neither may leave a pair without a type.
  let changed = 0n
  for (const bits of new Set(pairs.map((pair) => pair.bits))) {
    const where = between(pairs.filter((pair) => pair.bits === bits))
    const removed = await sql`DELETE FROM connections WHERE ${where} AND types & ~${bits}::smallint = 0`.execute(db)
    const reduced = await sql`UPDATE connections SET types = types & ~${bits}::smallint, updated_at = now()
      WHERE ${where} AND types & ${bits}::smallint <> 0 AND types & ~${bits}::smallint <> 0`.execute(db)
    changed += (removed.numAffectedRows ?? 0n) + (reduced.numAffectedRows ?? 0n)
  }
  return Number(changed)
}

export type ConnectionRecord = {
  clientId: string
  channelId: string
  bits: number
  createdBy: string | null
  createdAt: string
  updatedAt: string | null
}

/** Returns the connection of a connected pair. */
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
