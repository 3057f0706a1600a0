/**
 * One reader of the journal for all open event streams of this process. It reads while somebody listens, in the final
 * order of the log, and hands each record to the streams of its domain; it also looks again and again whether their
 * callers may still listen.
 */
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { LOG_START, comparePositions, readSettled, settledEnd, startRounds } from '#core/changelog/index.ts'
import type { Pause, Position } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startAccessWatch } from '#core/streams/index.ts'
import type { Journal } from '../journal/index.ts'
import { EVENT_LOG, toEventRecords } from './repository.ts'
import type { Subscriber } from './subscriber.ts'

/** The journal is looked at so often when no hint comes. */
const INTERVAL_MS = 250
/** Nobody listens: the next reader wakes the fan-out. */
const IDLE_MS = 60_000
const MAX_ROWS = 500
const MAX_BACKOFF_MS = 5000

export type EventFanOut = {
  /** Watches whether its caller still may; it is handed records after `attach`. Throws `unavailable`. */
  join(subscriber: Subscriber): void
  leave(subscriber: Subscriber): void
  /** Up to where the journal was handed out. */
  position(): Promise<Position>
  /** The same without waiting; undefined while nothing was read yet. */
  currentPosition(): Position | undefined
  /** From now on the subscriber is handed every record after `after`; false when later ones were handed out already. */
  attach(subscriber: Subscriber, after: Position): boolean
  stop(): Promise<void>
}

export function startEventFanOut(options: { database: Database; journal: Journal; logger: Logger }): EventFanOut {
  const { database, journal, logger } = options
  const { db } = database
  /** With the way to watch it no more. */
  const joined = new Map<Subscriber, () => void>()
  const watch = startAccessWatch(() => journal.isFresh())
  const attached = new Map<number, Set<Subscriber>>()
  let position: Position | undefined
  let untilRead = Promise.withResolvers<void>()
  let backoffMs = INTERVAL_MS
  let isStopped = false

  async function readOnce(): Promise<boolean> {
    if (position === undefined) {
      position = await settledEnd(db)
      untilRead.resolve()
    }
    const rows = await readSettled(db, EVENT_LOG, position, MAX_ROWS)
    const last = rows.at(-1)
    if (last === undefined) return false
    const records = await toEventRecords(db, rows)
    // From here to the new position without a pause: a stream that is attached meanwhile would miss or repeat records.
    for (const record of records)
      for (const subscriber of attached.get(record.domainKey ?? 0) ?? []) subscriber.offer(record)
    position = last.position
    return rows.length === MAX_ROWS
  }

  async function round(): Promise<Pause> {
    if (joined.size === 0) {
      if (position !== undefined) untilRead = Promise.withResolvers()
      position = undefined
      return { pauseMs: IDLE_MS, isPokable: true }
    }
    try {
      const hasMore = await readOnce()
      backoffMs = INTERVAL_MS
      return { pauseMs: hasMore ? 0 : INTERVAL_MS, isPokable: true }
    } catch (error) {
      logger.warn({ err: error }, 'failed to read the journal for event streams; retrying')
      backoffMs = Math.min(backoffMs * 2, MAX_BACKOFF_MS)
      return { pauseMs: backoffMs, isPokable: false }
    }
  }

  const rounds = startRounds(round)
  const unsubscribe = journal.onGrowth(() => {
    if (joined.size > 0) rounds.wake()
  })

  return {
    join(subscriber) {
      if (isStopped) throw new ServiceError('unavailable', 'the server is stopping')
      const unwatch = watch.add({
        authorize: () => subscriber.authorize(),
        lost: (kind) => subscriber.end(kind === 'unauthenticated' ? kind : 'forbidden'),
      })
      joined.set(subscriber, unwatch)
      rounds.wake()
    },
    leave(subscriber) {
      joined.get(subscriber)?.()
      if (!joined.delete(subscriber)) return
      const peers = attached.get(subscriber.domainKey)
      peers?.delete(subscriber)
      if (peers?.size === 0) attached.delete(subscriber.domainKey)
    },
    async position() {
      while (position === undefined) await untilRead.promise
      return position
    },
    currentPosition: () => position,
    attach(subscriber, after) {
      if (position === undefined || comparePositions(position, after) !== 0) return false
      const peers = attached.get(subscriber.domainKey) ?? new Set()
      peers.add(subscriber)
      attached.set(subscriber.domainKey, peers)
      return true
    },
    async stop() {
      isStopped = true
      unsubscribe()
      watch.stop()
      for (const subscriber of joined.keys()) subscriber.end('stopping')
      await rounds.stop()
      // Whoever still waits for a first position is told that there will be none.
      position ??= LOG_START
      untilRead.resolve()
    },
  }
}
