/** Ends of runs that another manager wrote, because it has the session of the run's worker. */
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { EndedRun, FailureReason } from '../model/run.ts'
import { findEnded, findEndedKeys, type EndedRow } from '../store/runs.ts'
import type { RunEndings } from '../writer/endings.ts'

export type EndPollingDeps = { database: Database; endings: RunEndings; logger: Logger; intervalMs: number }

/** Polls for ends that callers have waited for longer than the interval. A slow poll delays the next one. */
export function startEndPolling({ database, endings, logger, intervalMs }: EndPollingDeps): { stop(): void } {
  const { db } = database
  async function poll({ runs, ends }: ReturnType<RunEndings['takeOverdue']>): Promise<void> {
    if (ends.length > 0) for (const runKey of await findEndedKeys(db, ends)) endings.notifyEnd(runKey)
    if (runs.length > 0) for (const row of await findEnded(db, runs)) endings.notify(fromRow(row))
  }

  let isPolling = false
  const timer = setInterval(() => {
    if (isPolling) return
    const late = endings.takeOverdue()
    if (late.runs.length + late.ends.length === 0) return
    isPolling = true
    poll(late)
      .catch((error: unknown) => logger.warn({ err: error }, 'failed to read the ends of runs; retrying'))
      .finally(() => (isPolling = false))
  }, intervalMs)
  return { stop: () => clearInterval(timer) }
}

function fromRow(row: EndedRow): EndedRun {
  return {
    runKey: row.key,
    runId: row.id,
    workerId: row.worker_id,
    state: row.state,
    reason: row.reason as FailureReason | null,
    error: row.error,
    frames: row.frames ?? [],
    results: row.results,
    staged: row.result_digest === null ? null : { digest: row.result_digest, sizeBytes: row.result_bytes ?? 0 },
    durationMs: row.duration_ms,
    prepareMs: row.prepare_ms,
    outputTruncated: row.output_truncated,
  }
}
