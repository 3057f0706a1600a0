/** Opens the session of a connection: resumes it, or creates a new one (MQTT 5.0 section 3.1.2.4). */
import type { Recorder } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import type { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import { countUnexpired, isUnexpired, tooManySessions } from './session-limit.ts'
import type { SessionQuota, SessionQuotas } from './session-quotas.ts'
import type { SessionFacts } from './session-events.ts'
import { recordSessionEvent } from './session-events.ts'
import type { OpenSession, OpenedSession, SessionName, SessionOwner, StoredWill } from './rows.ts'
import { loadOutbound, loadReceived } from './outbound.ts'
import { loadSubscriptions, partFromNode } from './subscriptions.ts'
import { formatWill, parseWill } from './wills.ts'

type Known = SessionFacts & {
  /** Counts towards the limit of its client. */
  is_unexpired: boolean
  key: number
  node: string
  is_connected: boolean
  epoch: number
  is_alive: boolean
  will: unknown
  will_payload: Buffer | null
  is_will_overdue: boolean
}

const idOf = ({ clientKey, clientIdentifier }: SessionOwner) => `${clientKey} ${clientIdentifier}`

/**
 * One result per request, in order; of two requests for one session the later one wins. `unprocessable` for a new session of a client at
 * its limit, `quota_exceeded` for one of a domain at its quota. The clients are locked.
 */
export async function openSessions(
  tx: Transaction,
  record: Recorder,
  { node, ...limits }: { node: string } & SessionLimits,
  requests: readonly OpenSession[],
): Promise<(OpenedSession | ServiceError)[]> {
  if (requests.length === 0) return []
  const last = new Map(requests.map((request) => [idOf(request), request]))
  const asked = [...last.values()].toSorted(
    (one, other) => one.clientKey - other.clientKey || (one.clientIdentifier < other.clientIdentifier ? -1 : 1),
  )
  const known = await lockKnown(tx, asked)
  const refusals = await refused(tx, asked, known, limits)
  const wanted = asked.filter((request) => !refusals.has(idOf(request)))
  for (const id of refusals.keys()) known.delete(id)
  const isKept = (row: Known | undefined, request: OpenSession) => row !== undefined && row.is_alive && !request.isClean
  const ended = wanted.flatMap((request) => {
    const row = known.get(idOf(request))
    return row === undefined || isKept(row, request) ? [] : [row]
  })
  await notifyTakeovers(tx, node, [...known.values()])
  // A connection that lost the session may write nothing more, so its end is recorded here.
  for (const row of known.values()) if (row.is_connected) recordSessionEvent(record, 'disconnect', row, row.node)
  if (ended.length > 0) {
    await sql`DELETE FROM mqtt_sessions WHERE key = ANY (${ended.map(({ key }) => key)}::bigint[])`.execute(tx)
  }
  const keptKeys = wanted.flatMap((request) => {
    const row = known.get(idOf(request))
    return row !== undefined && isKept(row, request) ? [row.key] : []
  })
  await partFromNode(tx, keptKeys)
  const [subscriptions, received, outbound] = [
    await loadSubscriptions(tx, keptKeys),
    await loadReceived(tx, keptKeys),
    await loadOutbound(tx, keptKeys),
  ]
  // The sessions are written last: until here each row has the previous node and its position.
  const opened = await upsert(tx, node, wanted)
  for (const row of opened.values()) recordSessionEvent(record, 'connect', row, node)
  return requests.map((request) => {
    const refusal = refusals.get(idOf(request))
    if (refusal !== undefined) return refusal
    const row = known.get(idOf(request))
    const { key, epoch } = opened.get(idOf(request)) as { key: number; epoch: number }
    const kept = isKept(row, request)
    return {
      key,
      epoch,
      isPresent: kept,
      isNewSession: row?.is_unexpired !== true,
      isNewConnection: row?.is_connected !== true,
      subscriptions: subscriptions.get(key) ?? [],
      received: received.get(key) ?? [],
      outbound: outbound.get(key) ?? [],
      endedWill: row === undefined ? undefined : endedWill(row, kept),
    }
  })
}

export type SessionLimits = { maxSessionsPerClient: number; quotas: SessionQuotas }

/** The sessions, by their ids, that their client or their domain has no room for. */
async function refused(
  tx: Transaction,
  asked: readonly OpenSession[],
  known: ReadonlyMap<string, Known>,
  { maxSessionsPerClient, quotas }: SessionLimits,
): Promise<Map<string, ServiceError>> {
  const isNew = (request: OpenSession) => known.get(idOf(request))?.is_unexpired !== true
  const clientKeys = [...new Set(asked.filter(isNew).map(({ clientKey }) => clientKey))]
  const counts = clientKeys.length === 0 ? new Map<number, number>() : await countUnexpired(tx, clientKeys)
  const rooms = new Rooms(quotas)
  const refusals = new Map<string, ServiceError>()
  for (const request of asked) {
    const { clientKey, domainKey } = request
    const count = counts.get(clientKey) ?? 0
    const more: SessionQuota[] = []
    if (isNew(request)) more.push('mqtt_sessions')
    if (known.get(idOf(request))?.is_connected !== true) more.push('mqtt_connections')
    const exceeded = more.find((name) => !rooms.has(domainKey, name))
    if (isNew(request) && count >= maxSessionsPerClient)
      refusals.set(idOf(request), tooManySessions(maxSessionsPerClient))
    else if (exceeded !== undefined) refusals.set(idOf(request), quotas.refusal(domainKey, exceeded))
    else {
      for (const name of more) rooms.take(domainKey, name)
      if (isNew(request)) counts.set(clientKey, count + 1)
    }
  }
  return refusals
}

/** The room of domains that one batch divides among its sessions. */
class Rooms {
  readonly #quotas: SessionQuotas
  readonly #left = new Map<string, number>()

  constructor(quotas: SessionQuotas) {
    this.#quotas = quotas
  }

  has(domainKey: number, name: SessionQuota): boolean {
    return this.#leftOf(domainKey, name) > 0
  }

  take(domainKey: number, name: SessionQuota): void {
    this.#left.set(`${domainKey} ${name}`, this.#leftOf(domainKey, name) - 1)
  }

  #leftOf(domainKey: number, name: SessionQuota): number {
    return this.#left.get(`${domainKey} ${name}`) ?? this.#quotas.room(domainKey, name) ?? Infinity
  }
}

