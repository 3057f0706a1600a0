/** Who subscribed to what on this process, by stream, and how a message finds them. */
import type { Arrival } from './arrival.ts'
import type { Session, Step } from './session.ts'
import { Audience } from './subscription.ts'
import type { SharedMatch, Subscription } from './subscription.ts'

const noStep = () => undefined

export class Streams {
  readonly #audiences = new Map<number, Audience>()
  readonly #separator: string

  constructor(separator: string) {
    this.#separator = separator
  }

  add(subscription: Subscription): void {
    let audience = this.#audiences.get(subscription.streamKey)
    if (audience === undefined) this.#audiences.set(subscription.streamKey, (audience = new Audience(this.#separator)))
    audience.add(subscription)
  }

  delete(subscription: Subscription): void {
    const audience = this.#audiences.get(subscription.streamKey)
    audience?.delete(subscription)
    if (audience?.size === 0) this.#audiences.delete(subscription.streamKey)
  }

  has(streamKey: number): boolean {
    return this.#audiences.has(streamKey)
  }

  sessionsOf(streamKey: number): Iterable<Session> {
    return this.#audiences.get(streamKey)?.sessions() ?? []
  }

  /** `stepOf`: the step of the log that a session is in. */
  deliver(streamKey: number, arrival: Arrival, stepOf: (session: Session) => Step | undefined = noStep): void {
    const matches = this.#audiences.get(streamKey)?.match(arrival.facts.subtopic)
    if (matches === undefined) return
    for (const { session, subscriptions } of matches.own) session.deliver(arrival, subscriptions, stepOf(session))
    for (const shared of matches.shared) {
      const member = chooseMember(shared)
      member.session.deliver(arrival, [member], stepOf(member.session))
    }
  }
}

/** One after the other, those first who can take it now (section 4.8.2). */
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
