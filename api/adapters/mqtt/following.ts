/**
 * How sessions follow the log of messages: all that keep pace with a channel share one follower of it, the feed; one that was away or
 * fell behind reads for itself until it stands where the feed does.
 */
import type { Delivery, EndReason, Messages } from '#api/messages/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Cursor } from './cursors.ts'
import type { ExchangeHost } from './exchange.ts'
import type { HeldSessions } from './held.ts'
import { subscriptionsOn } from './held.ts'
import type { Session, Step } from './session.ts'
import { arrivalFrom } from './stored-session.ts'
import { Streams } from './streams.ts'
import type { Subscription } from './subscription.ts'
import { Audience } from './subscription.ts'

/** Newest messages of a channel that a session is handed of those that it missed; older ones are skipped and counted. */
export const MAX_MISSED_MESSAGES = 100_000
/** Of sessions that are not kept nobody counts. */
const UNCOUNTED: Step = { token: '', pending: 0 }

export type Following = {
  /** Where everybody stands who keeps pace; undefined while nobody follows. */
  readonly position: string | undefined
  /** Resolves when nothing that is committed from then on is missed. */
  begin(cursor: Cursor): Promise<void>
  /** From where the cursor stands; failures are told to the host. */
  goOn(cursor: Cursor): void
  /** A subscription of a session that follows its channel already, or begins to. */
  add(cursor: Cursor, subscription: Subscription): void
  delete(subscription: Subscription): void
  leave(cursor: Cursor): void
  /** More waits in the session than should. */
  filled(session: Session): void
  /** Nothing waits any more in a session that fell behind. */
  drained(session: Session): void
  /** Ends of followers are nobody's failure any more. */
  stop(): void
}

type Feed = { opened: Promise<void>; close: (() => void) | undefined; cursors: Set<Cursor> }

