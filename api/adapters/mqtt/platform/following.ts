/**
 * How sessions follow the log of messages: all that keep pace with a channel share one follower of it, the feed; one that was away or
 * fell behind reads for itself until it stands where the feed does.
 */
import type { Delivery, EndReason, LogMark, Messages } from '#api/messages/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { ExchangeHost } from '../exchange.ts'
import type { LogBatch, Session, Subscription } from '../session.ts'
import { Streams } from '../streams.ts'
import { SubscriptionIndex } from '../subscription-index.ts'
import type { Cursor } from './cursors.ts'
import { Feeds } from './feeds.ts'
import type { HeldSessions } from './held.ts'
import { subscriptionsOn } from './held.ts'
import { arrivalFrom } from './stored-rows.ts'

/** Newest messages of a channel that a session is handed of those that it missed; older ones are skipped and counted. */
export const MAX_MISSED_MESSAGES = 100_000
/** Of sessions that are not kept nobody counts. */
const UNCOUNTED: LogBatch = { token: '', pending: 0 }

export class Following {
  readonly #messages: Messages
  readonly #host: ExchangeHost
  readonly #held: HeldSessions
  readonly #streams = new Streams('.')
  readonly #feeds: Feeds
  /** What subscriptions are not handed of that which their sessions have still to read: it was there before them. */
  readonly #begun = new WeakMap<Subscription, LogMark>()
  /** Sessions that more waits for than should, found while a batch was handed out. */
  readonly #filled = new Set<Session>()
  #isStopped = false
  /** Where everybody stands who is handed nothing more, since the process is stopping. */
  #frozen: string | undefined

