/** Runs the sweep of passed deadlines at its interval, and deletes expired rows. */
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
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

export function startSweeper({ database, writer, timing, keptRunsMs, logger }: SweeperDeps): { stop(): Promise<void> } {
  const stopping = new AbortController()
  const { signal } = stopping

  async function loop(): Promise<void> {
    let cleanedMs = monotonicMs()
    while (!signal.aborted) {
      await sleep(timing.sweepIntervalMs, signal).catch(() => undefined)
      if (signal.aborted) return
      try {
        while ((await writer.sweep()) >= MAX_CHECKED_PER_SWEEP && !signal.aborted);
        if (monotonicMs() - cleanedMs < CLEANING_INTERVAL_MS) continue
        cleanedMs = monotonicMs()
        await deleteExpired(database, keptRunsMs)
      } catch (error) {
        if (!signal.aborted) logger.warn({ err: error }, 'failed to check runs with passed deadlines; retrying')
      }
    }
  }

  const running = loop()
  return {
    async stop() {
      stopping.abort()
      await running
    },
  }
}
