/** The MQTT server: a backend, its connections and listeners. */
import type { Duplex } from 'node:stream'
import type { Metrics } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { StreamBudget } from '#core/streams/index.ts'
import type { Connection } from './connection.ts'
import { Connections, createBackendHost } from './connections.ts'
import type { ConnectionsDeps } from './connections.ts'
import { createCounts } from './counts.ts'
import type { MqttBackend, BackendHost } from './backend.ts'
import { removeSources } from '#core/metrics/index.ts'
import { Listeners } from './listeners.ts'
import type { ListenersOptions } from './listeners.ts'
import { MQTT_METRICS } from './metrics.ts'
import { REASON } from './packets/reason-codes.ts'
import { Rechecks } from './rechecks.ts'

export type MqttServerOptions = Pick<ListenersOptions, 'host' | 'port' | 'tls' | 'sharedPorts' | 'trustProxy'> & {
  openings?: ConnectionsDeps['openings']
  /** The limit of one whole packet. */
  maxPacketBytes: number
  /** Creates the backend; it receives the callbacks of sessions. */
  backend: (host: BackendHost) => MqttBackend | Promise<MqttBackend>
  /** The budget of bytes that wait for subscribers. */
  budget: StreamBudget
  metrics?: Metrics | undefined
  logger: Logger
}

export class MqttServer {
  readonly #backend: MqttBackend
  readonly #connections: Connections
  readonly #rechecks: Rechecks
  readonly #listeners: Listeners
  readonly #sources: readonly (() => void)[]

  private constructor(backend: MqttBackend, connections: Connections, listeners: Listeners) {
    this.#backend = backend
    this.#connections = connections
    this.#listeners = listeners
    this.#rechecks = new Rechecks(backend, connections)
    this.#sources = addGauges(connections, backend)
  }

  /** Resolves when connections can be accepted; `listen` opens the ports. */
  static async start(options: MqttServerOptions): Promise<MqttServer> {
    const { host, port, tls, sharedPorts, trustProxy, maxPacketBytes, budget, openings, metrics, logger } = options
    const counts = createCounts(metrics)
    const deps = { maxPacketBytes, budget, counts, openings, logger }
    const backend: MqttBackend = await options.backend(
      createBackendHost(deps, (session, outbound) => backend.remember(session, outbound)),
    )
    const connections = new Connections(backend, deps)
    const listeners = new Listeners({
      host,
      port,
      tls,
      sharedPorts,
      trustProxy,
      accept: (socket, peer) => connections.accept(socket, peer),
      onRefused: () => counts.refusal(REASON.protocolError),
      logger,
    })
    return new MqttServer(backend, connections, listeners)
  }

  /** Opens the ports. Throws when one of them is in use. */
  async listen(): Promise<void> {
    await this.#listeners.open()
  }

  get port(): number | undefined {
    return this.#listeners.port
  }

  get tlsPort(): number | undefined {
    return this.#listeners.tlsPort
  }

  get connections(): number {
    return this.#connections.size
  }

  /** Accepts a stream that carries MQTT, such as a WebSocket. */
  accept(stream: Duplex, address: string): void {
    this.#connections.accept(stream, { address })
  }

  /** Entities changed: rechecks the connections that depend on them. Undefined: all connections. */
  recheck(entityKeys: readonly number[] | undefined): void {
    this.#rechecks.changed(entityKeys)
  }

  /** Closes the ports and all connections, and resolves when their sessions are written. */
  async close(): Promise<void> {
    const closed = this.#listeners.close()
    await this.#connections.stop()
    await closed
  }

  async stop(): Promise<void> {
    this.#rechecks.stop()
    await this.close()
    await this.#backend.stop()
    removeSources(this.#sources)
  }
}

/** Returns the ways to remove them. */
function addGauges(connections: Connections, backend: MqttBackend): (() => void)[] {
  const sum = (of: (connection: Connection) => number) => {
    let total = 0
    for (const connection of connections) total += of(connection)
    return total
  }
  return [
    MQTT_METRICS.connections.fromValue(() => connections.size),
    MQTT_METRICS.sessions.fromValue(() => backend.counts().sessions),
    MQTT_METRICS.subscriptions.fromValue(() => backend.counts().subscriptions),
    MQTT_METRICS.inFlight.fromValue(() => sum(({ session }) => session?.inFlight ?? 0)),
    MQTT_METRICS.queued.fromValue(() => sum(({ session }) => session?.queued ?? 0)),
    MQTT_METRICS.pending.fromValue(() => sum(({ publishing }) => publishing?.pending ?? 0)),
  ]
}
