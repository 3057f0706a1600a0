/**
 * What is known of the peers: which of their requests were answered with an effect, so that a repeated one is answered again
 * and not carried out again (RFC 7252 section 4.5), and the number of the next message to each. Only peers that have shown a
 * secret are remembered, so a stranger cannot fill this.
 */
import { randomInt } from 'node:crypto'
import type { Observation } from './observations.ts'

/** Who sent a datagram; `key` names address and port. */
export type Peer = { key: string; address: string; port: number }

/** EXCHANGE_LIFETIME (RFC 7252 section 4.8.2): so long a message identifier stands for the same message. */
const EXCHANGE_LIFETIME_SECONDS = 247
/** Some 40 bytes each: what 17,000 requests a second need. Beyond, requests are refused (contract section 7.6). */
const MAX_REMEMBERED = 4 * 1024 * 1024
/** Some 500 bytes each. */
const MAX_ENDPOINTS = 250_000
/** Numbers of notifications that a reset is matched with. */
const MAX_NOTIFIED = 128
const MESSAGE_IDS = 0x1_0000
/** Seconds are kept modulo this, in the upper part of a small integer; the lower part is the code. */
const CLOCK_SECONDS = 0x1_0000
/** Each sweep looks at this part of the endpoints. */
const SWEEP_PARTS = 50

export class Endpoint {
  readonly peer: Peer
  /** By the token in hexadecimal digits. */
  readonly observations = new Map<string, Observation>()
  /** By message identifier, oldest first: second and code of the answer. */
  readonly answered = new Map<number, number>()
  lastAt: number
  #nextMessageId = randomInt(MESSAGE_IDS)
  readonly #notified = new Map<number, Observation>()

  constructor(peer: Peer, now: number) {
    this.peer = peer
    this.lastAt = now
  }

  nextMessageId(): number {
    const id = this.#nextMessageId
    this.#nextMessageId = (id + 1) % MESSAGE_IDS
    return id
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
  #remembered = 0
  #sweeping: Iterator<[string, Endpoint]> | undefined

  /** `nowMs`: a clock that nobody sets. */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs
  }

  get remembered(): number {
    return this.#remembered
  }

  isFull(pending: number): boolean {
    return this.#remembered + pending >= MAX_REMEMBERED || this.#endpoints.size + pending >= MAX_ENDPOINTS
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

  remember(peer: Peer, messageId: number, code: number): void {
    const { answered } = this.of(peer)
    // Set anew, so that the oldest stay in front.
    if (!answered.delete(messageId)) this.#remembered++
    answered.set(messageId, ((Math.floor(this.#nowMs() / 1000) % CLOCK_SECONDS) << 8) | code)
  }

  /** The code that the request was answered with. */
  answerOf(key: string, messageId: number): number | undefined {
    const entry = this.#endpoints.get(key)?.answered.get(messageId)
    return entry === undefined || this.#isOver(entry) ? undefined : entry & 0xff
  }

  /** Forgets what is over, a part at a time. */
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
        this.#remembered--
      }
      const isIdle = now - endpoint.lastAt > EXCHANGE_LIFETIME_SECONDS * 1000
      if (isIdle && endpoint.answered.size === 0 && endpoint.observations.size === 0) this.#endpoints.delete(key)
    }
  }

  #isOver(entry: number): boolean {
    const second = Math.floor(this.#nowMs() / 1000) % CLOCK_SECONDS
    return (second - (entry >> 8) + CLOCK_SECONDS) % CLOCK_SECONDS > EXCHANGE_LIFETIME_SECONDS
  }
}
