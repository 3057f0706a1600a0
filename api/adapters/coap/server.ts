/** The CoAP server: its socket, and the timer of all its parts. DTLS is not supported (contract section 7.4). */
import type { DeviceTopics, MessageGate } from '#api/devices/index.ts'
import type { Messages } from '#api/messages/index.ts'
import type { Metrics } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { removeSources } from '#core/metrics/index.ts'
import { monotonicMs, withDeadline } from '#core/time.ts'
import { AddressProofs } from './addresses.ts'
import { DeviceObservations } from './device-observation.ts'
import { DeviceResource } from './device-resource.ts'
import { Endpoints } from './endpoints.ts'
import { Exchanges } from './exchanges.ts'
import { formatCode } from './message.ts'
import { COAP_METRICS } from './metrics.ts'
import { Observations } from './observations.ts'
import { Outbox } from './outbox.ts'
import { Representations } from './representations.ts'
import { ChannelResource } from './resource.ts'
import { UdpSocket } from './udp-socket.ts'
import { Uploads } from './uploads.ts'

/** The interval for retransmissions, late acknowledgements and expired state. */
const TICK_MS = 100
/** The time for pending responses when the server stops. */
const DRAIN_MS = 12_000
export type CoapServerDeps = {
  host: string
  /** 0: any free port. */
  port: number
  gate: MessageGate
  /** The topics of devices themselves. */
  topics: DeviceTopics
  messages: Messages
  /** The limit of one whole message. */
  maxBodyBytes: number
  metrics?: Metrics | undefined
  logger: Logger
  /** A monotonic clock; an override for tests. */
  nowMs?: () => number
  /** ACK_TIMEOUT of RFC 7252 section 4.8; an override for tests. */
  ackTimeoutMs?: number
  /** The time after which a request is acknowledged before its response; an override for tests. */
  acknowledgeAfterMs?: number
}

export class CoapServer {
  readonly #socket: UdpSocket
  readonly #endpoints: Endpoints
  readonly #outbox: Outbox
  readonly #uploads: Uploads
  readonly #observations: Observations
  readonly #ofDevices: DeviceObservations
  readonly #exchanges: Exchanges
  readonly #logger: Logger
  readonly #clock: NodeJS.Timeout
  readonly #sources: readonly (() => void)[]

  private constructor(socket: UdpSocket, deps: CoapServerDeps) {
    const { gate, topics, messages, maxBodyBytes, metrics, logger, nowMs = monotonicMs } = deps
    const send = socket.send.bind(socket)
    const endpoints = new Endpoints(nowMs)
    const addresses = new AddressProofs(endpoints, nowMs)
    const outbox = new Outbox(send, nowMs, deps.ackTimeoutMs)
    const uploads = new Uploads(maxBodyBytes, nowMs)
    const representations = new Representations()
    const observed = { messages, endpoints, outbox, addresses, representations, send, nowMs, logger }
    const observations = new Observations(observed)
    const ofDevices = new DeviceObservations({ outbox, addresses, send, nowMs, representations })
    const devices = new DeviceResource({
      gate,
      topics,
      messages,
      endpoints,
      uploads,
      representations,
      observations: ofDevices,
      maxBodyBytes,
      logger,
    })
    const resource = new ChannelResource({
      gate,
      messages,
      uploads,
      representations,
      observations,
      devices,
      maxBodyBytes,
      logger,
    })
    this.#logger = logger
    this.#socket = socket
    this.#endpoints = endpoints
    this.#outbox = outbox
    this.#uploads = uploads
    this.#observations = observations
    this.#ofDevices = ofDevices
    this.#exchanges = new Exchanges({
      endpoints,
      outbox,
      addresses,
      resource,
      send,
      acknowledgeAfterMs: deps.acknowledgeAfterMs,
      onAnswered: (route, code, durationMs) =>
        metrics?.countRequest('coap', route, code === undefined ? 'dropped' : formatCode(code), durationMs / 1000),
    })
    this.#clock = setInterval(() => this.#tick(), TICK_MS)
    this.#sources = [
      COAP_METRICS.observations.fromValue(() => observations.size + ofDevices.size),
      COAP_METRICS.remembered.fromValue(() => endpoints.answeredRequests),
      COAP_METRICS.unanswered.fromValue(() => this.#exchanges.unanswered),
      COAP_METRICS.unacknowledged.fromValue(() => outbox.size),
    ]
  }

  /** Resolves when the port is open. Throws when it is in use. */
  static async start(deps: CoapServerDeps): Promise<CoapServer> {
    const socket = new UdpSocket(deps.host, deps.logger)
    const server = new CoapServer(socket, deps)
    try {
      await socket.open(deps.port, (datagram, peer) => server.#exchanges.take(datagram, peer))
    } catch (error) {
      clearInterval(server.#clock)
      throw error
    }
    return server
  }

  get port(): number {
    return this.#socket.port
  }

  /** Answers pending requests, accepts no new ones and closes the socket. */
  async stop(): Promise<void> {
    await withDeadline(this.#exchanges.drain(), DRAIN_MS, 'answering the last requests of CoAP').catch(
      (error: unknown) => this.#logger.warn({ err: error }, 'CoAP requests time out: the peer does not answer'),
    )
    clearInterval(this.#clock)
    await this.#socket.close()
    removeSources(this.#sources)
  }

  #tick(): void {
    this.#exchanges.tick()
    this.#outbox.tick()
    this.#observations.tick()
    this.#ofDevices.tick()
    this.#endpoints.sweep()
    this.#uploads.sweep()
  }
}