  constructor(messages: Messages, host: ExchangeHost, held: HeldSessions) {
    this.#messages = messages
    this.#host = host
    this.#held = held
    this.#feeds = new Feeds(messages, {
      deliver: (streamKey, deliveries) => this.#deliver(streamKey, deliveries),
      ended: (cursors, reason) => this.#endFeed(cursors, reason),
    })
  }

  /** Where everybody stands who keeps pace; undefined while nobody follows. */
  get position(): string | undefined {
    return this.#frozen ?? this.#messages.position
  }

  /** Resolves when nothing that is committed from then on is missed. */
  async begin(cursor: Cursor): Promise<void> {
    await this.#feeds.join(cursor)
    if (cursor.batches.length === 0) cursor.settled = this.position
  }

  /** From where the cursor stands; failures are told to the host. */
  goOn(cursor: Cursor): void {
    this.#readOn(cursor).catch((error: unknown) => this.#host.failed(cursor.session, error))
  }

  /** A subscription of an earlier connection. */
  add(cursor: Cursor, subscription: Subscription): void {
    if (cursor.mode === 'live') this.#streams.add(subscription)
  }

  /**
   * A new subscription, right after `mark`: it is handed what was committed later. One that replaces another goes on where that stood
   * [MQTT-3.8.4-3].
   */
  put(cursor: Cursor, subscription: Subscription, mark: LogMark, replaced: Subscription | undefined): void {
    const begun = replaced?.streamKey === subscription.streamKey ? this.#begun.get(replaced) : mark
    if (begun !== undefined) this.#begun.set(subscription, begun)
    this.add(cursor, subscription)
  }

  delete(subscription: Subscription): void {
    this.#streams.delete(subscription)
  }

  leave(cursor: Cursor): void {
    this.#feeds.leave(cursor)
    endOwn(cursor)
  }

  /** More waits in the session than should. */
  filled(session: Session): void {
    this.#filled.add(session)
  }

  /** Nothing waits any more in a session that fell behind. */
  drained(session: Session): void {
    session.isBehind = false
    for (const cursor of this.#held.get(session)?.cursors.values() ?? []) {
      const { onDrained } = cursor
      cursor.onDrained = undefined
      if (cursor.mode === 'paused') this.goOn(cursor)
      else onDrained?.()
    }
  }

  /** Ends of followers are nobody's failure any more. */
  stop(): void {
    this.#isStopped = true
  }

  #cursorOf(session: Session, streamKey: number): Cursor | undefined {
    return this.#held.get(session)?.cursors.get(streamKey)
  }

  #isHeld(cursor: Cursor): boolean {
    return this.#cursorOf(cursor.session, cursor.streamKey) === cursor
  }

  #deliver(streamKey: number, deliveries: readonly Delivery[]): void {
    const batchOf = this.#batchesOf(deliveries, streamKey)
    for (const { message } of deliveries) this.#streams.deliver(streamKey, arrivalFrom(message), batchOf)
    if (this.#filled.size > 0) this.#pauseFilled(streamKey, deliveries)
  }

  /** The batch of the log that a session is handed something of. */
  #batchesOf(deliveries: readonly Delivery[], streamKey: number): (session: Session) => LogBatch {
    const batches = new Map<Session, LogBatch>()
    return (session) => {
      if (!session.isPersistent) return UNCOUNTED
      let batch = batches.get(session)
      if (batch === undefined) {
        batch = { token: this.#messages.tokenOf(deliveries.at(-1)), pending: 0 }
        batches.set(session, batch)
        const cursor = this.#cursorOf(session, streamKey)
        // Nothing is under way: everything before this batch went its whole way, and there the session began.
        if (cursor?.batches.length === 0)
          cursor.settled = cursor.mode === 'live' ? this.#messages.position : cursor.token
        cursor?.batches.push(batch)
      }
      return batch
    }
  }

  /** A session that has too much waiting reads the log for itself later, from behind this batch. */
  #pauseFilled(streamKey: number, deliveries: readonly Delivery[]): void {
    for (const session of this.#filled) {
      const cursor = this.#cursorOf(session, streamKey)
      if (cursor?.mode !== 'live') continue
      cursor.token = this.#messages.tokenOf(deliveries.at(-1))
      this.#pause(cursor)
    }
    this.#filled.clear()
  }

  #pause(cursor: Cursor): void {
    const { session, streamKey } = cursor
    for (const subscription of subscriptionsOn(session, streamKey)) this.#streams.delete(subscription)
    this.#feeds.leave(cursor)
    // Nothing of it is under way where what filled the session came from elsewhere: then it begins again here.
    if (cursor.batches.length === 0) cursor.settled = cursor.token
    cursor.mode = 'paused'
    session.isBehind = true
  }

  /** The feed cannot go on: its sessions are closed and come back to what they missed. */
  #endFeed(cursors: Iterable<Cursor>, reason: EndReason): void {
    if (this.#isStopped) return
    if (reason === 'stopping') return this.#freeze()
    for (const cursor of cursors) {
      // What it was not handed any more comes after this, wherever the others go on.
      if (cursor.mode === 'live') {
        cursor.token = this.position
        if (cursor.batches.length === 0) cursor.settled = cursor.token
        cursor.mode = 'paused'
      }
      this.#host.failed(cursor.session, new ServiceError('unavailable', 'fallen behind'))
    }
  }

  /** What comes from now on is delivered to nobody: sessions stand here until they are taken up again. */
  #freeze(): void {
    this.#frozen ??= this.#messages.position
  }

  /** Reads what was missed from where the cursor stands, and goes on with what everybody is handed. */
  async #readOn(cursor: Cursor): Promise<void> {
    const { session, access, token } = cursor
    if (token === undefined) return
    cursor.mode = 'own'
    // Where its own follower has caught up, this one stands at the same place.
    await this.#feeds.join(cursor)
    if (!this.#isHeld(cursor)) return this.#feeds.leave(cursor)
    const index = new SubscriptionIndex('.')
    let isEnded = false
    const { close } = await this.#messages.follow(
      {
        access,
        filter: '>',
        authorize: () => Promise.resolve(),
        deliver: (deliveries) => {
          if (!isEnded) this.#deliverOwn(index, cursor, deliveries)
        },
        // More is read when nothing of this waits any more.
        drained: () => this.#untilDrained(cursor),
        onLive: () => {
          if (isEnded) return
          this.#goLive(cursor)
          isEnded = true
        },
        backlog: { maxMessages: MAX_MISSED_MESSAGES, onSkipped: (count) => this.#skip(session, count) },
        onEnd: (reason) => {
          if (reason === 'stopping') this.#freeze()
          else if (reason !== 'closed' && !this.#isStopped)
            this.#host.failed(session, new ServiceError('unavailable', 'fallen behind'))
        },
      },
      token,
    )
    const end = () => {
      isEnded = true
      close()
    }
    if (cursor.mode === 'own' && this.#isHeld(cursor)) cursor.end = end
    else end()
  }

  #goLive(cursor: Cursor): void {
    cursor.mode = 'live'
    for (const subscription of subscriptionsOn(cursor.session, cursor.streamKey)) this.#streams.add(subscription)
    endOwn(cursor)
  }

  #untilDrained(cursor: Cursor): Promise<void> {
    const { session } = cursor
    if (session.queued === 0 || cursor.mode !== 'own' || !this.#isHeld(cursor)) return Promise.resolve()
    session.isBehind = true
    return new Promise((resolve) => (cursor.onDrained = resolve))
  }

  /** It was away for too long: the oldest of what it missed are left out (section 4.1 leaves the bound to the server). */
  #skip(session: Session, count: number): void {
    this.#host.dropped(session, 'skipped', count)
    const one = this.#held.get(session)
    if (one !== undefined) one.skipped += count
  }

  #deliverOwn(index: SubscriptionIndex, cursor: Cursor, deliveries: readonly Delivery[]): void {
    const { session, streamKey } = cursor
    for (const subscription of subscriptionsOn(session, streamKey)) index.add(subscription)
    const batchOf = this.#batchesOf(deliveries, streamKey)
    for (const { message } of deliveries) {
      if (this.#held.get(session)?.known.delete(`${message.batchSeq} ${message.index}`) === true) continue
      const arrival = arrivalFrom(message)
      for (const { subscriptions } of index.match(message.subtopic).own) {
        // One that was replaced or ended is still found, and wants nothing.
        const current = subscriptions.filter(
          (one) => session.subscriptions.get(one.filter) === one && this.#begun.get(one)?.holds(message) !== true,
        )
        session.deliver(arrival, current, batchOf(session))
      }
    }
    cursor.token = this.#messages.tokenOf(deliveries.at(-1))
    this.#filled.delete(session)
  }
}

function endOwn(cursor: Cursor): void {
  cursor.end?.()
  cursor.end = undefined
  cursor.onDrained?.()
  cursor.onDrained = undefined
}
