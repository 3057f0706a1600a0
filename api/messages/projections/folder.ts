/**
 * The folder: adds new batches to the projections every two seconds. One of all processes works at a time; each adds what it
 * committed itself, which it has added up already, and what others left lying.
 */
import type { Database } from '#core/database/index.ts'
import { startRounds } from '#core/log/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sleep } from '#core/time.ts'
import type { StorableMessage } from '../store/message-rows.ts'
import { foldNext } from './fold.ts'
import { createOwnBatches } from './own-batches.ts'
import { createSummaries } from './summaries.ts'

const INTERVAL_MS = 2_000
/** Pause while somebody else folds. */
const BUSY_PAUSE_MS = 100
/**
 * A round that wrote many rows is followed by a longer pause, of so much for each: a row costs the same however many records it stands
 * for, and the more there are the less it is for each.
 */
const PAUSE_PER_ROW_MS = 0.03
/** At most so many intervals. */
const MAX_PAUSE_INTERVALS = 3
/** Between the statements of a round: publishers have the processors for longer than such a statement takes them. */
const REST_MS = 5
/** Intervals that a process is given to fold its own batches before another one reads them: more than such a pause and its round. */
const FOREIGN_INTERVALS = 6
/** Backoff after a failed round doubles up to this. */
const MAX_BACKOFF_MS = 30_000
/** Records that are folded without waiting for the next round: whoever reads goes through all that are not. */
const EARLY_RECORDS = 1_000_000

export type Folder = {
  /** Tells of a batch that this process committed; batches of one lane in their order. */
  committed(batchSeq: number, batch: readonly StorableMessage[]): void
  /** Resolves when the round that runs has ended; none follows. */
  stop(): Promise<void>
}

export function startFolder(database: Database, logger: Logger, intervalMs: number = INTERVAL_MS): Folder {
  const own = createOwnBatches({ foreignAgeMs: intervalMs * FOREIGN_INTERVALS, rest: () => sleep(REST_MS) })
  const summaries = createSummaries(database)
  let backoffMs = intervalMs
  const rounds = startRounds(async () => {
    try {
      const folded = await foldNext(database, own)
      backoffMs = intervalMs
      if (folded === undefined) return { pauseMs: Math.min(BUSY_PAUSE_MS, intervalMs), isPokable: false }
      // A partition that is busy has its turn later, and everything is read rightly without.
      if (folded.records > 0)
        await summaries
          .keepUp()
          .catch((error: unknown) => logger.debug({ err: error }, 'the index of batches was not summarised'))
      return { pauseMs: folded.hasMore ? 0 : pauseAfter(folded.rows, intervalMs), isPokable: true }
    } catch (error) {
      logger.warn({ err: error }, 'folding messages into rollups failed and is tried again')
      backoffMs = Math.min(backoffMs * 2, MAX_BACKOFF_MS)
      return { pauseMs: backoffMs, isPokable: false }
    }
  })
  return {
    committed(batchSeq, batch) {
      const { tally } = own
      if (!tally.isFull) tally.add(batchSeq, batch)
      if (tally.isFull || tally.records >= EARLY_RECORDS) rounds.poke()
    },
    stop: () => rounds.stop(),
  }
}

/** The pause after a round that added so many rows. */
export function pauseAfter(rows: number, intervalMs: number): number {
  return Math.min(Math.max(intervalMs, rows * PAUSE_PER_ROW_MS), intervalMs * MAX_PAUSE_INTERVALS)
}
