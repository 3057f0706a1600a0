/**
 * Callers that wait for messages of a consumer. While some wait, the process follows the changelog of messages and looks which of their
 * channels got any, in two statements for all of them. The bus carries hints of what another caller of the same consumer frees. A hint that is lost
 * costs the rest of one interval.
 */
import { channelsAfter } from '#api/messages/index.ts'
import type { Bus } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import type { Position } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startRounds } from '#core/rounds.ts'
import type { Rounds } from '#core/rounds.ts'
import { monotonicMs } from '#core/time.ts'
import { endPlace } from './log.ts'

const TOPIC = 'skein.consumers'
/** The interval between two reads of the changelog without a commit in this process. */
const INTERVAL_MS = 200
/** Commits of this process within this time are looked at together. */
const MIN_PAUSE_MS = 10
const RETRY_MS = 1_000
/** A waiting caller looks again by itself, whatever was lost. */
const LOOK_AGAIN_MS = 30_000

export type Wait = {
  /** Resolves when there may be messages, when the time (epoch seconds) has come, at the deadline, or when the signal is aborted. */
  next(untilSeconds: number | null, deadlineMs: number, signal: AbortSignal): Promise<void>
  end(): void
}

type Waiter = { consumerKey: number; channelKeys: readonly number[]; wake: () => void }

export class Waits {
  readonly #database: Database
  readonly #bus: Bus
  readonly #logger: Logger
  readonly #waiters = new Set<Waiter>()
  readonly #ends: (() => void)[]
  #rounds: Rounds | undefined
  #after: Position | undefined

  constructor({
    database,
    bus,
    logger,
    onCommitted,
  }: {
    database: Database
    bus: Bus
    logger: Logger
    onCommitted: (listener: () => void) => () => void
  }) {
    this.#database = database
    this.#bus = bus
    this.#logger = logger
    this.#ends = [
      onCommitted(() => this.#rounds?.wake()),
      bus.subscribe(TOPIC, (payload) => this.#wakeConsumer(Number(Buffer.from(payload).toString()))),
    ]
  }

  /** Callers of the consumer look again: something was acknowledged, put back or retried, or the consumer was deleted. */
  freed(consumerKey: number): void {
    this.#wakeConsumer(consumerKey)
    this.#bus.publish(TOPIC, Buffer.from(String(consumerKey)))
  }

  /** Begin before the first look: what is committed from now on wakes the caller. */
  begin(consumerKey: number, channelKeys: readonly number[]): Wait {
    let isWoken = false
    let resolve: (() => void) | undefined
    const waiter: Waiter = {
      consumerKey,
      channelKeys,
      wake() {
        isWoken = true
        resolve?.()
      },
    }
    this.#waiters.add(waiter)
    this.#rounds ??= startRounds(() => this.#look())
    return {
      async next(untilSeconds, deadlineMs, signal) {
        const dueMs = untilSeconds === null ? LOOK_AGAIN_MS : untilSeconds * 1000 - Date.now()
        const waitMs = Math.max(0, Math.min(dueMs, LOOK_AGAIN_MS, deadlineMs - monotonicMs()))
        if (!isWoken && !signal.aborted) {
          const woken = Promise.withResolvers<void>()
          resolve = woken.resolve
          const timer = setTimeout(woken.resolve, waitMs)
          signal.addEventListener('abort', woken.resolve as () => void, { once: true })
          await woken.promise
          clearTimeout(timer)
          signal.removeEventListener('abort', woken.resolve as () => void)
          resolve = undefined
        }
        isWoken = false
      },
      end: () => void this.#waiters.delete(waiter),
    }
  }

  async stop(): Promise<void> {
    for (const end of this.#ends) end()
    for (const { wake } of this.#waiters) wake()
    await this.#rounds?.stop()
  }

  #wakeConsumer(consumerKey: number): void {
    for (const waiter of this.#waiters) if (waiter.consumerKey === consumerKey) waiter.wake()
  }

  async #look() {
    try {
      if (this.#waiters.size === 0) {
        this.#after = undefined
        // The first caller begins again.
        const rounds = this.#rounds
        this.#rounds = undefined
        void rounds?.stop()
        return { pauseMs: INTERVAL_MS, isWakeable: false }
      }
      if (this.#after === undefined) {
        const { xid, seq } = await endPlace(this.#database.db)
        this.#after = { xid, seq: seq - 1 }
        // Consumers that looked before the end was known may have missed messages.
        for (const { wake } of this.#waiters) wake()
      } else {
        const channelKeys = [...new Set([...this.#waiters].flatMap((waiter) => waiter.channelKeys))]
        const found = await channelsAfter(this.#database.db, this.#after, channelKeys)
        this.#after = found.position
        for (const waiter of this.#waiters)
          if (waiter.channelKeys.some((key) => found.channelKeys.has(key))) waiter.wake()
      }
      return { pauseMs: INTERVAL_MS, isWakeable: true, minPauseMs: MIN_PAUSE_MS }
    } catch (error) {
      this.#logger.warn({ err: error }, 'failed to look for messages of waiting consumers; retrying')
      return { pauseMs: RETRY_MS, isWakeable: false }
    }
  }
}