/**
 * The will of the previous connection, when its session ends now or the will is overdue: only its delay can hold it back
 * [MQTT-3.1.3-9].
 */
function endedWill(row: Known, isKept: boolean): StoredWill | undefined {
  const will = parseWill(row.will, row.will_payload)
  const isDue = !isKept || row.is_will_overdue || (row.is_connected && will?.delaySeconds === 0)
  return isDue ? will : undefined
}

async function lockKnown(tx: Transaction, wanted: readonly OpenSession[]): Promise<Map<string, Known>> {
  const { rows } = await sql<Known>`
    SELECT s.key, s.client_key, s.client_identifier, c.id AS client_id, c.domain_key, s.node, s.is_connected, s.epoch, s.will, s.will_payload,
           coalesce(s.will_due_at <= now(), false) AS is_will_overdue, s.expiry_seconds > 0 AND (s.ends_at IS NULL OR s.ends_at > now()) AS is_alive,
           ${isUnexpired('s')} AS is_unexpired
      FROM mqtt_sessions s JOIN clients c ON c.key = s.client_key
     WHERE (s.client_key, s.client_identifier) IN (SELECT * FROM unnest(
             ${wanted.map(({ clientKey }) => clientKey)}::bigint[], ${wanted.map(({ clientIdentifier }) => clientIdentifier)}::text[]))
     ORDER BY s.key FOR UPDATE OF s`.execute(tx)
  return new Map(rows.map((row) => [idOf({ clientKey: row.client_key, clientIdentifier: row.client_identifier }), row]))
}

/** The node with the connection reads the takeover and closes it. */
async function notifyTakeovers(tx: Transaction, node: string, known: readonly Known[]): Promise<void> {
  const elsewhere = known.filter((row) => row.is_connected && row.node !== node)
  if (elsewhere.length === 0) return
  await sql`
    INSERT INTO mqtt_takeovers (node, session_key, epoch) SELECT * FROM unnest(
      ${elsewhere.map((row) => row.node)}::text[], ${elsewhere.map(({ key }) => key)}::bigint[], ${elsewhere.map(({ epoch }) => epoch)}::bigint[])
    ON CONFLICT ON CONSTRAINT mqtt_takeovers_pkey DO NOTHING`.execute(tx)
}

async function upsert(
  tx: Transaction,
  node: string,
  wanted: readonly OpenSession[],
): Promise<Map<string, SessionName & SessionFacts>> {
  const wills = wanted.map(({ will }) => (will === undefined ? null : JSON.stringify(formatWill(will))))
  const { rows } = await sql<SessionName & SessionFacts>`
    WITH opened AS (INSERT INTO mqtt_sessions (client_key, client_identifier, node, version, address, expiry_seconds, will, will_payload)
    SELECT client_key, client_identifier, ${node}, version, address, expiry_seconds, will::jsonb, will_payload FROM unnest(
      ${wanted.map(({ clientKey }) => clientKey)}::bigint[], ${wanted.map(({ clientIdentifier }) => clientIdentifier)}::text[],
      ${wanted.map(({ version }) => version)}::smallint[], ${wanted.map(({ address }) => address)}::text[],
      ${wanted.map(({ expirySeconds }) => expirySeconds)}::bigint[], ${wills}::text[],
      ${wanted.map(({ will }) => will?.payload ?? null)}::bytea[])
      AS wanted (client_key, client_identifier, version, address, expiry_seconds, will, will_payload)
    ON CONFLICT ON CONSTRAINT mqtt_sessions_client_identifier_key DO UPDATE
       SET epoch = mqtt_sessions.epoch + 1, node = EXCLUDED.node, is_connected = true, version = EXCLUDED.version,
           address = EXCLUDED.address, expiry_seconds = EXCLUDED.expiry_seconds, connected_at = now(), disconnected_at = NULL,
           ends_at = NULL, will = EXCLUDED.will, will_payload = EXCLUDED.will_payload, will_due_at = NULL
    RETURNING key, epoch, client_key, client_identifier)
    SELECT o.*, c.id AS client_id, c.domain_key FROM opened o JOIN clients c ON c.key = o.client_key`.execute(tx)
  return new Map(rows.map((row) => [idOf({ clientKey: row.client_key, clientIdentifier: row.client_identifier }), row]))
}
