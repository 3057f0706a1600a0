/** SQL of rules about the state of clients: what changed, and what there is to look at. */
import type { Queryable, Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

/** Documents are texts, which are parsed in turns of the event loop. */
export type Documents = { desired: string; reported: string; delta: string }

export type ChangeRow = {
  key: number
  clientKey: number
  /** The id of a client that was deleted; null: the client exists. */
  goneId: string | null
  /** Name of the document that changed; null: none did. */
  document: string | null
  isOnline: boolean | null
  atMs: number
} & { [Side in keyof Documents]: string | null }

/** The next clients that a rule looks at. It begins with those that were deleted while it was paused or disabled: nobody noted that for it. */
export type Look = { ruleKey: number; document: string; after: number; limit: number }

/**
 * Reads the oldest changes of the domain, in order, and the next clients after them with one snapshot: a client is looked at as it is behind the
 * changes that are read, so the look is the last of these. Undefined: no rule looks. What is evaluated is removed in the same transaction; nobody else
 * reads it while the rules of the domain are locked.
 */
export async function readChanges(
  tx: Transaction,
  domainKey: number,
  limit: number,
  look: Look | undefined,
): Promise<{ changes: ChangeRow[]; looked: ChangeRow[] }> {
  const lookedAt = look === undefined ? NOBODY : sql`${goneOf(domainKey, look)} UNION ALL ${clientsOf(domainKey, look)}`
  const { rows } = await sql<ChangeRow & { isLook: boolean }>`
    SELECT false AS "isLook", key, client_key AS "clientKey", client_id AS "goneId", document, is_online AS "isOnline", desired::text, reported::text,
      delta::text, extract(epoch FROM changed_at)::float8 * 1000 AS "atMs"
      FROM (SELECT * FROM rule_changes WHERE domain_key = ${domainKey} ORDER BY key LIMIT ${limit}) r
    UNION ALL
    SELECT true, key, key, gone_id, document, is_online, desired, reported, delta, extract(epoch FROM clock_timestamp())::float8 * 1000
      FROM (${lookedAt}) l ORDER BY 1, 2`.execute(tx)
  return { changes: rows.filter(({ isLook }) => !isLook), looked: rows.filter(({ isLook }) => isLook) }
}

const NOBODY = sql`SELECT NULL::bigint AS key, NULL::uuid AS gone_id, NULL::text AS document, NULL::boolean AS is_online, NULL::text AS desired,
  NULL::text AS reported, NULL::text AS delta WHERE false`

const clientsOf = (domainKey: number, { document, after, limit }: Look): Sql => {
  const empty = sql`'{}'`
  return sql`SELECT c.key, NULL::uuid AS gone_id, ${document}::text AS document, coalesce(t.is_online, false) AS is_online,
      coalesce(s.desired::text, ${empty}) AS desired, coalesce(s.reported::text, ${empty}) AS reported, coalesce(s.delta::text, ${empty}) AS delta
    FROM (SELECT key FROM clients WHERE domain_key = ${domainKey} AND key > ${after} ORDER BY key LIMIT ${limit}) c
      LEFT JOIN device_states s ON s.client_key = c.key AND s.name = ${document} LEFT JOIN client_telemetry t ON t.client_key = c.key`
}

/** Only before the first client. What waits to be cleared is not found again. */
const goneOf = (domainKey: number, { ruleKey, after, limit }: Look): Sql =>
  sql`(SELECT 0::bigint AS key, s.publisher_id::uuid AS gone_id, NULL::text AS document, NULL::boolean AS is_online, NULL::text AS desired, NULL::text AS reported,
      NULL::text AS delta FROM rule_states s
    WHERE ${after} = 0 AND s.rule_key = ${ruleKey} AND s.state -> 'state' ->> 'status' = 'active' AND s.due_at IS NULL
      AND NOT EXISTS (SELECT FROM clients c WHERE c.domain_key = ${domainKey} AND c.id = s.publisher_id::uuid) LIMIT ${limit})`

/** Deletes changes by their keys: a transaction that commits late may have an earlier one than these. */
export async function removeChanges(tx: Transaction, keys: readonly number[]): Promise<void> {
  if (keys.length === 0) return
  await sql`DELETE FROM rule_changes WHERE key = ANY (${[...keys]}::bigint[])`.execute(tx)
}

/** Where a rule stands that looks at clients; undefined: it does not look any more. */
export async function findLook(tx: Transaction, ruleKey: number): Promise<number | undefined> {
  const { rows } = await sql<{
    after: number | null
  }>`SELECT look_after AS after FROM rules WHERE key = ${ruleKey}`.execute(tx)
  return rows[0]?.after ?? undefined
}

/** Null: it has looked at all of them. */
export async function storeLook(tx: Transaction, ruleKey: number, after: number | null): Promise<void> {
  await sql`UPDATE rules SET look_after = ${after} WHERE key = ${ruleKey}`.execute(tx)
}

/** Transactions that begin now have this position or a later one. */
export async function snapshotEnd(tx: Transaction): Promise<bigint> {
  const { rows } = await sql<{ end: string }>`SELECT pg_snapshot_xmax(position_snapshot())::text AS end`.execute(tx)
  return BigInt(rows[0]?.end ?? 0)
}

/** Whether all transactions before the position have ended: the changes of later ones are kept for each rule that was there then. */
export async function isSettled(tx: Transaction, position: bigint): Promise<boolean> {
  const { rows } = await sql<{
    settled: boolean
  }>`SELECT position_xmin() >= ${position.toString()}::xid8 AS settled`.execute(tx)
  return rows[0]?.settled === true
}

export type WatchedClient = {
  key: number
  id: string
  name: string
  tags: string[]
  metadata: Record<string, unknown>
  parentGroupKey: number | null
  isEnabled: boolean
  isOnline: boolean
  /** Those of the channels that were asked for on which it may publish. */
  channels: string[]
}

export async function listWatchedClients(
  db: Queryable,
  keys: readonly number[],
  channelIds: readonly string[],
): Promise<WatchedClient[]> {
  if (keys.length === 0) return []
  const channels: Sql =
    channelIds.length === 0
      ? sql`'{}'::text[]`
      : sql`ARRAY(SELECT h.id::text FROM connections k JOIN channels h ON h.key = k.channel_key AND h.domain_key = c.domain_key
          WHERE k.client_key = c.key AND k.types & 1 <> 0 AND h.id = ANY (${[...channelIds]}::uuid[]))`
  const { rows } =
    await sql<WatchedClient>`SELECT c.key, c.id, c.name, c.tags, c.metadata, c.parent_group_key AS "parentGroupKey",
      c.status = 'enabled' AS "isEnabled", coalesce(t.is_online, false) AS "isOnline", ${channels} AS channels
    FROM clients c LEFT JOIN client_telemetry t ON t.client_key = c.key WHERE c.key = ANY (${[...keys]}::bigint[])`.execute(
      db,
    )
  return rows
}

export type DocumentRow = Documents & { clientKey: number; name: string }

export async function listDocuments(
  db: Queryable,
  clientKeys: readonly number[],
  names: readonly string[],
): Promise<DocumentRow[]> {
  if (clientKeys.length === 0 || names.length === 0) return []
  const { rows } =
    await sql<DocumentRow>`SELECT client_key AS "clientKey", name, desired::text, reported::text, delta::text FROM device_states
    WHERE client_key = ANY (${[...clientKeys]}::bigint[]) AND name = ANY (${[...names]}::text[])`.execute(db)
  return rows
}

/**
 * Nobody evaluates changes in domains whose last rule about state was disabled, paused or deleted: when it goes on, it looks at all clients. Removes at
 * most `limit`, and returns their number.
 */
export async function removeStrayChanges(db: Queryable, limit: number): Promise<number> {
  const { rows } = await sql`WITH RECURSIVE changed (key) AS (SELECT min(domain_key) FROM rule_changes
      UNION ALL SELECT (SELECT min(c.domain_key) FROM rule_changes c WHERE c.domain_key > changed.key) FROM changed WHERE changed.key IS NOT NULL)
    DELETE FROM rule_changes WHERE key IN (SELECT c.key FROM rule_changes c
      WHERE c.domain_key IN (SELECT key FROM changed WHERE key IS NOT NULL AND NOT has_rules_of_state(key)) LIMIT ${limit} FOR UPDATE SKIP LOCKED)
    RETURNING key`.execute(db)
  return rows.length
}
