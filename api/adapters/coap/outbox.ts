/** Outgoing confirmable messages: retransmitted until they are acknowledged, rejected or given up (RFC 7252 section 4.2). */
import type { Peer } from './endpoints.ts'

/** Transmission parameters of RFC 7252 section 4.8. */
const ACK_TIMEOUT_MS = 2000
const ACK_RANDOM_FACTOR = 1.5
const MAX_RETRANSMIT = 4
/** The maximum number of transmissions of a message. */
export const MAX_COPIES = MAX_RETRANSMIT + 1
/** The limit of unacknowledged messages; above it, messages are sent once. */
const MAX_UNACKNOWLEDGED = 20_000

export type Fate = 'acknowledged' | 'reset' | 'lost'

type Unacknowledged = {
  peer: Peer
  bytes: Buffer
  sent: number
  maxCopies: number
  timeoutMs: number
  nextAt: number
  onEnd: (fate: Fate) => void
}

export class Outbox {
  readonly #messages = new Map<string, Unacknowledged>()
  readonly #send: (bytes: Buffer, peer: Peer) => void
  readonly #nowMs: () => number
  readonly #ackTimeoutMs: number

  /** `ackTimeoutMs` is an override for tests. */
  constructor(send: (bytes: Buffer, peer: Peer) => void, nowMs: () => number, ackTimeoutMs: number = ACK_TIMEOUT_MS) {
    this.#send = send
    this.#nowMs = nowMs
    this.#ackTimeoutMs = ackTimeoutMs
  }

  get size(): number {
    return this.#messages.size
  }

  get isFull(): boolean {
    return this.#messages.size >= MAX_UNACKNOWLEDGED
  }

  /** Half of the capacity is reserved for verified addresses, so that forged ones cannot take it. */
  get isFullForUnproven(): boolean {
    return this.#messages.size >= MAX_UNACKNOWLEDGED / 2
  }

  /**
   * `onEnd` is called once with the outcome, unless the limit of unacknowledged messages is reached. `maxCopies` limits the transmissions,
   * after which the message is given up.
   */
  send(
    peer: Peer,
    messageId: number,
    bytes: Buffer,
    { maxCopies = MAX_COPIES, onEnd = () => undefined }: { maxCopies?: number; onEnd?: (fate: Fate) => void } = {},
  ): void {
    this.#send(bytes, peer)
    if (this.isFull) return
    const timeoutMs = this.#ackTimeoutMs * (1 + Math.random() * (ACK_RANDOM_FACTOR - 1))
    const nextAt = this.#nowMs() + timeoutMs
    this.#messages.set(`${peer.key} ${messageId}`, { peer, bytes, sent: 1, maxCopies, timeoutMs, nextAt, onEnd })
  }

  awaits(peer: Peer, messageId: number): boolean {
    return this.#messages.has(`${peer.key} ${messageId}`)
  }

  /** The peer acknowledged or reset a message. */
  settle(peer: Peer, messageId: number, fate: 'acknowledged' | 'reset'): void {
    const key = `${peer.key} ${messageId}`
    const message = this.#messages.get(key)
    this.#messages.delete(key)
    message?.onEnd(fate)
  }

  /** Retransmits due messages. */
  tick(): void {
    const now = this.#nowMs()
    for (const [key, message] of this.#messages) {
      if (message.nextAt > now) continue
      if (message.sent > MAX_RETRANSMIT) {
        this.#messages.delete(key)
        message.onEnd('lost')
        continue
      }
      message.sent++
      message.timeoutMs *= 2
      message.nextAt = now + message.timeoutMs
      if (message.sent <= message.maxCopies) this.#send(message.bytes, message.peer)
    }
  }
}
