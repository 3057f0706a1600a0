/** The UDP socket of CoAP, with bounded buffers. */
import { createSocket } from 'node:dgram'
import type { Socket } from 'node:dgram'
import { lookup } from 'node:dns'
import { isIP, isIPv6 } from 'node:net'
import { portError } from '#http/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sleep } from '#core/time.ts'
import { createTurns } from '#core/turns.ts'
import type { Peer } from './endpoints.ts'
import { COAP_METRICS } from './metrics.ts'

/** Buffers bursts of devices while this process is busy; the system may allow less. */
const RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
/** The limit of bytes that were received and wait for their turn; further datagrams are dropped, as by a full receive buffer. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024
/** The limit of bytes that wait to be sent; further datagrams are dropped, as by a network. */
const MAX_QUEUED_BYTES = 16 * 1024 * 1024
/** The time for sending the last responses. */
const FLUSH_MS = 1000
const FLUSH_CHECK_MS = 5

export class UdpSocket {
  readonly #socket: Socket
  readonly #host: string
  readonly #logger: Logger
  /** Received, and not taken yet. */
  readonly #waiting: { datagram: Buffer; peer: Peer }[] = []
  readonly #turns = createTurns()
  #waitingBytes = 0
  #sending = 0
  #isClosed = false

  constructor(host: string, logger: Logger) {
    this.#host = host
    this.#logger = logger
    this.#socket = createSocket({
      type: isIPv6(host) ? 'udp6' : 'udp4',
      // Peers are numeric addresses: a lookup would delay every response by a turn.
      lookup: (name, options, done) => (isIP(name) === 0 ? lookup(name, options, done) : done(null, name, isIP(name))),
    })
  }

  get port(): number {
    return this.#socket.address().port
  }

  /** `take` is called with each datagram. Throws where the port is taken; 0: any free one. */
  async open(port: number, take: (datagram: Buffer, peer: Peer) => void): Promise<void> {
    this.#socket.on('message', (datagram, { address, port: peerPort }) => {
      if (this.#waitingBytes + datagram.length > MAX_WAITING_BYTES) return COAP_METRICS.unread.add({})
      this.#waitingBytes += datagram.length
      const peer = { key: `${address} ${peerPort}`, address, port: peerPort }
      if (this.#waiting.push({ datagram, peer }) === 1) setImmediate(() => this.#takeWaiting(take))
    })
    await this.#bind(port)
    this.#socket.on('error', (error) => this.#logger.warn({ err: error }, 'the UDP socket of CoAP reports an error'))
  }

  /** Node hands over dozens of datagrams at once. Each may cost milliseconds: together they would hold the event loop for too long. */
  #takeWaiting(take: (datagram: Buffer, peer: Peer) => void): void {
    this.#turns.begin()
    let taken = 0
    for (const { datagram, peer } of this.#waiting) {
      if (taken > 0 && this.#turns.isOver) break
      taken++
      this.#waitingBytes -= datagram.length
      take(datagram, peer)
    }
    this.#waiting.splice(0, taken)
    if (this.#waiting.length > 0) setImmediate(() => this.#takeWaiting(take))
  }

  send(bytes: Buffer, { address, port }: Peer): void {
    if (this.#isClosed) return
    if (this.#socket.getSendQueueSize() > MAX_QUEUED_BYTES) {
      COAP_METRICS.dropped.add({})
      return
    }
    this.#sending++
    this.#socket.send(bytes, port, address, (error) => {
      this.#sending--
      // A peer that cannot be reached is found lost by what it does not acknowledge.
      if (error !== null) COAP_METRICS.dropped.add({})
    })
  }

  /** Waits until queued datagrams are sent. */
  async close(): Promise<void> {
    for (let waitedMs = 0; this.#sending > 0 && waitedMs < FLUSH_MS; waitedMs += FLUSH_CHECK_MS)
      await sleep(FLUSH_CHECK_MS)
    this.#isClosed = true
    await new Promise<void>((resolve) => this.#socket.close(resolve))
  }

  #bind(port: number): Promise<void> {
    const [socket, host] = [this.#socket, this.#host]
    return new Promise((resolve, reject) => {
      const fail = (error: Error) => reject(portError(error, { port, setting: 'SKEIN_COAP_PORT' }, host))
      socket.once('error', fail)
      socket.bind({ address: host, port }, () => {
        socket.removeListener('error', fail)
        try {
          socket.setRecvBufferSize(RECEIVE_BUFFER_BYTES)
        } catch {
          // The system keeps its default size.
        }
        resolve()
      })
    })
  }
}
