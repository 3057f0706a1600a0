/**
 * Fan-out of journal records: one reader for all open event streams of this process. It reads while there are
 * subscribers, in the order of positions, and passes each record to the streams of its domain. It also checks
 * periodically whether their callers still have access.
 */
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { LOG_START, comparePositions, readSettled, settledEnd } from '#core/changelog/index.ts'
import type { Position } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startRounds } from '#core/rounds.ts'
import type { Pause } from '#core/rounds.ts'
import { startAccessWatch } from '#core/streams/index.ts'
import type { Journal } from '../journal/index.ts'
import { EVENT_LOG, toEventRecords } from './repository.ts'
import type { Subscriber } from './subscriber.ts'

/** Polling interval of the journal without hints. */
const INTERVAL_MS = 250
/** Pause without subscribers. The next subscriber wakes the fan-out. */
const IDLE_MS = 60_000
const MAX_ROWS = 500
const MAX_BACKOFF_MS = 5000

export type EventFanOut = {
  /**
   * Starts to check the access of the subscriber's caller. The subscriber gets records after `attach`. Throws
   * `unavailable`.
   */
  join(subscriber: Subscriber): void
  leave(subscriber: Subscriber): void
  /** Returns the position up to which records were delivered. */
  position(): Promise<Position>
  /** Returns the same position without waiting. Undefined before the first read. */
  currentPosition(): Position | undefined
  /** The subscriber gets every record after `after`. Returns false when later records were already delivered. */
  attach(subscriber: Subscriber, after: Position): boolean
  stop(): Promise<void>
}

export function startEventFanOut(options: { database: Database; journal: Journal; logger: Logger }): EventFanOut {
  const { database, journal, logger } = options
  const { db } = database
  /** Subscribers with the function that ends the access check. */
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
    // No await between delivery and the new position: a stream that attaches meanwhile would miss or repeat records.
    for (const record of records)
      for (const subscriber of attached.get(record.domainKey ?? 0) ?? []) subscriber.offer(record)
    position = last.position
    return rows.length === MAX_ROWS
  }

  async function round(): Promise<Pause> {
    if (joined.size === 0) {
      if (position !== undefined) untilRead = Promise.withResolvers()
      position = undefined
      return { pauseMs: IDLE_MS, isWakeable: true }
    }
    try {
      const hasMore = await readOnce()
      backoffMs = INTERVAL_MS
      return { pauseMs: hasMore ? 0 : INTERVAL_MS, isWakeable: true }
    } catch (error) {
      logger.warn({ err: error }, 'failed to read the journal for event streams; retrying')
      backoffMs = Math.min(backoffMs * 2, MAX_BACKOFF_MS)
      return { pauseMs: backoffMs, isWakeable: false }
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
      // Resolves the callers that still wait for a first position.
      position ??= LOG_START
      untilRead.resolve()
    },
  }
}
