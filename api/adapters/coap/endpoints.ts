/**
 * State of the peers: requests with an effect and their response codes, so that a duplicate is answered again and not processed again
 * (RFC 7252 section 4.5), the next message identifier, and the time of the last verification of the address. Only peers that have
 * presented a secret are stored, so unauthenticated peers cannot fill it.
 */
import { randomInt } from 'node:crypto'

/** The sender of a datagram; `key` consists of address and port. */
export type Peer = { key: string; address: string; port: number }

/** An observation of an endpoint, by its token. */
export type Observation = {
  end(): void
  /** Sends held messages. */
  resume(): void
}

/** EXCHANGE_LIFETIME (RFC 7252 section 4.8.2): the time for which a message identifier identifies the same message. */
const EXCHANGE_LIFETIME_SECONDS = 247
/** About 40 bytes each: enough for 17,000 requests per second. Above it, requests are rejected (contract section 7.6). */
const MAX_ANSWERED_REQUESTS = 4 * 1024 * 1024
/** About 500 bytes each. */
const MAX_ENDPOINTS = 250_000
/** The number of sent notifications that a reset is matched with. */
const MAX_NOTIFIED = 128
const MESSAGE_IDS = 0x1_0000
/** Seconds are kept modulo this, in the upper part of a small integer; the lower part is the code. */
const CLOCK_SECONDS = 0x1_0000
/** How long a verification of an address is valid. */
const PROOF_MS = 300_000
const ROUNDS = 4
/** Each sweep checks one of this many parts of the endpoints. */
const SWEEP_PARTS = 50

export class Endpoint {
  readonly peer: Peer
  /** The keys are the tokens in hexadecimal digits. */
  readonly observations = new Map<string, Observation>()
  /** The second and the code of each response, by the message identifier of the request. The oldest comes first. */
  readonly answered = new Map<number, number>()
  lastAt: number
  /** The time of the last verification of the address. */
  provenAt: number | undefined
  /** The message whose acknowledgement verifies the address. */
  challengeId: number | undefined
  /** Unacknowledged confirmable notifications; no other notification is sent to the peer until they are acknowledged. */
  awaited = 0
  /** Notifications since the last confirmable one, and the time of that. */
  unconfirmed = 0
  lastConfirmableAt: number
  #sent = randomInt(MESSAGE_IDS)
  readonly #keys = [randomInt(2 ** 32), randomInt(2 ** 32)] as const
  readonly #notified = new Map<number, Observation>()

  constructor(peer: Peer, now: number) {
    this.peer = peer
    this.lastAt = now
    this.lastConfirmableAt = now
  }

  /**
   * Uses each of the 65,536 identifiers once before it repeats one, in an unpredictable order: an acknowledgement proves that its message
   * was received. A Feistel network permutes the numbers of the messages.
   */
  nextMessageId(): number {
    let left = this.#sent >> 8
    let right = this.#sent & 0xff
    this.#sent = (this.#sent + 1) % MESSAGE_IDS
    for (let round = 0; round < ROUNDS; round++) {
      const key = this.#keys[round % 2 === 0 ? 0 : 1]
      const mixed = scramble(key ^ right ^ (round << 8)) & 0xff
      const swapped = right
      right = left ^ mixed
      left = swapped
    }
    return (left << 8) | right
  }

  /** The peer is unreachable: nothing more is sent to it. */
  endObservations(): void {
    for (const observation of this.observations.values()) observation.end()
  }

  /** Sends held messages, up to a confirmable notification. */
  resumeObservations(): void {
    for (const observation of this.observations.values()) {
      if (this.awaited > 0) return
      observation.resume()
    }
  }

  /** A reset of this message ends the observation. */
  notified(messageId: number, observation: Observation): void {
    this.#notified.set(messageId, observation)
    if (this.#notified.size > MAX_NOTIFIED) {
      for (const [oldest] of this.#notified) {
        this.#notified.delete(oldest)
        break
      }
    }
  }

  notificationOf(messageId: number): Observation | undefined {
    return this.#notified.get(messageId)
  }
}

export class Endpoints {
  readonly #endpoints = new Map<string, Endpoint>()
  readonly #nowMs: () => number
  #answeredRequests = 0
  #sweeping: Iterator<[string, Endpoint]> | undefined

  /** `nowMs`: a monotonic clock. */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs
  }

  get answeredRequests(): number {
    return this.#answeredRequests
  }

  isFull(pending: number): boolean {
    return this.#answeredRequests + pending >= MAX_ANSWERED_REQUESTS || this.#endpoints.size + pending >= MAX_ENDPOINTS
  }

  find(key: string): Endpoint | undefined {
    return this.#endpoints.get(key)
  }

  of(peer: Peer): Endpoint {
    let endpoint = this.#endpoints.get(peer.key)
    const now = this.#nowMs()
    if (endpoint === undefined) this.#endpoints.set(peer.key, (endpoint = new Endpoint(peer, now)))
    endpoint.lastAt = now
    return endpoint
  }

  isProven(key: string): boolean {
    const provenAt = this.#endpoints.get(key)?.provenAt
    return provenAt !== undefined && this.#nowMs() - provenAt < PROOF_MS
  }

  prove(peer: Peer): void {
    this.of(peer).provenAt = this.#nowMs()
  }

  remember(peer: Peer, messageId: number, code: number): void {
    const { answered } = this.of(peer)
    // Inserted again, so that the oldest stay in front.
    if (!answered.delete(messageId)) this.#answeredRequests++
    answered.set(messageId, ((Math.floor(this.#nowMs() / 1000) % CLOCK_SECONDS) << 8) | code)
  }

  /** The response code of the request. */
  responseCodeOf(key: string, messageId: number): number | undefined {
    const entry = this.#endpoints.get(key)?.answered.get(messageId)
    return entry === undefined || this.#isOver(entry) ? undefined : entry & 0xff
  }

  /** Removes expired entries, one part at a time. */
  sweep(): void {
    const now = this.#nowMs()
    const wanted = Math.ceil(this.#endpoints.size / SWEEP_PARTS)
    for (let seen = 0; seen < wanted; seen++) {
      this.#sweeping ??= this.#endpoints.entries()
      const { done, value } = this.#sweeping.next()
      if (done === true) {
        this.#sweeping = undefined
        return
      }
      const [key, endpoint] = value
      for (const [messageId, entry] of endpoint.answered) {
        if (!this.#isOver(entry)) break
        endpoint.answered.delete(messageId)
        this.#answeredRequests--
      }
      const isIdle = now - endpoint.lastAt > EXCHANGE_LIFETIME_SECONDS * 1000
      const isNeeded = endpoint.answered.size > 0 || endpoint.observations.size > 0 || this.isProven(key)
      if (isIdle && !isNeeded) this.#endpoints.delete(key)
    }
  }

  #isOver(entry: number): boolean {
    const second = Math.floor(this.#nowMs() / 1000) % CLOCK_SECONDS
    return (second - (entry >> 8) + CLOCK_SECONDS) % CLOCK_SECONDS > EXCHANGE_LIFETIME_SECONDS
  }
}

/** Mixes all bits of a 32-bit integer (the finalizer of MurmurHash3). */
function scramble(value: number): number {
  let mixed = Math.imul(value ^ (value >>> 16), 0x85eb_ca6b)
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2_ae35)
  return mixed ^ (mixed >>> 16)
}
