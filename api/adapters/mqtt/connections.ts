/**
 * The open connections and the end of their sessions: a session has one connection at a time, the later of two; the state of an ended
 * connection is written before the next one resumes the session. One clock and one sweep serve all connections.
 */
import type { Duplex } from 'node:stream'
import type { Logger } from '#core/logging/index.ts'
import { Slots } from '#core/slots.ts'
import type { StreamBudget } from '#core/streams/index.ts'
import { monotonicMs, withDeadline } from '#core/time.ts'
import { Connection } from './connection.ts'
import type { ConnectionHost, Peer } from './connection.ts'
import type { Counts } from './counts.ts'
import type { MqttBackend, BackendHost } from './backend.ts'
import { REASON } from './packets/reason-codes.ts'
import type { Unsettled } from './publishing.ts'
import type { Session } from './session.ts'
import type { Identity } from './targets.ts'
import { coalesceWrites } from './write-coalescing.ts'

/** The resolution of the clock for keep alives and deadlines. */
const CLOCK_MS = 250
const SWEEP_MS = 1000
/** The deadline for a complete CONNECT packet. */
const CONNECT_DEADLINE_MS = 15_000
/** The deadline for a peer to read the last bytes of its connection. */
const CLOSE_DEADLINE_MS = 5000
/** The limit of open sockets of one process. */
const MAX_CONNECTIONS = 100_000
/** Sessions that are opened at the same time: those of one transaction, and those that wait to be in the next one. */
const MAX_OPENING = 500
/** The limit of one domain, so that its devices do not delay those of others when all of them come back at once. */
const MAX_OPENING_OF_DOMAIN = 250
/** How many more of a domain wait for their turn. Later ones are refused at once, and the rest of their domain is served meanwhile. */
const MAX_WAITING_OF_DOMAIN = 2000
/** Well within the deadline of CONNECT. */
const MAX_WAIT_MS = 5000
const TAKEN_OVER = 'another connection has taken over the session'
/** The deadline for writing the sessions of ended connections when the server stops. */
const STOP_DEADLINE_MS = 10_000

export type ConnectionsDeps = {
  /** The limit of one whole packet. */
  maxPacketBytes: number
  /** The budget of bytes that wait for subscribers. */
  budget: StreamBudget
  counts: Counts
  /** Overrides for tests: sessions of one domain that are opened at the same time, and that wait for it. */
  openings?: { share: number; maxWaiting: number } | undefined
  logger: Logger
}

export class Connections implements ConnectionHost {
  readonly logger: Logger
  readonly budget: StreamBudget
  readonly maxPacketBytes: number
  readonly flushLater: (connection: Connection) => void = coalesceWrites(setImmediate)
  readonly #counts: Counts
  readonly #backend: MqttBackend
  readonly #open = new Set<Connection>()
  /** Closing connections, with the time at which they began to close. */
  readonly #closing = new Map<Connection, number>()
  /** The connection of each session. */
  readonly #byName = new Map<string, Connection>()
  /** Sessions that are written after the end of their connection. */
  readonly #endings = new Map<string, Promise<void>>()
  readonly #unsettled = new Map<string, Unsettled>()
  readonly #ended = new WeakSet<Session>()
  readonly #openings: Slots
  readonly #clock: NodeJS.Timeout
  readonly #sweeping: NodeJS.Timeout
  #nowMs = monotonicMs()
  #isStopping = false