export function createFollowing(messages: Messages, host: ExchangeHost, held: HeldSessions): Following {
  const streams = new Streams('.')
  const feeds = new Map<number, Feed>()
  /** Sessions that more waits for than should, found while a step was handed out. */
  const filled = new Set<Session>()
  let isStopped = false
  /** Where everybody stands who is handed nothing more, since the process is stopping. */
  let frozen: string | undefined

  /** The step of the log that a session is handed something of. */
  function stepsOf(deliveries: readonly Delivery[], streamKey: number): (session: Session) => Step {
    const steps = new Map<Session, Step>()
    return (session) => {
      if (!session.isPersistent) return UNCOUNTED
      let step = steps.get(session)
      if (step === undefined) {
        step = { token: messages.tokenOf(deliveries.at(-1)), pending: 0 }
        steps.set(session, step)
        const cursor = held.get(session)?.cursors.get(streamKey)
        // Nothing is under way: everything before this step went its whole way, and there the session began.
        if (cursor?.steps.length === 0) cursor.settled = cursor.mode === 'live' ? messages.position : cursor.token
        cursor?.steps.push(step)
      }
      return step
    }
  }

  /** Whoever has too much waiting reads the log for himself later, from behind this step. */
  function pauseFilled(streamKey: number, deliveries: readonly Delivery[]): void {
    for (const session of filled) {
      const cursor = held.get(session)?.cursors.get(streamKey)
      if (cursor?.mode !== 'live') continue
      cursor.token = messages.tokenOf(deliveries.at(-1))
      pause(cursor)
    }
    filled.clear()
  }

  function pause(cursor: Cursor): void {
    const { session, streamKey } = cursor
    for (const subscription of subscriptionsOn(session, streamKey)) streams.delete(subscription)
    leaveFeed(cursor)
    // Nothing of it is under way where what filled the session came from elsewhere: then it begins again here.
    if (cursor.steps.length === 0) cursor.settled = cursor.token
    cursor.mode = 'paused'
    session.isBehind = true
  }

  function joinFeed(cursor: Cursor): Promise<void> {
    const { streamKey, access } = cursor
    let feed = feeds.get(streamKey)
    if (feed === undefined) {
      const opening: Feed = { opened: Promise.resolve(), close: undefined, cursors: new Set() }
      feed = opening
      feeds.set(streamKey, opening)
      opening.opened = messages
        .follow({
          access,
          filter: '>',
          authorize: () => Promise.resolve(),
          deliver(deliveries) {
            const stepOf = stepsOf(deliveries, streamKey)
            for (const { message } of deliveries) streams.deliver(streamKey, arrivalFrom(message), stepOf)
            if (filled.size > 0) pauseFilled(streamKey, deliveries)
          },
          onEnd: (reason) => endFeed(streamKey, opening, reason),
        })
        .then(({ close }) => {
          opening.close = close
          // Everybody left while it was opening.
          if (feeds.get(streamKey) !== opening) close()
        })
      opening.opened.catch(() => {
        if (feeds.get(streamKey) === opening) feeds.delete(streamKey)
      })
    }
    feed.cursors.add(cursor)
    return feed.opened
  }

  function leaveFeed(cursor: Cursor): void {
    const feed = feeds.get(cursor.streamKey)
    if (feed?.cursors.delete(cursor) !== true || feed.cursors.size > 0) return
    feeds.delete(cursor.streamKey)
    feed.close?.()
  }

  const here = () => frozen ?? messages.position

  /** The follower cannot go on: its sessions are closed and come back to what they missed. */
  function endFeed(streamKey: number, feed: Feed, reason: EndReason): void {
    if (reason === 'closed' || isStopped) return
    if (reason === 'stopping') {
      // What comes from now on is delivered to nobody: sessions stand here until they are taken up again.
      frozen ??= messages.position
      return
    }
    feeds.delete(streamKey)
    for (const cursor of feed.cursors) {
      // What it was not handed any more comes after this, wherever the others go on.
      if (cursor.mode === 'live') {
        cursor.token = here()
        if (cursor.steps.length === 0) cursor.settled = cursor.token
        cursor.mode = 'paused'
      }
      host.failed(cursor.session, new ServiceError('unavailable', 'fallen behind'))
    }
  }

  const isHeld = (cursor: Cursor) => held.get(cursor.session)?.cursors.get(cursor.streamKey) === cursor

  /** Reads what was missed from where the cursor stands, and goes on with what everybody is handed. */
  async function readOn(cursor: Cursor): Promise<void> {
    const { session, streamKey, access, token } = cursor
    if (token === undefined) return
    cursor.mode = 'own'
    // Where its own follower has caught up, this one stands at the same place.
    await joinFeed(cursor)
    if (!isHeld(cursor)) return leaveFeed(cursor)
    const audience = new Audience('.')
    let isEnded = false
    const { close } = await messages.follow(
      {
        access,
        filter: '>',
        authorize: () => Promise.resolve(),
        deliver(deliveries) {
          if (isEnded) return
          for (const subscription of subscriptionsOn(session, streamKey)) audience.add(subscription)
          const stepOf = stepsOf(deliveries, streamKey)
          for (const delivery of deliveries) deliverOwn(audience, cursor, delivery, stepOf)
          cursor.token = messages.tokenOf(deliveries.at(-1))
          filled.delete(session)
        },
        // More is read when nothing of this waits any more.
        drained: () => untilDrained(cursor),
        onLive() {
          if (isEnded) return
          cursor.mode = 'live'
          for (const subscription of subscriptionsOn(session, streamKey)) streams.add(subscription)
          endOwn(cursor)
          isEnded = true
        },
        backlog: { maxMessages: MAX_MISSED_MESSAGES, onSkipped: (count) => skip(session, count) },
        onEnd(reason) {
          if (reason === 'stopping') frozen ??= messages.position
          else if (reason !== 'closed' && !isStopped)
            host.failed(session, new ServiceError('unavailable', 'fallen behind'))
        },
      },
      token,
    )
    const end = () => {
      isEnded = true
      close()
    }
    if (cursor.mode === 'own' && isHeld(cursor)) cursor.end = end
    else end()
  }

  function endOwn(cursor: Cursor): void {
    cursor.end?.()
    cursor.end = undefined
    cursor.onDrained?.()
    cursor.onDrained = undefined
  }

  function untilDrained(cursor: Cursor): Promise<void> {
    const { session } = cursor
    if (session.queued === 0 || cursor.mode !== 'own' || !isHeld(cursor)) return Promise.resolve()
    session.isBehind = true
    return new Promise((resolve) => (cursor.onDrained = resolve))
  }

  /** It was away for too long: the oldest of what it missed are left out (section 4.1 leaves the bound to the server). */
  function skip(session: Session, count: number): void {
    host.dropped(session, 'skipped', count)
    const one = held.get(session)
    if (one !== undefined) one.skipped += count
  }

  function deliverOwn(
    audience: Audience,
    cursor: Cursor,
    delivery: Delivery,
    stepOf: (session: Session) => Step,
  ): void {
    const { session } = cursor
    const { batchSeq, index, subtopic } = delivery.message
    if (held.get(session)?.known.delete(`${batchSeq} ${index}`) === true) return
    const matches = audience.match(subtopic)
    const arrival = arrivalFrom(delivery.message)
    for (const { subscriptions } of matches.own) {
      // One that was replaced or ended is still found, and wants nothing.
      const current = subscriptions.filter((one) => session.subscriptions.get(one.filter) === one)
      session.deliver(arrival, current, stepOf(session))
    }
  }

  function goOn(cursor: Cursor): void {
    readOn(cursor).catch((error: unknown) => host.failed(cursor.session, error))
  }

  return {
    get position() {
      return here()
    },
    async begin(cursor) {
      await joinFeed(cursor)
      if (cursor.steps.length === 0) cursor.settled = here()
    },
    goOn,
    add(cursor, subscription) {
      if (cursor.mode === 'live') streams.add(subscription)
    },
    delete: (subscription) => streams.delete(subscription),
    leave(cursor) {
      leaveFeed(cursor)
      endOwn(cursor)
    },
    filled: (session) => void filled.add(session),
    drained(session) {
      session.isBehind = false
      for (const cursor of held.get(session)?.cursors.values() ?? []) {
        const { onDrained } = cursor
        cursor.onDrained = undefined
        if (cursor.mode === 'paused') goOn(cursor)
        else onDrained?.()
      }
    },
    stop: () => void (isStopped = true),
  }
}
