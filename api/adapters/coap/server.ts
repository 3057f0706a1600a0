/** The UDP socket of CoAP and the clock of everything behind it. DTLS is not served (contract section 7.4). */
import { createSocket } from 'node:dgram'
import { lookup } from 'node:dns'
import type { Socket } from 'node:dgram'
import { isIP, isIPv6 } from 'node:net'
import type { MessageGate } from '#api/devices/index.ts'
import type { Messages } from '#api/messages/index.ts'
import { portError } from '#core/http/index.ts'
import type { Metrics } from '#core/http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs, sleep, withDeadline } from '#core/time.ts'
import { AddressProofs } from './addresses.ts'
import { Endpoints } from './endpoints.ts'
import type { Peer } from './endpoints.ts'
import { Exchanges } from './exchanges.ts'
import { formatCode } from './message.ts'
import { Observations } from './observations.ts'
import { Outbox } from './outbox.ts'
import { Representations } from './representations.ts'
import { createResource } from './resource.ts'
import { Uploads } from './uploads.ts'

/** Bursts of devices wait here while this process is busy; the system may allow less. */
const RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
/** Bytes that wait to be sent; beyond, they are dropped, as a network does. */
const MAX_QUEUED_BYTES = 16 * 1024 * 1024
/** Retransmissions, late acknowledgements and what is over are looked for so often. */
const TICK_MS = 100
/** What was taken is answered within this when the server stops. */
const DRAIN_MS = 12_000
/** The last answers have left within this. */
const FLUSH_MS = 1000
const FLUSH_CHECK_MS = 5

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

export type CoapServer = {
  readonly port: number
  /** Answers what was taken, takes nothing more and closes the socket. */
  stop(): Promise<void>
}

export async function startCoapServer(deps: CoapServerDeps): Promise<CoapServer> {
  const { gate, messages, maxBodyBytes, metrics, logger, nowMs = monotonicMs } = deps
  const socket = createSocket({
    type: isIPv6(deps.host) ? 'udp6' : 'udp4',
    // Peers are addresses already: a look-up would make every answer wait a turn.
    lookup: (host, options, done) => (isIP(host) === 0 ? lookup(host, options, done) : done(null, host, isIP(host))),
  })
  let sending = 0
  let dropped = 0
  let isClosed = false
  const send = (bytes: Buffer, { address, port }: Peer) => {
    if (isClosed) return
    if (socket.getSendQueueSize() > MAX_QUEUED_BYTES) dropped++
    else {
      sending++
      socket.send(bytes, port, address, (error) => {
        sending--
        // A peer that cannot be reached is found lost by what it does not acknowledge.
        if (error !== null) dropped++
      })
    }
  }
  const endpoints = new Endpoints(nowMs)
  const addresses = new AddressProofs(endpoints, nowMs)
  const outbox = new Outbox(send, nowMs, deps.ackTimeoutMs)
  const uploads = new Uploads(maxBodyBytes)
  const representations = new Representations()
  const observed = { messages, endpoints, outbox, addresses, representations, send, nowMs, logger }
  const observations = new Observations(observed)
  const resource = createResource({ gate, messages, uploads, representations, observations, maxBodyBytes, logger })
  const exchanges = new Exchanges({
    endpoints,
    outbox,
    addresses,
    resource,
    send,
    acknowledgeAfterMs: deps.acknowledgeAfterMs,
    onAnswered: (route, code, durationMs) =>
      metrics?.countRequest('coap', route, code === undefined ? 'dropped' : formatCode(code), durationMs / 1000),
  })

  socket.on('message', (datagram, { address, port }) =>
    exchanges.take(datagram, { key: `${address} ${port}`, address, port }),
  )
  await bind(socket, deps)
  socket.on('error', (error) => logger.warn({ err: error }, 'the socket of CoAP reports an error'))
  const clock = setInterval(() => {
    exchanges.tick()
    outbox.tick()
    observations.tick()
    endpoints.sweep()
    uploads.sweep()
  }, TICK_MS)

  metrics?.gauge('skein_coap_observations', 'Observations that are open', () => observations.size)
  metrics?.gauge(
    'skein_coap_remembered_requests',
    'Requests of which a repetition is answered again',
    () => endpoints.remembered,
  )
  metrics?.gauge('skein_coap_unanswered_requests', 'Requests that wait for their answer', () => exchanges.unanswered)
  metrics?.gauge(
    'skein_coap_unacknowledged_messages',
    'Messages that are sent again until acknowledged',
    () => outbox.size,
  )
  metrics?.gauge('skein_coap_dropped_datagrams', 'Datagrams that could not be sent since the start', () => dropped)

  return {
    port: socket.address().port,
    async stop() {
      await withDeadline(exchanges.drain(), DRAIN_MS, 'answering the last requests of CoAP').catch((error: unknown) =>
        logger.warn({ err: error }, 'requests of CoAP stay without an answer'),
      )
      clearInterval(clock)
      for (let waitedMs = 0; sending > 0 && waitedMs < FLUSH_MS; waitedMs += FLUSH_CHECK_MS) await sleep(FLUSH_CHECK_MS)
      isClosed = true
      await new Promise<void>((resolve) => socket.close(resolve))
    },
  }
}

function bind(socket: Socket, { host, port }: CoapServerDeps): Promise<void> {
  return new Promise((resolve, reject) => {
    const fail = (error: Error) => reject(portError(error, { port, setting: 'SKEIN_COAP_PORT' }, host))
    socket.once('error', fail)
    socket.bind({ address: host, port }, () => {
      socket.removeListener('error', fail)
      try {
        socket.setRecvBufferSize(RECEIVE_BUFFER_BYTES)
      } catch {
        // The system keeps its own size.
      }
      resolve()
    })
  })
}
