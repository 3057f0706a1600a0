/** The followers of this process: counted from their request, and found by channel once they are live. */
import { ServiceError } from '#core/errors/index.ts'
import type { EndReason, Follower } from './follower.ts'
import type { LiveMessage } from './live-message.ts'
import type { LiveToken } from './token.ts'

/** The limit of one process: sockets, streams and observations. */
const MAX_FOLLOWERS = 100_000

export class Followers {
  readonly #all = new Set<Follower>()
  readonly #attached = new Map<number, Set<Follower>>()
  /** The number of followers of each channel, including those that still catch up. */
  readonly #counts = new Map<number, number>()
  /** Ids of the followed channels. */
  readonly channels = new Map<number, string>()
  #state = 0

  /** Changes when a channel gets its first follower. */
  get state(): number {
    return this.#state
  }

  get size(): number {
    return this.#all.size
  }

  all(): Follower[] {
    return [...this.#all]
  }

  /** Throws `unavailable` at the limit. */
  add(follower: Follower): void {
    if (this.#all.size >= MAX_FOLLOWERS)
      throw new ServiceError(
        'unavailable',
        `this server is limited to ${MAX_FOLLOWERS} followers of messages: close one first`,
      )
    this.#all.add(follower)
    const { channelKey, channelId } = follower.access
    this.#counts.set(channelKey, (this.#counts.get(channelKey) ?? 0) + 1)
    if (this.channels.has(channelKey)) return
    this.channels.set(channelKey, channelId)
    this.#state++
  }

  /** Starts delivery to the follower. */
  attach(follower: Follower): void {
    if (!this.#all.has(follower)) return
    const peers = this.#attached.get(follower.access.channelKey) ?? new Set()
    peers.add(follower)
    this.#attached.set(follower.access.channelKey, peers)
  }

  remove(follower: Follower): void {
    if (!this.#all.delete(follower)) return
    const { channelKey } = follower.access
    const count = (this.#counts.get(channelKey) ?? 1) - 1
    if (count > 0) this.#counts.set(channelKey, count)
    else {
      this.#counts.delete(channelKey)
      this.channels.delete(channelKey)
    }
    const peers = this.#attached.get(channelKey)
    peers?.delete(follower)
    if (peers?.size === 0) this.#attached.delete(channelKey)
  }

  /** `before`: the position of all live followers; `behind`: the position after these messages. */
  deliver(messages: readonly LiveMessage[], before: LiveToken, behind: LiveToken): void {
    const wanted = new Map<Follower, LiveMessage[]>()
    for (const message of messages) {
      for (const follower of this.#attached.get(message.channelKey) ?? []) {
        if (!follower.wants(message)) continue
        const mine = wanted.get(follower)
        if (mine === undefined) wanted.set(follower, [message])
        else mine.push(message)
      }
    }
    for (const [follower, mine] of wanted) follower.deliverStep(mine, before, behind)
  }

  endAll(reason: EndReason): void {
    for (const follower of this.#all) {
      follower.end(reason)
      this.remove(follower)
    }
  }
}
