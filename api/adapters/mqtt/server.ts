/** The MQTT server: an exchange, the connections to it and the ports that they come in by. */
import type { Duplex } from 'node:stream'
import type { Metrics } from '#core/http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { StreamBudget } from '#core/streams/index.ts'
import type { Connection } from './connection.ts'
import { Connections, createExchangeHost } from './connections.ts'
import { createCounts } from './counts.ts'
import type { Exchange, ExchangeHost } from './exchange.ts'
import { Listeners } from './listeners.ts'
import type { ListenersOptions } from './listeners.ts'
import { REASON } from './packets/reason-codes.ts'
import { Rechecks } from './rechecks.ts'

export type MqttServerOptions = Pick<ListenersOptions, 'host' | 'port' | 'tls'> & {
  /** Of one packet, whole. */
  maxPacketBytes: number
  /** Told of the sessions' fates. */
  exchange: (host: ExchangeHost) => Exchange | Promise<Exchange>
  /** What waits for subscribers counts there. */
  budget: StreamBudget
  metrics?: Metrics | undefined
  logger: Logger
}

export class MqttServer {
  readonly #exchange: Exchange
  readonly #connections: Connections
  readonly #rechecks: Rechecks
  readonly #listeners: Listeners

  private constructor(exchange: Exchange, connections: Connections, listeners: Listeners) {
    this.#exchange = exchange
    this.#connections = connections
    this.#listeners = listeners
    this.#rechecks = new Rechecks(exchange, connections)
  }

  /** Resolves when the ports are open. Throws where one of them is taken. */
  static async start(options: MqttServerOptions): Promise<MqttServer> {
    const { host, port, tls, maxPacketBytes, budget, metrics, logger } = options
    const counts = createCounts(metrics)
    const deps = { maxPacketBytes, budget, counts, logger }
    const exchange: Exchange = await options.exchange(
      createExchangeHost(deps, (session, outbound) => exchange.remember(session, outbound)),
    )
    const connections = new Connections(exchange, deps)
    const listeners = new Listeners({
      host,
      port,
      tls,
      accept: (socket, peer) => connections.accept(socket, peer),
      onTlsRefused: () => counts.refusal(REASON.protocolError),
      logger,
    })
    try {
      await listeners.open()
    } catch (error) {
      connections.stopTimers()
      throw error
    }
    if (metrics !== undefined) addGauges(metrics, connections, exchange)
    return new MqttServer(exchange, connections, listeners)
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

  /** Takes a stream that speaks MQTT, such as a WebSocket. */
  accept(stream: Duplex, address: string): void {
    this.#connections.accept(stream, { address })
  }

  /** Entities changed: whoever is connected by leave of one of them is looked at again. Undefined: any of them. */
  recheck(entityKeys: readonly number[] | undefined): void {
    this.#rechecks.changed(entityKeys)
  }

  async stop(): Promise<void> {
    this.#rechecks.stop()
    const closed = this.#listeners.close()
    await this.#connections.stop()
    await this.#exchange.stop()
    await closed
  }
}

function addGauges(metrics: Metrics, connections: Connections, exchange: Exchange): void {
  const sum = (of: (connection: Connection) => number) => {
    let total = 0
    for (const connection of connections) total += of(connection)
    return total
  }
  metrics.gauge('skein_mqtt_connections', 'Connections that are open', () => connections.size)
  metrics.gauge('skein_mqtt_sessions', 'Sessions that this process holds', () => exchange.counts().sessions)
  metrics.gauge('skein_mqtt_subscriptions', 'Subscriptions of those', () => exchange.counts().subscriptions)
  metrics.gauge('skein_mqtt_in_flight_messages', 'Messages sent and not acknowledged', () =>
    sum(({ session }) => session?.inFlight ?? 0),
  )
  metrics.gauge('skein_mqtt_queued_messages', 'Messages that wait for a place among those', () =>
    sum(({ session }) => session?.queued ?? 0),
  )
  metrics.gauge('skein_mqtt_pending_publishes', 'Published messages that wait for their commit', () =>
    sum(({ publishing }) => publishing?.pending ?? 0),
  )
}
