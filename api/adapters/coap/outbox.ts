/** Confirmable messages of ours: sent again until they are acknowledged, rejected or given up (RFC 7252 section 4.2). */
import type { Peer } from './endpoints.ts'

/** Transmission parameters of RFC 7252 section 4.8. */
const ACK_TIMEOUT_MS = 2000
const ACK_RANDOM_FACTOR = 1.5
const MAX_RETRANSMIT = 4
/** A message is sent so often at most. */
export const MAX_COPIES = MAX_RETRANSMIT + 1
/** Messages that await their acknowledgement; beyond, they are sent once. */
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

  /** Tests shorten the timeout. */
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

  /** Half of it is for peers that are known to be at their address, so that forged ones cannot take their place. */
  get isFullForUnproven(): boolean {
    return this.#messages.size >= MAX_UNACKNOWLEDGED / 2
  }

  /**
   * `onEnd` is told once what became of it; not where too many await theirs already. With `maxCopies` it is sent no more
   * often, and given up when it would be otherwise.
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

  /** The peer spoke of a message of ours that awaits it. */
  settle(peer: Peer, messageId: number, fate: 'acknowledged' | 'reset'): void {
    const key = `${peer.key} ${messageId}`
    const message = this.#messages.get(key)
    this.#messages.delete(key)
    message?.onEnd(fate)
  }

  /** Sends again what is due. */
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