  constructor(backend: MqttBackend, { maxPacketBytes, budget, counts, openings, logger }: ConnectionsDeps) {
    this.#backend = backend
    this.maxPacketBytes = maxPacketBytes
    this.budget = budget
    this.#counts = counts
    this.logger = logger
    this.#openings = new Slots({
      what: 'MQTT sessions being opened',
      max: MAX_OPENING,
      waitMs: MAX_WAIT_MS,
      ...(openings ?? { share: MAX_OPENING_OF_DOMAIN, maxWaiting: MAX_WAITING_OF_DOMAIN }),
    })
    this.#clock = setInterval(() => (this.#nowMs = monotonicMs()), CLOCK_MS)
    this.#sweeping = setInterval(() => this.#sweep(), SWEEP_MS)
  }

  /** A coarse monotonic clock, shared by all connections. */
  get nowMs(): number {
    return this.#nowMs
  }

  get size(): number {
    return this.#open.size
  }

  [Symbol.iterator](): Iterator<Connection> {
    return this.#open.values()
  }

  /** Accepts a stream that carries MQTT; destroys it above the limit and while the server stops. */
  accept(stream: Duplex, peer: Peer): void {
    if (this.#isStopping || this.#open.size >= MAX_CONNECTIONS) stream.destroy()
    else this.#open.add(new Connection(stream, this.#backend, this, peer))
  }

  admit({ domainKey }: Identity): Promise<() => void> {
    return this.#openings.take(domainKey ?? null)
  }

  async takeOver(identity: Identity, clientIdentifier: string): Promise<void> {
    const name = nameOf(identity, clientIdentifier)
    this.#byName.get(name)?.close(REASON.sessionTakenOver, TAKEN_OVER)
    await this.#endings.get(name)
  }

  accepted(connection: Connection, session: Session): Unsettled {
    const name = nameOf(session.identity, session.clientIdentifier)
    const other = this.#byName.get(name)
    // Of two concurrent connections, the later one has the session.
    const isOlder = other?.session !== undefined && other.session.epoch > session.epoch
    if (!isOlder) this.#byName.set(name, connection)
    const loser = isOlder ? connection : other
    if (loser !== undefined) queueMicrotask(() => loser.close(REASON.sessionTakenOver, TAKEN_OVER))
    let mine = this.#unsettled.get(name)
    if (mine === undefined) this.#unsettled.set(name, (mine = new Map()))
    return mine
  }

  closing(connection: Connection): void {
    this.#closing.set(connection, this.#nowMs)
    this.#endSession(connection)
  }

  closed(connection: Connection): void {
    this.#open.delete(connection)
    this.#closing.delete(connection)
    this.#endSession(connection)
  }

  countPacket(type: string): void {
    this.#counts.packet(type)
  }

  countRefusal(reasonCode: number): void {
    this.#counts.refusal(reasonCode)
  }

  countDropped(reason: string): void {
    this.#counts.dropped(reason)
  }

  countStored(durationMs: number): void {
    this.#counts.stored(durationMs)
  }

  /** Disconnects all clients, and resolves when their sessions are written or the deadline is over. */
  async stop(): Promise<void> {
    this.#isStopping = true
    this.stopTimers()
    for (const connection of this.#open) {
      connection.isWillDropped ||= connection.session !== undefined
      connection.close(REASON.serverShuttingDown, 'the server is stopping')
    }
    await withDeadline(Promise.all(this.#endings.values()), STOP_DEADLINE_MS, 'writing the sessions of MQTT').catch(
      (error: unknown) => this.logger.warn({ err: error }, 'failed to store the MQTT sessions'),
    )
    for (const connection of this.#open) connection.socket.destroy()
  }

  stopTimers(): void {
    clearInterval(this.#clock)
    clearInterval(this.#sweeping)
  }

  #endSession(connection: Connection): void {
    const { session } = connection
    if (session === undefined || this.#ended.has(session)) return
    this.#ended.add(session)
    session.outlet = undefined
    session.release()
    const name = nameOf(session.identity, session.clientIdentifier)
    if (this.#byName.get(name) === connection) this.#byName.delete(name)
    const ending = this.#backend
      .close(session, connection.isWillDropped)
      .catch((error: unknown) => this.logger.error({ err: error }, 'failed to close an MQTT session'))
      .finally(() => {
        if (this.#endings.get(name) === ending) this.#endings.delete(name)
      })
    this.#endings.set(name, ending)
  }

  #sweep(): void {
    for (const connection of this.#open) this.#look(connection)
    for (const [name, mine] of this.#unsettled)
      if (mine.size === 0 && !this.#byName.has(name)) this.#unsettled.delete(name)
    this.#counts.flush()
    this.#backend.tick()
  }

  #look(connection: Connection): void {
    const nowMs = this.#nowMs
    const closingSince = this.#closing.get(connection)
    if (closingSince !== undefined) {
      if (nowMs - closingSince > CLOSE_DEADLINE_MS) connection.socket.destroy()
    } else if (!connection.isAccepted) {
      if (nowMs - connection.openedAtMs > CONNECT_DEADLINE_MS) connection.socket.destroy()
    } else if (connection.keepAliveMs > 0 && nowMs - connection.heardAtMs > connection.keepAliveMs) {
      // [MQTT-3.1.2-22]. A connection that is not read because nothing can be stored is not idle.
      if (connection.socket.isPaused()) connection.heardAtMs = nowMs
      else connection.close(REASON.keepAliveTimeout, 'nothing was heard within the keep alive')
    }
  }
}

/** The callbacks of sessions and the backend: end the connections concerned. */
export function createBackendHost(
  { budget, counts, logger }: ConnectionsDeps,
  remember: BackendHost['remember'],
): BackendHost {
  return {
    remember,
    dropped: (_session, reason, messages) => counts.dropped(reason, messages),
    sent: () => counts.sent(),
    failed(session, error) {
      logger.error({ err: error }, 'failed to store an MQTT session; its connection is closed')
      connectionOf(session)?.close(REASON.serverUnavailable, 'the session cannot be written')
    },
    filled: () => undefined,
    drained: () => undefined,
    completed: () => undefined,
    held: budget.keep,
    takenOver(session) {
      const connection = connectionOf(session)
      if (connection === undefined) return
      // The node that took it over sends the will when it is due.
      connection.isWillDropped = true
      connection.close(REASON.sessionTakenOver, TAKEN_OVER)
    },
  }
}

function connectionOf(session: Session): Connection | undefined {
  return session.outlet instanceof Connection ? session.outlet : undefined
}

function nameOf({ scope }: Identity, clientIdentifier: string): string {
  return `${scope}\n${clientIdentifier}`
}
