/** The subscriptions of this process by stream, and delivery of messages to them. */
import type { ApplicationMessage } from './application-message.ts'
import type { LogBatch, Session, Subscription } from './session.ts'
import type { SharedMatch } from './subscription-index.ts'
import { SubscriptionIndex } from './subscription-index.ts'

const noBatch = () => undefined

export class Streams {
  readonly #indexes = new Map<number, SubscriptionIndex>()
  readonly #separator: string

  constructor(separator: string) {
    this.#separator = separator
  }

  add(subscription: Subscription): void {
    let index = this.#indexes.get(subscription.streamKey)
    if (index === undefined) this.#indexes.set(subscription.streamKey, (index = new SubscriptionIndex(this.#separator)))
    index.add(subscription)
  }

  delete(subscription: Subscription): void {
    const index = this.#indexes.get(subscription.streamKey)
    index?.delete(subscription)
    if (index?.size === 0) this.#indexes.delete(subscription.streamKey)
  }

  has(streamKey: number): boolean {
    return this.#indexes.has(streamKey)
  }

  sessionsOf(streamKey: number): Iterable<Session> {
    return this.#indexes.get(streamKey)?.sessions() ?? []
  }

  /** `batchOf`: the batch of the changelog that a session is in. */
  deliver(
    streamKey: number,
    applicationMessage: ApplicationMessage,
    batchOf: (session: Session) => LogBatch | undefined = noBatch,
  ): void {
    const matches = this.#indexes.get(streamKey)?.match(applicationMessage.facts.subtopic)
    if (matches === undefined) return
    for (const { session, subscriptions } of matches.own)
      session.deliver(applicationMessage, subscriptions, batchOf(session))
    for (const shared of matches.shared) {
      const member = chooseMember(shared)
      member.session.deliver(applicationMessage, [member], batchOf(member.session))
    }
  }
}

/** Members in rotation; those that can accept a message now come first (section 4.8.2). */
function chooseMember(shared: SharedMatch): Subscription {
  const { members } = shared
  for (let tried = 0; tried < members.length; tried++) {
    const member = members[(shared.next + tried) % members.length] as Subscription
    if (member.session.outlet?.isWritable !== true || member.session.isFull) continue
    shared.next = (shared.next + tried + 1) % members.length
    return member
  }
  shared.next = (shared.next + 1) % members.length
  return members[shared.next] as Subscription
}
