/** The CoAP server: its socket, and the clock of everything behind it. DTLS is not served (contract section 7.4). */
import type { MessageGate } from '#api/devices/index.ts'
import type { Messages } from '#api/messages/index.ts'
import type { Metrics } from '#core/http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs, withDeadline } from '#core/time.ts'
import { AddressProofs } from './addresses.ts'
import { Endpoints } from './endpoints.ts'
import { Exchanges } from './exchanges.ts'
import { formatCode } from './message.ts'
import { Observations } from './observations.ts'
import { Outbox } from './outbox.ts'
import { Representations } from './representations.ts'
import { Resource } from './resource.ts'
import { UdpSocket } from './udp-socket.ts'
import { Uploads } from './uploads.ts'

/** Retransmissions, late acknowledgements and what is over are looked for so often. */
const TICK_MS = 100
/** What was taken is answered within this when the server stops. */
const DRAIN_MS = 12_000
export type CoapServerDeps = {
  host: string
  /** 0: any free one. */
  port: number
  gate: MessageGate
  messages: Messages
  /** Of one message, whole. */
  maxBodyBytes: number
  metrics?: Metrics | undefined
  logger: Logger
  /** A clock that nobody sets; tests move it. */
  nowMs?: () => number
  /** ACK_TIMEOUT of RFC 7252 section 4.8; tests shorten it. */
  ackTimeoutMs?: number
  /** What takes longer is acknowledged before it is answered; tests lengthen it, for machines that are busy. */
  acknowledgeAfterMs?: number
}

export class CoapServer {
  readonly #socket: UdpSocket
  readonly #endpoints: Endpoints
  readonly #outbox: Outbox
  readonly #uploads: Uploads
  readonly #observations: Observations
  readonly #exchanges: Exchanges
  readonly #logger: Logger
  readonly #clock: NodeJS.Timeout

  private constructor(socket: UdpSocket, deps: CoapServerDeps) {
    const { gate, messages, maxBodyBytes, metrics, logger, nowMs = monotonicMs } = deps
    const send = socket.send.bind(socket)
    const endpoints = new Endpoints(nowMs)
    const addresses = new AddressProofs(endpoints, nowMs)
    const outbox = new Outbox(send, nowMs, deps.ackTimeoutMs)
    const uploads = new Uploads(maxBodyBytes)
    const representations = new Representations()
    const observed = { messages, endpoints, outbox, addresses, representations, send, nowMs, logger }
    const observations = new Observations(observed)
    const resource = new Resource({ gate, messages, uploads, representations, observations, maxBodyBytes, logger })
    this.#logger = logger
    this.#socket = socket
    this.#endpoints = endpoints
    this.#outbox = outbox
    this.#uploads = uploads
    this.#observations = observations
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
    if (metrics !== undefined) this.#addGauges(metrics)
  }

  /** Resolves when the port is open. Throws where it is taken. */
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

  /** Answers what was taken, takes nothing more and closes the socket. */
  async stop(): Promise<void> {
    await withDeadline(this.#exchanges.drain(), DRAIN_MS, 'answering the last requests of CoAP').catch(
      (error: unknown) => this.#logger.warn({ err: error }, 'CoAP requests time out: the peer does not answer'),
    )
    clearInterval(this.#clock)
    await this.#socket.close()
  }

  #tick(): void {
    this.#exchanges.tick()
    this.#outbox.tick()
    this.#observations.tick()
    this.#endpoints.sweep()
    this.#uploads.sweep()
  }

  #addGauges(metrics: Metrics): void {
    metrics.gauge('skein_coap_observations', 'Observations that are open', () => this.#observations.size)
    metrics.gauge(
      'skein_coap_remembered_requests',
      'Requests of which a repetition is answered again',
      () => this.#endpoints.remembered,
    )
    metrics.gauge(
      'skein_coap_unanswered_requests',
      'Requests that wait for their answer',
      () => this.#exchanges.unanswered,
    )
    metrics.gauge(
      'skein_coap_unacknowledged_messages',
      'Messages that are sent again until acknowledged',
      () => this.#outbox.size,
    )
    metrics.gauge(
      'skein_coap_dropped_datagrams',
      'Datagrams that could not be sent since the start',
      () => this.#socket.dropped,
    )
  }
}
