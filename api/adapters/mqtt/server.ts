/** The MQTT server: listeners, the connections that are open, one clock and one sweep for all of them. */
import { createServer } from 'node:net'
import type { AddressInfo, Server, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { createServer as createTlsServer } from 'node:tls'
import type { TLSSocket } from 'node:tls'
import type { DeviceCredentials } from '#api/devices/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { followTls, portError } from '#core/http/index.ts'
import type { Metrics, TlsFiles } from '#core/http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { StreamBudget } from '#core/streams/index.ts'
import { monotonicMs, withDeadline } from '#core/time.ts'
import { Connection } from './connection.ts'
import type { Peer } from './connection.ts'
import { createCounts } from './counts.ts'
import type { Exchange, ExchangeHost, Identity } from './exchange.ts'
import type { ConnectionHost } from './host.ts'
import { REASON } from './packets/reason-codes.ts'
import type { Unsettled } from './publishing.ts'
import type { Session } from './session.ts'
import { createTurns } from './turns.ts'

/** The clock of keep alives; deadlines of connections are that much inexact. */
const CLOCK_MS = 250
const SWEEP_MS = 1000
/** A peer that has not sent a whole CONNECT by then is cut off. */
const CONNECT_DEADLINE_MS = 15_000
/** A peer that does not read the end of its connection is cut off. */
const CLOSE_DEADLINE_MS = 5000
/** Changes are looked at together; a revocation is in force within a second all the same. */
const RECHECK_AFTER_MS = 50
/** Connections that are looked at again at once. */
const RECHECKED_AT_ONCE = 50
/** Open sockets of one process. */
const MAX_CONNECTIONS = 100_000
const TAKEN_OVER = 'another connection took the session over'
/** Connections that end write their sessions within this when the server stops. */
const STOP_DEADLINE_MS = 10_000

/** Who a certificate stands for; undefined: nobody. */
export type ClientOf = (certificate: Buffer) => Promise<DeviceCredentials | undefined>

export type MqttServerOptions = {
  host: string
  /** 0: any free one; undefined: none. */
  port: number | undefined
  /** Port and files of TLS; undefined: none. */
  tls?:
    | {
        port: number
        files: TlsFiles
        clientOf?: ClientOf | undefined
      }
    | undefined
  /** Of one packet, whole. */
  maxPacketBytes: number
  /** Told of the sessions' fates. */
  exchange: (host: ExchangeHost) => Exchange | Promise<Exchange>
  /** What waits for subscribers counts there. */
  budget: StreamBudget
  metrics?: Metrics | undefined
  logger: Logger
}

export type MqttServer = {
  readonly port: number | undefined
  readonly tlsPort: number | undefined
  readonly connections: number
  /** Takes a stream that speaks MQTT, such as a WebSocket. */
  accept(stream: Duplex, address: string): void
  /** Entities changed: whoever is connected by leave of one of them is looked at again. */
  recheck(entityKeys: readonly number[] | undefined): void
  stop(): Promise<void>
}

export async function startMqttServer(options: MqttServerOptions): Promise<MqttServer> {
  const { logger, maxPacketBytes, budget, metrics } = options
  const counts = createCounts(metrics)
  const connections = new Set<Connection>()
  const closing = new Map<Connection, number>()
  const byName = new Map<string, Connection>()
  /** Sessions that are being written after their connection ended. */
  const endings = new Map<string, Promise<void>>()
  const unsettled = new Map<string, Unsettled>()
  const ended = new WeakSet<Session>()
  let nowMs = monotonicMs()
  let isStopping = false
  /** Keys of entities that changed since the last look. */
  let changed: Set<number> | 'all' = new Set()
  let rechecking: NodeJS.Timeout | undefined

  const sessionHost: ExchangeHost = {
    remember: (session, outbound) => exchange.remember(session, outbound),
    dropped: (_session, reason, messages) => counts.dropped(reason, messages),
    sent: () => counts.sent(),
    failed(session, error) {
      logger.error({ err: error }, 'a session of MQTT could not be written')
      connectionOf(session)?.close(REASON.serverUnavailable, 'the session cannot be written')
    },
    filled: () => undefined,
    drained: () => undefined,
    completed: () => undefined,
    held: budget.keep,
    takenOver(session) {
      const connection = connectionOf(session)
      if (connection === undefined) return
      // Whoever took it over sends the will where it is due.
      connection.isWillDropped = true
      connection.close(REASON.sessionTakenOver, TAKEN_OVER)
    },
  }
  const exchange = await options.exchange(sessionHost)

  function connectionOf(session: Session): Connection | undefined {
    return session.outlet instanceof Connection ? session.outlet : undefined
  }

  function endSession(connection: Connection): void {
    const { session } = connection
    if (session === undefined || ended.has(session)) return
    ended.add(session)
    session.outlet = undefined
    session.release()
    const name = nameOf(session.identity, session.clientIdentifier)
    if (byName.get(name) === connection) byName.delete(name)
    const ending = exchange
      .close(session, connection.isWillDropped)
      .catch((error: unknown) => logger.error({ err: error }, 'a session of MQTT could not be closed'))
      .finally(() => {
        if (endings.get(name) === ending) endings.delete(name)
      })
    endings.set(name, ending)
  }

  const host: ConnectionHost = {
    logger,
    budget,
    get nowMs() {
      return nowMs
    },
    maxPacketBytes,
    async takeOver(identity, clientIdentifier) {
      const name = nameOf(identity, clientIdentifier)
      byName.get(name)?.close(REASON.sessionTakenOver, TAKEN_OVER)
      await endings.get(name)
    },
    accepted(connection, session) {
      const name = nameOf(session.identity, session.clientIdentifier)
      const other = byName.get(name)
      // Two that connected at once: the later of them has the session.
      const isOlder = other?.session !== undefined && other.session.epoch > session.epoch
      if (!isOlder) byName.set(name, connection)
      const loser = isOlder ? connection : other
      if (loser !== undefined) queueMicrotask(() => loser.close(REASON.sessionTakenOver, TAKEN_OVER))
      let mine = unsettled.get(name)
      if (mine === undefined) unsettled.set(name, (mine = new Map()))
      return mine
    },
    flushLater: createTurns(setImmediate),
    closing(connection) {
      closing.set(connection, nowMs)
      endSession(connection)
    },
    closed(connection) {
      connections.delete(connection)
      closing.delete(connection)
      endSession(connection)
    },
    countPacket: counts.packet,
    countRefusal: counts.refusal,
    countDropped: counts.dropped,
    countStored: counts.stored,
  }

  function accept(stream: Duplex, peer: Peer): void {
    if (isStopping || connections.size >= MAX_CONNECTIONS) {
      stream.destroy()
      return
    }
    connections.add(new Connection(stream, exchange, host, peer))
  }

  function sweep(): void {
    for (const connection of connections) {
      const closingSince = closing.get(connection)
      if (closingSince !== undefined) {
        if (nowMs - closingSince > CLOSE_DEADLINE_MS) connection.socket.destroy()
      } else if (!connection.isAccepted) {
        if (nowMs - connection.openedAtMs > CONNECT_DEADLINE_MS) connection.socket.destroy()
      } else if (connection.keepAliveMs > 0 && nowMs - connection.heardAtMs > connection.keepAliveMs) {
        // [MQTT-3.1.2-22]; a connection that is not read because nothing can be stored is not silent.
        if (connection.socket.isPaused()) connection.heardAtMs = nowMs
        else connection.close(REASON.keepAliveTimeout, 'nothing was heard within the keep alive')
      }
    }
    for (const [name, mine] of unsettled) if (mine.size === 0 && !byName.has(name)) unsettled.delete(name)
    counts.flush()
    exchange.tick()
  }

  const clock = setInterval(() => (nowMs = monotonicMs()), CLOCK_MS)
  const sweeping = setInterval(sweep, SWEEP_MS)
  const servers: Server[] = []

  async function listen(server: Server, port: number, setting: string): Promise<number> {
    await new Promise<void>((resolve, reject) => {
      server.once('error', (error) => reject(portError(error, { port, setting }, options.host)))
      server.listen({ port, host: options.host }, () => {
        server.removeAllListeners('error')
        server.on('error', (error) => logger.warn({ err: error }, 'a connection could not be accepted'))
        resolve()
      })
    })
    servers.push(server)
    return (server.address() as AddressInfo).port
  }

  async function openPorts(): Promise<{ port: number | undefined; tlsPort: number | undefined }> {
    const { port, tls } = options
    const plain =
      port === undefined
        ? undefined
        : await listen(
            createServer({ noDelay: true }, (socket: Socket) =>
              accept(socket, { address: socket.remoteAddress ?? '' }),
            ),
            port,
            'SKEIN_MQTT_PORT',
          )
    if (tls === undefined) return { port: plain, tlsPort: undefined }
    const { clientOf } = tls
    const takeSecure = async (socket: TLSSocket) => {
      const address = socket.remoteAddress ?? ''
      const certificate = socket.authorized ? socket.getPeerX509Certificate()?.raw : undefined
      if (certificate === undefined || clientOf === undefined) return accept(socket, { address })
      const recertify = () => clientOf(certificate)
      accept(socket, { address, certificate: await recertify(), recertify })
    }
    const secure = createTlsServer(
      {
        ...tls.files,
        noDelay: true,
        requestCert: clientOf !== undefined && tls.files.ca !== undefined,
        rejectUnauthorized: false,
      },
      (socket) => {
        socket.on('error', () => socket.destroy())
        takeSecure(socket).catch((error: unknown) => {
          logger.warn({ err: error }, 'a client certificate could not be looked up')
          socket.destroy()
        })
      },
    )
    followTls(secure, tls.files)
    secure.on('tlsClientError', () => counts.refusal(REASON.protocolError))
    return { port: plain, tlsPort: await listen(secure, tls.port, 'SKEIN_MQTTS_PORT') }
  }

  const stopTimers = () => {
    clearInterval(clock)
    clearInterval(sweeping)
  }
  const ports = await openPorts().catch(async (error: unknown) => {
    stopTimers()
    await Promise.all(servers.map(closeServer))
    throw error
  })

  metrics?.gauge('skein_mqtt_connections', 'Connections that are open', () => connections.size)
  metrics?.gauge('skein_mqtt_sessions', 'Sessions that this process holds', () => exchange.counts().sessions)
  metrics?.gauge('skein_mqtt_subscriptions', 'Subscriptions of those', () => exchange.counts().subscriptions)
  const sum = (of: (connection: Connection) => number) => {
    let total = 0
    for (const connection of connections) total += of(connection)
    return total
  }
  metrics?.gauge('skein_mqtt_in_flight_messages', 'Messages sent and not acknowledged', () =>
    sum(({ session }) => session?.inFlight ?? 0),
  )
  metrics?.gauge('skein_mqtt_queued_messages', 'Messages that wait for a place among those', () =>
    sum(({ session }) => session?.queued ?? 0),
  )
  metrics?.gauge('skein_mqtt_pending_publishes', 'Published messages that wait for their commit', () =>
    sum(({ publishing }) => publishing?.pending ?? 0),
  )

  const hasChanges = () => changed === 'all' || changed.size > 0

  /** What changed since the last look, together: a change may concern a few connections, or all. */
  async function recheckChanged(): Promise<void> {
    const keys = changed
    changed = new Set()
    const concerned = [...connections].filter(({ session }) => session !== undefined && isConcerned(session, keys))
    for (let first = 0; first < concerned.length; first += RECHECKED_AT_ONCE) {
      const some = concerned.slice(first, first + RECHECKED_AT_ONCE)
      await Promise.all(some.map((connection) => recheckOne(connection, connection.session as Session)))
    }
    rechecking = undefined
    if (!isStopping && hasChanges()) rechecking = setTimeout(() => void recheckChanged(), RECHECK_AFTER_MS)
  }

  async function recheckOne(connection: Connection, session: Session): Promise<void> {
    try {
      await exchange.recheck(session)
      const { certificate, recertify } = connection
      // Whoever came with a certificate that was revoked meanwhile.
      const isCertified = certificate !== undefined && session.identity.credentials === certificate
      if (isCertified && (await recertify?.()) === undefined)
        connection.close(REASON.notAuthorized, 'the certificate is not valid any more')
    } catch (error) {
      const isGone = error instanceof ServiceError && ['unauthenticated', 'forbidden'].includes(error.kind)
      if (isGone) connection.close(REASON.notAuthorized, 'no longer allowed')
    }
  }

  return {
    ...ports,
    get connections() {
      return connections.size
    },
    accept: (stream, address) => accept(stream, { address }),
    recheck(entityKeys) {
      if (entityKeys === undefined) changed = 'all'
      else if (changed !== 'all') for (const key of entityKeys) changed.add(key)
      rechecking ??= setTimeout(() => void recheckChanged(), RECHECK_AFTER_MS)
    },
    async stop() {
      isStopping = true
      clearTimeout(rechecking)
      stopTimers()
      const closed = servers.map(closeServer)
      for (const connection of connections) {
        connection.isWillDropped ||= connection.session !== undefined
        connection.close(REASON.serverShuttingDown, 'the server is stopping')
      }
      await withDeadline(Promise.all(endings.values()), STOP_DEADLINE_MS, 'writing the sessions of MQTT').catch(
        (error: unknown) => logger.warn({ err: error }, 'sessions of MQTT were not written'),
      )
      for (const connection of connections) connection.socket.destroy()
      await exchange.stop()
      await Promise.all(closed)
    },
  }
}

function isConcerned({ identity, subscriptions }: Session, keys: ReadonlySet<number> | 'all'): boolean {
  const { ownerKey, domainKey } = identity
  if (keys === 'all' || ownerKey === undefined || keys.has(ownerKey)) return true
  if (domainKey !== undefined && keys.has(domainKey)) return true
  for (const { streamKey } of subscriptions.values()) if (keys.has(streamKey)) return true
  return false
}

function nameOf({ scope }: Identity, clientIdentifier: string): string {
  return `${scope}\n${clientIdentifier}`
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()))
}
