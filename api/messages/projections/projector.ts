/**
 * The projector: adds committed batches to the projections every two seconds. One process works at a time. Each process adds its own
 * batches, which it has summed up in memory already, and the batches that other processes left behind.
 */
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startRounds } from '#core/rounds.ts'
import type { Rounds } from '#core/rounds.ts'
import { monotonicMs } from '#core/time.ts'
import type { StorableMessage } from '../store/message-rows.ts'
import { PROJECTOR_METRICS } from './metrics.ts'
import { PartialAggregate } from './partial-aggregate.ts'
import { projectNext } from './project.ts'
import { createSummaries } from './summaries.ts'

const INTERVAL_MS = 2_000
/** Pause while another process projects. */
const BUSY_PAUSE_MS = 100
/**
 * The pause is this many times as long as the round before it, so that the projector never takes more than a third of one of
 * PostgreSQL's processors: the cost of a row does not depend on the number of its records.
 */
const PAUSE_PER_ROUND = 2
/** A pause lasts at most this many intervals. */
const MAX_PAUSE_INTERVALS = 3
/**
 * Other processes leave a batch for this many intervals to the process that committed it, which need not read it again. Longer than
 * the longest pause and its round.
 */
const FOREIGN_INTERVALS = 6
/** Backoff after a failed round doubles up to this. */
const MAX_BACKOFF_MS = 30_000
/** This number of pending records ends a pause: every read scans the pending records. */
const MAX_PENDING_RECORDS = 1_000_000

export class Projector {
  readonly #database: Database
  readonly #logger: Logger
  readonly #intervalMs: number
  readonly #summaries
  readonly #rounds: Rounds
  /** The partial aggregate of the batches that this process committed since its last round. */
  #partial = new PartialAggregate()
  #backoffMs: number

  constructor(database: Database, logger: Logger, intervalMs: number = INTERVAL_MS) {
    this.#database = database
    this.#logger = logger
    this.#intervalMs = intervalMs
    this.#backoffMs = intervalMs
    this.#summaries = createSummaries(database)
    this.#rounds = startRounds(() => this.#round())
  }

  /** Reports a batch that this process committed; the batches of one shard in their order. */
  committed(batchSeq: number, batch: readonly StorableMessage[]): void {
    // A batch that does not fit is read from the tables later.
    if (!this.#partial.isFull) this.#partial.add(batchSeq, batch)
    if (this.#partial.isFull || this.#partial.records >= MAX_PENDING_RECORDS) this.#rounds.wake()
  }

  /** Resolves when the running round has ended; none follows. */
  stop(): Promise<void> {
    return this.#rounds.stop()
  }

  #takePartial(): PartialAggregate {
    const taken = this.#partial
    this.#partial = new PartialAggregate()
    return taken
  }

  async #round() {
    const beganMs = monotonicMs()
    try {
      const round = await projectNext(this.#database, {
        takePartial: () => this.#takePartial(),
        foreignAgeMs: this.#intervalMs * FOREIGN_INTERVALS,
      })
      this.#backoffMs = this.#intervalMs
      if (round === undefined) return { pauseMs: Math.min(BUSY_PAUSE_MS, this.#intervalMs), isWakeable: false }
      const pauseMs = round.hasMore ? 0 : pauseAfter(monotonicMs() - beganMs, this.#intervalMs)
      if (round.records > 0) await this.#summarise()
      return { pauseMs, isWakeable: true }
    } catch (error) {
      this.#backoffMs = Math.min(this.#backoffMs * 2, MAX_BACKOFF_MS)
      PROJECTOR_METRICS.failures.add({})
      this.#logger.warn({ err: error, retryMs: this.#backoffMs }, 'failed to update the projections; retrying')
      return { pauseMs: this.#backoffMs, isWakeable: false }
    }
  }

  /** A partition that is busy is summarised later; reads are correct without. */
  async #summarise(): Promise<void> {
    try {
      await this.#summaries.keepUp()
    } catch (error) {
      this.#logger.debug({ err: error }, 'failed to summarise the index of batches; retrying in the next round')
    }
  }
}

/** The pause after a round of this duration. */
export function pauseAfter(roundMs: number, intervalMs: number): number {
  return Math.min(Math.max(intervalMs, roundMs * PAUSE_PER_ROUND), intervalMs * MAX_PAUSE_INTERVALS)
}
