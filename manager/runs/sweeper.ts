/** Runs the sweep of passed deadlines at its interval, and removes what nobody needs any more. */
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import { forgetEvents } from '../events/read.ts'
import type { ManagerTiming } from '../timing.ts'
import { forgetUploads } from '../modules/index.ts'
import { forgetCertificates } from '../workers/certificates.ts'
import { forgetTokens } from '../workers/repository.ts'
import { MAX_DUE_PER_SWEEP } from './limits.ts'
import { forgetRuns } from './retention.ts'
import type { RunWriter } from './writer.ts'

/** Idempotency keys are kept for 24 h (contract decision 54); parts of results that nothing names, as long. */
const KEPT = '24 hours'
const CLEANING_INTERVAL_MS = 600_000
const MAX_ROWS_PER_CLEANING = 10_000

export type SweeperDeps = {
  database: Database
  writer: RunWriter
  timing: ManagerTiming
  /** How long runs are kept that ended. */
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
        while ((await writer.sweep()) >= MAX_DUE_PER_SWEEP && !signal.aborted);
        if (monotonicMs() - cleanedMs < CLEANING_INTERVAL_MS) continue
        cleanedMs = monotonicMs()
        await clean(database)
        await forgetRuns(database, keptRunsMs)
      } catch (error) {
        if (!signal.aborted) logger.warn({ err: error }, 'passed deadlines of runs could not be looked at')
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

async function clean(database: Database): Promise<void> {
  await sql`DELETE FROM run_start_keys WHERE (task_key, user_key, idempotency_key) IN (
      SELECT task_key, user_key, idempotency_key FROM run_start_keys
      WHERE created_at < now() - ${KEPT}::interval LIMIT ${MAX_ROWS_PER_CLEANING})`.execute(database.db)
  await sql`DELETE FROM staged_results s WHERE s.staged_at < now() - ${KEPT}::interval
    AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.result_digest = s.digest)`.execute(database.db)
  await forgetEvents(database.db)
  await forgetTokens(database.db)
  await forgetUploads(database)
  await forgetCertificates(database)
}
