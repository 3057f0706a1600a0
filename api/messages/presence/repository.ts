/**
 * Rows of presence. The telemetry row of a client is locked before its sessions are changed and read, so that two concurrent nodes agree
 * on whether it is online. Rows are locked in the order of their keys.
 */
import type { Database, Queryable, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'

/** The open sessions of one client and protocol at one node. */
export type OpenSessions = { protocol: number; sessions: number; subscriptions: number }

/** Messages that were stored as another type than their bytes suggest, and the reason for the last of them. */
export type Unparsed = { messages: number; reason: string; at: Date }

export type PresenceChange = {
  clientKey: number
  /** Sessions began or ended; `sessions` are those that are open now. */
  isChanged: boolean
  outbound: number
  unparsed: Unparsed | undefined
  sessions: readonly OpenSessions[]
}

/**
 * Writes the changes, sorted by key, and returns those of clients that another transaction is changing: they are written later. Deleted
 * clients are omitted. Throws `invalid_state` when the node was removed.
 */
export async function writePresence(
  database: Database,
  node: string,
  changes: readonly PresenceChange[],
): Promise<PresenceChange[]> {
  return await database.transaction(async (tx) => {
    const { rows: alive } = await sql`SELECT FROM nodes WHERE id = ${node} FOR KEY SHARE`.execute(tx)
    if (alive.length === 0) throw new ServiceError('invalid_state', 'other nodes declared this node dead')
    const keys = changes.map(({ clientKey }) => clientKey)
    // Does not wait: a deletion of a client waits for its telemetry rows, some of which are locked here.
    const { rows: held } = await sql<{ key: number }>`
      SELECT key FROM clients WHERE key = ANY (${keys}::bigint[]) ORDER BY key FOR KEY SHARE SKIP LOCKED`.execute(tx)
    const isHeld = new Set(held.map(({ key }) => key))
    const mine = changes.filter(({ clientKey }) => isHeld.has(clientKey))
    await addTelemetry(tx, mine)
    await replaceSessions(
      tx,
      node,
      mine.filter(({ isChanged }) => isChanged),
    )
    if (mine.length === changes.length) return []
    const others = keys.filter((key) => !isHeld.has(key))
    const { rows: busy } = await sql<{ key: number }>`
      SELECT key FROM clients WHERE key = ANY (${others}::bigint[])`.execute(tx)
    const isBusy = new Set(busy.map(({ key }) => key))
    return changes.filter(({ clientKey }) => isBusy.has(clientKey))
  })
}

async function addTelemetry(tx: Transaction, changes: readonly PresenceChange[]): Promise<void> {
  await sql`
    INSERT INTO client_telemetry AS t (client_key, first_seen, last_seen, inbound_messages, outbound_messages, unparsed_messages,
      last_error, last_error_at, is_online, state_since)
    SELECT client_key, now(), now(), 0, outbound, unparsed, error, error_at, is_online, CASE WHEN is_online THEN now() END
      FROM unnest(${changes.map(({ clientKey }) => clientKey)}::bigint[], ${changes.map(({ outbound }) => outbound)}::bigint[],
                  ${changes.map(({ unparsed }) => unparsed?.messages ?? 0)}::bigint[],
                  ${changes.map(({ unparsed }) => unparsed?.reason ?? null)}::text[],
                  ${changes.map(({ unparsed }) => unparsed?.at.toISOString() ?? null)}::timestamptz[],
                  ${changes.map(hasBegun)}::boolean[])
        AS c(client_key, outbound, unparsed, error, error_at, is_online) ORDER BY 1
    ON CONFLICT ON CONSTRAINT client_telemetry_pkey DO UPDATE SET
      last_seen = CASE WHEN t.client_key = ANY (${changes.filter(({ isChanged }) => isChanged).map(({ clientKey }) => clientKey)}::bigint[])
                       THEN greatest(t.last_seen, EXCLUDED.last_seen) ELSE t.last_seen END,
      outbound_messages = t.outbound_messages + EXCLUDED.outbound_messages,
      unparsed_messages = t.unparsed_messages + EXCLUDED.unparsed_messages,
      last_error = CASE WHEN EXCLUDED.last_error_at >= coalesce(t.last_error_at, '-infinity') THEN EXCLUDED.last_error ELSE t.last_error END,
      last_error_at = greatest(t.last_error_at, EXCLUDED.last_error_at),
      is_online = t.is_online OR EXCLUDED.is_online,
      state_since = CASE WHEN EXCLUDED.is_online AND NOT t.is_online THEN EXCLUDED.state_since ELSE t.state_since END`.execute(
    tx,
  )
}

/** A client with a session here is online, whatever other nodes write. */
const hasBegun = ({ isChanged, sessions }: PresenceChange) => isChanged && sessions.length > 0

async function replaceSessions(tx: Transaction, node: string, changes: readonly PresenceChange[]): Promise<void> {
  if (changes.length === 0) return
  const keys = changes.map(({ clientKey }) => clientKey)
  const rows = changes.flatMap(({ clientKey, sessions }) => sessions.map((one) => ({ clientKey, ...one })))
  await sql`
    DELETE FROM client_presence WHERE node = ${node} AND client_key = ANY (${keys}::bigint[])
       AND (client_key, protocol) NOT IN (SELECT * FROM unnest(
         ${rows.map(({ clientKey }) => clientKey)}::bigint[], ${rows.map(({ protocol }) => protocol)}::smallint[]))`.execute(
    tx,
  )
  // A client that subscribes has a row already: keys that stay the same are not checked again.
  await sql`
    INSERT INTO client_presence (client_key, node, protocol, sessions, subscriptions)
    SELECT client_key, ${node}, protocol, sessions, subscriptions
      FROM unnest(${rows.map(({ clientKey }) => clientKey)}::bigint[], ${rows.map(({ protocol }) => protocol)}::smallint[],
                  ${rows.map(({ sessions }) => sessions)}::integer[], ${rows.map(({ subscriptions }) => subscriptions)}::integer[])
        AS s(client_key, protocol, sessions, subscriptions) ORDER BY 1, 3
    ON CONFLICT ON CONSTRAINT client_presence_pkey DO UPDATE
       SET sessions = EXCLUDED.sessions, subscriptions = EXCLUDED.subscriptions`.execute(tx)
  const ended = changes.filter((change) => !hasBegun(change)).map(({ clientKey }) => clientKey)
  if (ended.length > 0) await settleStates(tx, ended, null)
}

/** A client with a session is online. The telemetry rows are locked; `at` is the time of the change, null: now. */
async function settleStates(tx: Transaction, keys: readonly number[], at: string | null): Promise<void> {
  await sql`
    UPDATE client_telemetry t SET is_online = NOT t.is_online, state_since = coalesce(${at}::timestamptz, now())
     WHERE t.client_key = ANY (${keys}::bigint[])
       AND t.is_online <> EXISTS (SELECT FROM client_presence p WHERE p.client_key = t.client_key)`.execute(tx)
}

/** Ends the sessions of the node at this time; null: now. */
export async function removePresenceOf(tx: Transaction, node: string, at: string | null): Promise<void> {
  const { rows: clients } = await sql<{ client_key: number }>`
    SELECT t.client_key FROM client_telemetry t
     WHERE t.client_key IN (SELECT p.client_key FROM client_presence p WHERE p.node = ${node})
     ORDER BY t.client_key FOR NO KEY UPDATE`.execute(tx)
  await sql`DELETE FROM client_presence WHERE node = ${node}`.execute(tx)
  await settleStates(
    tx,
    clients.map(({ client_key: key }) => key),
    at,
  )
}

export type TelemetryRow = {
  subscriptions: number
  inbound_messages: number
  outbound_messages: number
  first_seen: string | null
  last_seen: string | null
  is_online: boolean
  state_since: string | null
  unparsed_messages: number
  last_error: string | null
  last_error_at: string | null
}

/** The telemetry of a client; zeros and nulls for a client without any. */
export async function findTelemetry(db: Queryable, clientKey: number): Promise<TelemetryRow> {
  const { rows } = await sql<TelemetryRow>`
    SELECT coalesce((SELECT sum(subscriptions) FROM client_presence WHERE client_key = ${clientKey}), 0)::int AS subscriptions,
           coalesce(t.inbound_messages, 0) AS inbound_messages, coalesce(t.outbound_messages, 0) AS outbound_messages,
           t.first_seen, t.last_seen, coalesce(t.is_online, false) AS is_online, t.state_since,
           coalesce(t.unparsed_messages, 0) AS unparsed_messages, t.last_error, t.last_error_at
      FROM (SELECT) AS always LEFT JOIN client_telemetry t ON t.client_key = ${clientKey}`.execute(db)
  return rows[0] as TelemetryRow
}
