/** Who follows a channel: what it wants, whether it still may, and how it is handed messages. */
import type { MessageAccess } from '#api/devices/index.ts'
import { matchesSubtopic } from '../model/topics.ts'
import type { LiveMessage } from './live-message.ts'
import type { LiveToken } from './token.ts'

/** Why a follower is handed nothing more. */
export type EndReason = 'forbidden' | 'behind' | 'stopping' | 'closed'

/** A message, and where a follower stands that has got it. */
export type Delivery = { message: LiveMessage; token: LiveToken }

export type FollowerOptions = {
  access: MessageAccess
  /** Of `parseSubtopicFilter`; empty: the channel without a subtopic. */
  filter: string
  /** Throws when the caller may not follow any more. */
  authorize: () => Promise<unknown>
  /** Must not throw and not wait; whoever cannot take more ends the follower. */
  deliver: (deliveries: readonly Delivery[]) => void
  /** Told once. */
  onEnd: (reason: EndReason) => void
  /** Resolves when what was delivered has gone out; a follower that catches up is not handed more before. */
  drained?: () => Promise<void>
  /** It caught up, and is handed from now on what everybody is handed. */
  onLive?: () => void
  /** What it is handed at the most of what it missed; what is left out is counted. Undefined: everything. */
  backlog?: { maxMessages: number; onSkipped: (messages: number) => void }
}

export class Follower {
  readonly access: MessageAccess
  readonly filter: string
  readonly authorize: () => Promise<unknown>
  readonly #options: FollowerOptions
  #isEnded = false

  constructor(options: FollowerOptions) {
    this.access = options.access
    this.filter = options.filter
    this.authorize = options.authorize
    this.#options = options
  }

  get isEnded(): boolean {
    return this.#isEnded
  }

  wants(message: LiveMessage): boolean {
    return message.channelKey === this.access.channelKey && matchesSubtopic(this.filter, message.subtopic)
  }

  deliver(deliveries: readonly Delivery[]): void {
    if (!this.#isEnded) this.#options.deliver(deliveries)
  }

  /** All but the last message carry the token before them: only after the last one is nothing of the step missing. */
  deliverStep(messages: readonly LiveMessage[], before: LiveToken, behind: LiveToken): void {
    const last = messages.length - 1
    if (last >= 0)
      this.deliver(messages.map((message, index): Delivery => ({ message, token: index === last ? behind : before })))
  }

  get backlog(): FollowerOptions['backlog'] {
    return this.#options.backlog
  }

  live(): void {
    if (!this.#isEnded) this.#options.onLive?.()
  }

  async drained(): Promise<void> {
    await this.#options.drained?.()
  }

  end(reason: EndReason): void {
    if (this.#isEnded) return
    this.#isEnded = true
    this.#options.onEnd(reason)
  }
}
