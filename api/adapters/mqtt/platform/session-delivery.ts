/**
 * Delivery of the changelog of messages to sessions: sessions that keep pace with a channel share one follower, the feed; a session that
 * was disconnected or fell behind has its own follower until it reaches the feed.
 */
import type { Delivery, EndReason, LogMark, Messages } from '#api/messages/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { BackendHost } from '../backend.ts'
import type { LogBatch, Session, Subscription } from '../session.ts'
import { Streams } from '../streams.ts'
import { SubscriptionIndex } from '../subscription-index.ts'
import type { Cursor } from './cursors.ts'
import { Feeds } from './feeds.ts'
import type { SessionStates } from './session-state.ts'
import { subscriptionsOn } from './session-state.ts'
import { applicationMessageFrom } from './stored-rows.ts'

/** The maximum number of missed messages of a channel that a session receives; older ones are skipped and counted. */
export const MAX_MISSED_MESSAGES = 100_000
/** The batch of sessions that are not stored. */
const UNCOUNTED: LogBatch = { token: '', pending: 0 }

export class SessionDelivery {
  readonly #messages: Messages
  readonly #host: BackendHost
  readonly #states: SessionStates
  readonly #streams = new Streams('.')
  readonly #feeds: Feeds
  /** Messages that new subscriptions must not receive, because they were committed before them. */
  readonly #begun = new WeakMap<Subscription, LogMark>()
  /** Sessions whose queue filled up during the delivery of a batch. */
  readonly #filled = new Set<Session>()
  #isStopped = false
  /** The shared position, frozen when the process stops. */
  #frozen: string | undefined

  constructor(messages: Messages, host: BackendHost, states: SessionStates) {
    this.#messages = messages
    this.#host = host
    this.#states = states
    this.#feeds = new Feeds(messages, {
      deliver: (streamKey, deliveries) => this.#deliver(streamKey, deliveries),
      ended: (cursors, reason) => this.#endFeed(cursors, reason),
    })
  }

  /** The position of sessions that keep pace; undefined without followers. */
  get position(): string | undefined {
    return this.#frozen ?? this.#messages.position
  }

  /** Resolves when no later commit can be missed. */
  async begin(cursor: Cursor): Promise<void> {
    await this.#feeds.join(cursor)
    if (cursor.batches.length === 0) cursor.settled = this.position
  }

  /** Continues from the position of the cursor; failures are reported to the host. */
  continueReading(cursor: Cursor): void {
    this.#readOn(cursor).catch((error: unknown) => this.#host.failed(cursor.session, error))
  }

  /** Adds a subscription of an earlier connection. */
  add(cursor: Cursor, subscription: Subscription): void {
    if (cursor.mode === 'live') this.#streams.add(subscription)
  }

  /**
   * Adds a new subscription after `mark`: it receives later commits. One that replaces another continues at the position of that one
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

  /** The queue of the session is full. */
  filled(session: Session): void {
    this.#filled.add(session)
  }

  /** The queue of a session that fell behind is empty. */
  drained(session: Session): void {
    session.isBehind = false
    for (const cursor of this.#states.get(session)?.cursors.values() ?? []) {
      const { onDrained } = cursor
      cursor.onDrained = undefined
      if (cursor.mode === 'paused') this.continueReading(cursor)
      else onDrained?.()
    }
  }

  /** The ends of followers are no longer failures. */
  stop(): void {
    this.#isStopped = true
  }

  #cursorOf(session: Session, streamKey: number): Cursor | undefined {
    return this.#states.get(session)?.cursors.get(streamKey)
  }

  #isHeld(cursor: Cursor): boolean {
    return this.#cursorOf(cursor.session, cursor.streamKey) === cursor
  }

  #deliver(streamKey: number, deliveries: readonly Delivery[]): void {
    const batchOf = this.#batchesOf(deliveries, streamKey)
    for (const { message } of deliveries) this.#streams.deliver(streamKey, applicationMessageFrom(message), batchOf)
    if (this.#filled.size > 0) this.#pauseFilled(streamKey, deliveries)
  }

  /** The batch of the changelog for deliveries to a session. */
  #batchesOf(deliveries: readonly Delivery[], streamKey: number): (session: Session) => LogBatch {
    const batches = new Map<Session, LogBatch>()
    return (session) => {
      if (!session.isPersistent) return UNCOUNTED
      let batch = batches.get(session)
      if (batch === undefined) {
        batch = { token: this.#messages.tokenOf(deliveries.at(-1)), pending: 0 }
        batches.set(session, batch)
        const cursor = this.#cursorOf(session, streamKey)
        // Nothing is in flight: everything before this batch is completed.
        if (cursor?.batches.length === 0)
          cursor.settled = cursor.mode === 'live' ? this.#messages.position : cursor.token
        cursor?.batches.push(batch)
      }
      return batch
    }
  }

  /** A session with a full queue reads the changelog itself later, from after this batch. */
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
    // If nothing of it is in flight, the queue was filled by other messages; then it resumes here.
    if (cursor.batches.length === 0) cursor.settled = cursor.token
    cursor.mode = 'paused'
    session.isBehind = true
  }

  /** The feed has failed: its sessions are closed and catch up when they reconnect. */
  #endFeed(cursors: Iterable<Cursor>, reason: EndReason): void {
    if (this.#isStopped) return
    if (reason === 'stopping') return this.#freeze()
    for (const cursor of cursors) {
      // Undelivered messages are after this position.
      if (cursor.mode === 'live') {
        cursor.token = this.position
        if (cursor.batches.length === 0) cursor.settled = cursor.token
        cursor.mode = 'paused'
      }
      this.#host.failed(
        cursor.session,
        new ServiceError('unavailable', 'the subscriber is too slow: messages wait in the changelog'),
      )
    }
  }

  /** Delivery has stopped: sessions keep this position until they are resumed. */
  #freeze(): void {
    this.#frozen ??= this.#messages.position
  }

  /** Reads missed messages from the position of the cursor, then joins the feed. */
  async #readOn(cursor: Cursor): Promise<void> {
    const { session, access, token } = cursor
    if (token === undefined) return
    cursor.mode = 'own'
    // When its own follower has caught up, the feed is at the same position.
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
        // Continues when the queue is empty.
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
            this.#host.failed(
              session,
              new ServiceError('unavailable', 'the subscriber is too slow: messages wait in the changelog'),
            )
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

  /** The oldest missed messages are skipped (section 4.1 leaves the limit to the server). */
  #skip(session: Session, count: number): void {
    this.#host.dropped(session, 'skipped', count)
    const one = this.#states.get(session)
    if (one !== undefined) one.skipped += count
  }

  #deliverOwn(index: SubscriptionIndex, cursor: Cursor, deliveries: readonly Delivery[]): void {
    const { session, streamKey } = cursor
    for (const subscription of subscriptionsOn(session, streamKey)) index.add(subscription)
    const batchOf = this.#batchesOf(deliveries, streamKey)
    for (const { message } of deliveries) {
      if (this.#states.get(session)?.known.delete(`${message.batchSeq} ${message.index}`) === true) continue
      const applicationMessage = applicationMessageFrom(message)
      for (const { subscriptions } of index.match(message.subtopic).own) {
        // A replaced or ended subscription is still found, but receives nothing.
        const current = subscriptions.filter(
          (one) => session.subscriptions.get(one.filter) === one && this.#begun.get(one)?.holds(message) !== true,
        )
        session.deliver(applicationMessage, current, batchOf(session))
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
