/** A follower of a channel: its filter, its authorization, and its delivery. */
import type { ChannelAccess } from '#api/devices/index.ts'
import { matchesSubtopic } from '../model/topics.ts'
import { isTracing, startSpan } from '#core/tracing/index.ts'
import type { Span } from '#core/tracing/index.ts'
import type { LiveMessage } from './live-message.ts'
import type { LiveToken } from './token.ts'

/** The reason why delivery to a follower has ended. */
export type EndReason = 'forbidden' | 'behind' | 'stopping' | 'closed'

/** A message, and the position of a follower that has received it. */
export type Delivery = { message: LiveMessage; token: LiveToken }

export type FollowerOptions = {
  access: ChannelAccess
  /** The result of `parseSubtopicFilter`; empty: the channel without a subtopic. */
  filter: string
  /** True to receive only messages that a user or a task published. */
  withoutPublisher?: boolean
  /** Throws when the caller may no longer read. */
  authorize: () => Promise<unknown>
  /** Must not throw or wait; a follower that cannot accept more must end itself. */
  deliver: (deliveries: readonly Delivery[]) => void
  /** Called once. */
  onEnd: (reason: EndReason) => void
  /** Resolves when delivered messages have been sent. A follower that catches up receives no more before. */
  drained?: () => Promise<void>
  /** Called when the follower has caught up and receives live messages. */
  onLive?: () => void
  /** The limit of missed messages; the number of skipped ones is reported. Undefined: no limit. */
  backlog?: { maxMessages: number; onSkipped: (messages: number) => void }
}

export class Follower {
  readonly access: ChannelAccess
  readonly filter: string
  readonly authorize: () => Promise<unknown>
  readonly #withoutPublisher: boolean
  readonly #options: FollowerOptions
  #isEnded = false

  constructor(options: FollowerOptions) {
    this.access = options.access
    this.filter = options.filter
    this.#withoutPublisher = options.withoutPublisher === true
    this.authorize = options.authorize
    this.#options = options
  }

  get isEnded(): boolean {
    return this.#isEnded
  }

  wants(message: LiveMessage): boolean {
    if (message.channelKey !== this.access.channelKey) return false
    if (this.#withoutPublisher && message.publisherId !== '') return false
    return matchesSubtopic(this.filter, message.subtopic)
  }

  deliver(deliveries: readonly Delivery[]): void {
    if (this.#isEnded) return
    const spans = isTracing() ? deliveries.flatMap(spanOf) : []
    this.#options.deliver(deliveries)
    for (const span of spans) span.end()
  }

  /** All messages except the last carry the token before the step: only after the last one is the step complete. */
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

/** Returns no span for a message without a trace: most readers follow messages that were published untraced. */
function spanOf({ message }: Delivery): Span[] {
  const parent = message.envelope?.traceparent
  if (parent === undefined) return []
  const attributes = {
    'messaging.system': 'skein',
    'messaging.operation.name': 'deliver',
    'messaging.operation.type': 'process',
    'messaging.destination.name': message.channelId,
  }
  return [startSpan('deliver', { kind: 'consumer', parent, attributes })]
}
