/** Feeds: one follower of a channel for all sessions of this process that keep pace with it. */
import type { Delivery, EndReason, Messages } from '#api/messages/index.ts'
import type { Cursor } from './cursors.ts'

type Feed = { opened: Promise<void>; close: (() => void) | undefined; readonly cursors: Set<Cursor> }

export type FeedHost = {
  deliver(streamKey: number, deliveries: readonly Delivery[]): void
  /** The follower of these sessions has ended unexpectedly. */
  ended(cursors: Iterable<Cursor>, reason: EndReason): void
}

export class Feeds {
  readonly #messages: Messages
  readonly #host: FeedHost
  readonly #feeds = new Map<number, Feed>()

  constructor(messages: Messages, host: FeedHost) {
    this.#messages = messages
    this.#host = host
  }

  /** Resolves when no later commit can be missed. */
  join(cursor: Cursor): Promise<void> {
    const feed = this.#feeds.get(cursor.streamKey) ?? this.#open(cursor)
    feed.cursors.add(cursor)
    return feed.opened
  }

  leave(cursor: Cursor): void {
    const feed = this.#feeds.get(cursor.streamKey)
    if (feed?.cursors.delete(cursor) !== true || feed.cursors.size > 0) return
    this.#feeds.delete(cursor.streamKey)
    feed.close?.()
  }

  #open({ streamKey, access }: Cursor): Feed {
    const feed: Feed = { opened: Promise.resolve(), close: undefined, cursors: new Set() }
    this.#feeds.set(streamKey, feed)
    const isCurrent = () => this.#feeds.get(streamKey) === feed
    feed.opened = this.#messages
      .follow({
        access,
        filter: '>',
        authorize: () => Promise.resolve(),
        deliver: (deliveries) => this.#host.deliver(streamKey, deliveries),
        onEnd: (reason) => {
          if (reason === 'closed') return
          // A process that stops delivers nothing more; its sessions leave individually.
          if (reason !== 'stopping') this.#feeds.delete(streamKey)
          this.#host.ended(feed.cursors, reason)
        },
      })
      .then(({ close }) => {
        feed.close = close
        // All sessions left while it was opening.
        if (!isCurrent()) close()
      })
    feed.opened.catch(() => {
      if (isCurrent()) this.#feeds.delete(streamKey)
    })
    return feed
  }
}
