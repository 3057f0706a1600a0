/** Requeues runs whose attempt ended without ending the run, and archives the attempt. */
import { TASK_STATE } from '#proto/index.ts'
import { noteRuns } from '../store/notes.ts'
import { RUN_METRICS } from './metrics.ts'
import type { RunBatch } from './batch.ts'
import type { AssignedRun } from '../model/run.ts'

export type Requeue = {
  run: AssignedRun
  /** A failure reason, or rejected, or not_delivered. */
  reason: string
  error: string | null
  costsAttempt: boolean
  /** 0: it can be placed at once. */
  delayMs: number
}

const ARCHIVE = `
  INSERT INTO run_attempts (run_key, fence, attempt, worker_key, assigned_at, running_at, reason, error)
  SELECT r.key, r.fence, r.attempt, r.worker_key, r.assigned_at, r.running_at, c.reason, c.error
  FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[]) AS c (key, fence, reason, error)
  JOIN runs r ON r.key = c.key AND r.fence = c.fence AND r.worker_key IS NOT NULL
    AND r.state IN (${TASK_STATE.scheduled}, ${TASK_STATE.running}, ${TASK_STATE.unknown})
  RETURNING run_key`

// The fence is cleared, so that later reports of the old worker are stale.
const REQUEUE = `
  WITH changed AS (UPDATE runs r SET
    state = ${TASK_STATE.scheduled}, worker_key = NULL, fence = NULL, assigned_at = NULL, running_at = NULL, checks = 0,
    attempt = r.attempt + c.cost,
    queue_seq = CASE WHEN c.delay_ms = 0 THEN nextval('fence') END,
    next_check_at = now() + make_interval(secs => (CASE WHEN c.delay_ms = 0 THEN $4 ELSE c.delay_ms END) / 1000)
  FROM unnest($1::bigint[], $2::integer[], $3::float8[], $5::text[]) AS c (key, cost, delay_ms, reason)
  WHERE r.key = c.key
  RETURNING r.id, r.task_key, r.state, r.worker_key, c.reason)
  ${noteRuns('changed')}`

export async function requeueRuns(batch: RunBatch, requeues: readonly Requeue[]): Promise<void> {
  if (requeues.length === 0) return
  const sorted = requeues.toSorted((left, right) => left.run.key - right.run.key)
  const rows = await batch.rows<{ run_key: number }>('archive-attempts', ARCHIVE, [
    sorted.map(({ run }) => run.key),
    sorted.map(({ run }) => run.fence),
    sorted.map(({ reason }) => reason),
    sorted.map(({ error }) => error),
  ])
  const archived = new Set(rows.map((row) => row.run_key))
  const current = sorted.filter(({ run }) => archived.has(run.key))
  if (current.length === 0) return
  await batch.rows('requeue-runs', REQUEUE, [
    current.map(({ run }) => run.key),
    current.map(({ costsAttempt }) => (costsAttempt ? 1 : 0)),
    current.map(({ delayMs }) => delayMs),
    batch.context.timing.placementCheckMs,
    current.map(({ reason }) => reason),
  ])
  for (const { run } of current) {
    if (run.drivesTask)
      batch.changeTask(run.taskKey, { runKey: run.key, state: TASK_STATE.scheduled, durationMs: null })
  }
  batch.afterCommit(() => {
    for (const { reason } of current) RUN_METRICS.requeued.add({ reason })
  })
  // The queues are updated before the commit, so that the claim of this batch can take the runs.
  for (const { run, delayMs } of current) if (delayMs === 0) batch.context.queues.add(run.needs, 1)
}
