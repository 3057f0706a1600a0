/**
 * One reader of the journal for all open event streams of this process. It reads while somebody listens, in the final
 * order of the log, and hands each record to the streams of its domain; it also looks again and again whether their
 * callers may still listen.
 */
import type { Database } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { LOG_START, comparePositions, readSettled, settledEnd, startRounds } from '#core/log/index.ts'
import type { Pause, Position } from '#core/log/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Journal } from '../journal/index.ts'
import { EVENT_LOG, toEventRecords } from './repository.ts'
import type { Subscriber } from './subscriber.ts'

/** The journal is looked at so often when no hint comes. */
const INTERVAL_MS = 250
/** Nobody listens: the next reader wakes the hub. */
const IDLE_MS = 60_000
const MAX_ROWS = 500
const MAX_BACKOFF_MS = 5000
/** How often the rights of every stream are looked at; a revocation is in force within a second. */
const SWEEP_MS = 300
/** Open streams of one process, and of one user in it. */
const MAX_STREAMS = 10_000
const MAX_STREAMS_PER_USER = 100

export type EventHub = {
  /** Counts the stream; it is handed records after `attach`. Throws `rate_limited`, `unavailable`. */
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

export function startEventHub(options: { database: Database; journal: Journal; logger: Logger }): EventHub {
  const { database, journal, logger } = options
  const { db } = database
  const joined = new Set<Subscriber>()
  const streamsOfUser = new Map<number, number>()
  const attached = new Map<number, Set<Subscriber>>()
  let position: Position | undefined
  let untilRead = Promise.withResolvers<void>()
  let backoffMs = INTERVAL_MS
  let isStopped = false
  let sweeping: NodeJS.Timeout | undefined

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
      logger.warn({ err: error }, 'the journal cannot be read for event streams; tried again')
      backoffMs = Math.min(backoffMs * 2, MAX_BACKOFF_MS)
      return { pauseMs: backoffMs, isPokable: false }
    }
  }

  /** Ends the streams of those who may not listen any more. While the database is away nothing is handed out either. */
  async function sweep(): Promise<void> {
    if (!journal.isFresh()) return
    for (const subscriber of joined) {
      try {
        await subscriber.authorize()
      } catch (error) {
        const kind = kindOf(error)
        if (kind === 'unauthenticated' || kind === 'forbidden') subscriber.end(kind)
      }
    }
  }

  async function sweepLoop(): Promise<void> {
    await sweep().catch((error: unknown) => logger.warn({ err: error }, 'the rights of event streams were not checked'))
    sweeping = joined.size === 0 || isStopped ? undefined : setTimeout(() => void sweepLoop(), SWEEP_MS)
  }

  const rounds = startRounds(round)
  const unsubscribe = journal.onGrowth(() => {
    if (joined.size > 0) rounds.poke()
  })

  return {
    join(subscriber) {
      if (isStopped) throw new ServiceError('unavailable', 'the server is stopping')
      const mine = streamsOfUser.get(subscriber.userKey) ?? 0
      if (mine >= MAX_STREAMS_PER_USER)
        throw new ServiceError('rate_limited', `at most ${MAX_STREAMS_PER_USER} event streams of one user may be open`)
      if (joined.size >= MAX_STREAMS)
        throw new ServiceError('unavailable', `this server has ${MAX_STREAMS} event streams open and takes no more`)
      streamsOfUser.set(subscriber.userKey, mine + 1)
      joined.add(subscriber)
      rounds.poke()
      sweeping ??= setTimeout(() => void sweepLoop(), SWEEP_MS)
    },
    leave(subscriber) {
      if (!joined.delete(subscriber)) return
      const mine = streamsOfUser.get(subscriber.userKey) ?? 0
      if (mine > 1) streamsOfUser.set(subscriber.userKey, mine - 1)
      else streamsOfUser.delete(subscriber.userKey)
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
      clearTimeout(sweeping)
      for (const subscriber of joined) subscriber.end('stopping')
      await rounds.stop()
      // Whoever still waits for a first position is told that there will be none.
      position ??= LOG_START
      untilRead.resolve()
    },
  }
}
