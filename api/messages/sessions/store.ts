/** Durable sessions for the adapter: every write resolves after its commit. */
import type { Journal, Quotas } from '#api/identity/index.ts'
import { hasOlderNodes } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { monotonicMs } from '#core/time.ts'
import type { SessionFacts } from './session-events.ts'
import { recordSessionEvent } from './session-events.ts'
import { SessionMaintenance } from './maintenance.ts'
import type { SessionMaintenanceOptions } from './maintenance.ts'
import type {
  CloseSession,
  OpenSession,
  OpenedSession,
  SessionName,
  StoredOutbound,
  StoredSubscription,
} from './rows.ts'
import { SessionQuotas } from './session-quotas.ts'
import { createSessionWriter } from './writer.ts'
import type { GroupPassed } from './writer.ts'

/**
 * Writes of a connection whose session was taken over reject with `conflict`; all reject with `unavailable` and `timeout` like every
 * write.
 */
export type SessionStore = {
  /**
   * Assigns the session of this client and identifier to this connection only. Throws `unprocessable` for a new session of a client at its
   * limit, and `quota_exceeded` for a new session or connection of a domain at its quota.
   */
  open(session: OpenSession): Promise<OpenedSession>
  /**
   * Whether every node knows topics of devices. An older one cannot grant such a subscription of a session that it resumes, and removes it.
   */
  keepsDeviceTopics(): Promise<boolean>
  subscribe(name: SessionName, clientKey: number, subscriptions: readonly StoredSubscription[]): Promise<void>
  unsubscribe(name: SessionName, filters: readonly string[]): Promise<void>
  /** Call it before a message is sent with QoS 2, and before it is released. `passed`: deliveries of groups, which are not repeated. */
  remember(name: SessionName, outbound: readonly StoredOutbound[], passed?: readonly GroupPassed[]): Promise<void>
  /** Checks the groups now, instead of in the next round. */
  wake(): void
  /** Call it before PUBCOMP frees the identifier. */
  release(name: SessionName, packetId: number): Promise<void>
  close(session: CloseSession): Promise<void>
  /** Ends the sessions of these clients that are no longer enabled, on any node. */
  removeOfDisabled(clientKeys: readonly number[]): Promise<void>
  /** The limits of domains for connections, sessions and subscriptions. */
  readonly quotas: SessionQuotas
  stop(): Promise<void>
}

/** How long it is known that no older node is alive. One may start at any time, and answers after some seconds. */
const NODES_KNOWN_MS = 5000
/** The newest migration of a noun of these topics. */
const DEVICE_TOPICS = 'device_commands'

export type SessionStoreOptions = SessionMaintenanceOptions & {
  journal: Journal
  /** SKEIN_MQTT_SESSIONS_PER_CLIENT. */
  maxSessionsPerClient: number
  quotas: Pick<Quotas, 'ofDomain'>
}

export function startSessionStore(options: SessionStoreOptions): SessionStore {
  const { database, journal, maxSessionsPerClient, logger, node } = options
  const quotas = new SessionQuotas({ db: database.db, quotas: options.quotas, logger })
  const writer = createSessionWriter(journal, { node: node.id, maxSessionsPerClient, quotas, logger })
  const maintenance = new SessionMaintenance(options)
  let known: { answer: Promise<boolean>; atMs: number } | undefined
  const lookForOlderNodes = async () => {
    const { rows } = await sql<{ found: boolean }>`SELECT ${hasOlderNodes(DEVICE_TOPICS)} AS found`.execute(database.db)
    return rows[0]?.found !== true
  }
  return {
    quotas,
    async keepsDeviceTopics() {
      if (known === undefined || monotonicMs() - known.atMs > NODES_KNOWN_MS) {
        const asked = { answer: lookForOlderNodes(), atMs: monotonicMs() }
        known = asked
        // Only an answer is kept, and while it is yes.
        const forget = () => void (known === asked && (known = undefined))
        asked.answer.then((keeps) => void (keeps || forget()), forget)
      }
      return await known.answer
    },
    async open(session) {
      const { domainKey } = session
      await Promise.all([quotas.ready(domainKey, 'mqtt_sessions'), quotas.ready(domainKey, 'mqtt_connections')])
      const opened = (await writer.submit({ kind: 'open', session })) as OpenedSession
      if (opened.isNewSession) quotas.add(domainKey, 'mqtt_sessions', 1)
      if (opened.isNewConnection) quotas.add(domainKey, 'mqtt_connections', 1)
      return opened
    },
    async subscribe(name, clientKey, subscriptions) {
      await writer.submit({ kind: 'subscribe', name, clientKey, subscriptions })
    },
    async unsubscribe(name, filters) {
      await writer.submit({ kind: 'unsubscribe', name, filters })
    },
    async remember(name, outbound, passed = []) {
      await writer.submit({ kind: 'remember', name, outbound, passed })
    },
    wake: () => maintenance.wake(),
    async release(name, packetId) {
      await writer.submit({ kind: 'release', name, packetId })
    },
    async close(session) {
      await writer.submit({ kind: 'close', session })
      const { domainKey, expirySeconds } = session
      quotas.add(domainKey, 'mqtt_connections', -1)
      if (expirySeconds === 0) quotas.add(domainKey, 'mqtt_sessions', -1)
    },
    async removeOfDisabled(clientKeys) {
      if (clientKeys.length === 0) return
      await journal.change('system', async (tx, record) => {
        const { rows } = await sql<SessionFacts & { is_connected: boolean; node: string }>`
          DELETE FROM mqtt_sessions s USING clients c
           WHERE c.key = s.client_key AND s.client_key = ANY (${[...clientKeys]}::bigint[]) AND c.status <> 'enabled'
          RETURNING s.client_key, s.client_identifier, c.id AS client_id, c.domain_key, s.is_connected, s.node`.execute(
          tx,
        )
        for (const row of rows) if (row.is_connected) recordSessionEvent(record, 'disconnect', row, row.node)
      })
    },
    async stop() {
      await writer.close()
      await maintenance.stop()
    },
  }
}
