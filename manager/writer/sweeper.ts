/** Runs the sweep of passed deadlines at its interval, and deletes expired rows. */
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startPeriodicRounds } from '#core/rounds.ts'
import type { PeriodicRounds } from '#core/rounds.ts'
import { monotonicMs } from '#core/time.ts'
import { MAX_CHECKED_PER_SWEEP } from '../model/limits.ts'
import type { ManagerTiming } from '../model/timing.ts'
import { deleteExpired } from '../store/retention.ts'
import type { RunWriter } from './writer.ts'

const CLEANING_INTERVAL_MS = 600_000

export type SweeperDeps = {
  database: Database
  writer: RunWriter
  timing: ManagerTiming
  /** Retention of ended runs. */
  keptRunsMs: number
  logger: Logger
}

export function startSweeper({ database, writer, timing, keptRunsMs, logger }: SweeperDeps): PeriodicRounds {
  let cleanedMs = monotonicMs()
  return startPeriodicRounds({
    firstPauseMs: timing.sweepIntervalMs,
    pauseMs: timing.sweepIntervalMs,
    async round(signal) {
      while ((await writer.sweep()) >= MAX_CHECKED_PER_SWEEP && !signal.aborted);
      if (monotonicMs() - cleanedMs < CLEANING_INTERVAL_MS) return
      cleanedMs = monotonicMs()
      await deleteExpired(database, keptRunsMs)
    },
    onFailure: (error) => logger.warn({ err: error }, 'failed to check runs with passed deadlines; retrying'),
  })
}
