/**
 * Checks every run whose deadline in the database has passed. This finds all lost work: a manager that died between
 * commit and send, a worker that hangs, a run that cannot be placed.
 */
import { TASK_STATE } from '#proto/index.ts'
import type { RunBatch } from './batch.ts'
import { GROUP_CHECK_MS } from './broadcasts.ts'
import { writeEnds } from './end-runs.ts'
import { MAX_CHECKED_PER_SWEEP } from '../model/limits.ts'
import { UNKNOWN_CHECK_MS, evictRuns } from './reconcile-runs.ts'
import { RUN_COLUMNS, fromRunRow, type RunRow } from '../store/run-rows.ts'
import { STOPPED_BEFORE_RUNNING, isAssigned, type AssignedRun } from '../model/run.ts'
import { forceStop } from './stop-runs.ts'

type DueRow = RunRow & {
  worker_key: number | null
  is_queued: boolean
  is_cancelled: boolean
  is_broadcast: boolean
  is_orphan: boolean
  manager_id: string | null
  ran_ms: number | null
}

const FIND_DUE = `
  SELECT ${RUN_COLUMNS}, r.worker_key, r.queue_seq IS NOT NULL AS is_queued, r.cancel_requested_at IS NOT NULL AS is_cancelled,
    r.is_broadcast, r.parent_id IS NOT NULL AND r.queue_seq IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM run_needs n JOIN workers p ON p.id = (n.definition ->> 'workerId')::uuid
      WHERE n.hash = r.needs AND p.manager_id IS NOT NULL AND p.lease_until > now()) AS is_orphan,
    w.manager_id, extract(epoch FROM now() - r.running_at)::float8 * 1000 AS ran_ms
  FROM runs r LEFT JOIN workers w ON w.key = r.worker_key
  WHERE r.next_check_at <= now()
  ORDER BY r.next_check_at
  LIMIT ${MAX_CHECKED_PER_SWEEP}
  FOR UPDATE OF r SKIP LOCKED`

const ENQUEUE = `
  UPDATE runs r SET queue_seq = nextval('fence'), next_check_at = now() + make_interval(secs => $2::float8 / 1000)
  WHERE r.key = ANY($1::bigint[]) AND r.queue_seq IS NULL AND r.worker_key IS NULL`

const DEFER = `
  UPDATE runs r SET next_check_at = now() + make_interval(secs => c.delay_ms / 1000), checks = least(r.checks + 1, 30)
  FROM unnest($1::bigint[], $2::float8[]) AS c (key, delay_ms)
  WHERE r.key = c.key`

/** Returns the number of due rows, so that the caller repeats at once while there are many. */
export async function sweepRuns(batch: RunBatch, managerId: string): Promise<number> {
  const rows = await batch.rows<DueRow>('due-runs', FIND_DUE, [])
  const { timing, cluster, queues } = batch.context
  const enqueue: DueRow[] = []
  const forced: number[] = []
  const orphans: DueRow[] = []
  const dropped: AssignedRun[] = []
  const overdue: AssignedRun[] = []
  const deferred: { key: number; delayMs: number }[] = []
  const later = (key: number, delayMs: number) => deferred.push({ key, delayMs })
  for (const row of rows) {
    const run = fromRunRow(row)
    const session = row.worker_key === null ? undefined : cluster.find(row.worker_key)
    if (run.state === TASK_STATE.unknown) later(run.key, UNKNOWN_CHECK_MS)
    else if (row.is_broadcast) {
      batch.touchGroup(run.id)
      later(run.key, GROUP_CHECK_MS)
    } else if (row.is_orphan) orphans.push(row)
    else if (row.is_cancelled) forced.push(run.key)
    else if (!isAssigned(run)) {
      if (row.is_queued) later(run.key, timing.placementCheckMs)
      else enqueue.push(row)
    } else if (row.manager_id === null) dropped.push(run)
    else if (session === undefined) later(run.key, timing.runCheckMarginMs)
    else if (session.runs.get(run.id)?.fence !== run.fence) dropped.push(run)
    else if (run.spec.daemon === true) later(run.key, UNKNOWN_CHECK_MS)
    else if (row.ran_ms !== null && row.ran_ms > run.spec.timeout_ms + timing.runCheckMarginMs) overdue.push(run)
    else later(run.key, Math.max(run.spec.timeout_ms - (row.ran_ms ?? 0), 0) + timing.runCheckMarginMs)
  }
  if (enqueue.length > 0) {
    await batch.rows('enqueue-runs', ENQUEUE, [enqueue.map((row) => row.key), timing.placementCheckMs])
    for (const row of enqueue) queues.add(row.needs, 1)
  }
  await endOrphans(batch, orphans)
  if (forced.length > 0) await forceStop(batch, forced)
  await evictRuns(batch, dropped, 'the worker does not hold it')
  await endOverdue(batch, overdue)
  if (deferred.length > 0) {
    const sorted = deferred.toSorted((left, right) => left.key - right.key)
    await batch.rows('defer-checks', DEFER, [sorted.map((row) => row.key), sorted.map((row) => row.delayMs)])
  }
  if (dropped.length > 0)
    batch.context.logger.warn({ managerId, runs: dropped.length }, 'requeued runs that no worker holds')
  return rows.length
}

/** Ends parts of a broadcast whose worker was removed: only that worker could run them. */
async function endOrphans(batch: RunBatch, rows: readonly DueRow[]): Promise<void> {
  const ending = {
    ...STOPPED_BEFORE_RUNNING,
    state: TASK_STATE.failed,
    reason: 'worker_lost' as const,
    error: 'the worker was removed or its lease expired',
  }
  await writeEnds(
    batch,
    rows.map((row) => ({ run: fromRunRow(row), ending, workerId: null })),
  )
  for (const row of rows) batch.context.queues.add(row.needs, -1)
}

/** The worker is alive but did not end the run at its timeout: the run ends here, and the worker receives a request to stop it. */
async function endOverdue(batch: RunBatch, runs: readonly AssignedRun[]): Promise<void> {
  const ending = {
    ...STOPPED_BEFORE_RUNNING,
    state: TASK_STATE.failed,
    reason: 'timeout' as const,
    error: 'the worker did not end the run at its timeout',
  }
  await writeEnds(
    batch,
    runs.map((run) => ({ run, ending, workerId: null })),
  )
  batch.afterCommit(() => {
    for (const session of batch.context.cluster.sessions) {
      for (const run of runs) {
        if (session.runs.get(run.id)?.fence !== run.fence) continue
        session.runs.delete(run.id)
        session.cancel([run])
      }
    }
  })
}

type NeedsCount = { needs: string; runs: number }

// In the order in which they have waited: it decides between domains of equal start tags.
const COUNT_QUEUES =
  'SELECT needs, count(*)::int AS runs FROM runs WHERE queue_seq IS NOT NULL GROUP BY needs ORDER BY min(queue_seq)'
const READ_NEEDS = 'SELECT hash, definition FROM run_needs WHERE hash = ANY($1::text[])'

/** Counts the queued runs of all managers, and loads needs that another manager stored. */
export async function refreshQueues(batch: RunBatch): Promise<void> {
  const { queues, cluster } = batch.context
  const counts = await batch.rows<NeedsCount>('count-queues', COUNT_QUEUES, [])
  const foreign = counts.map((row) => row.needs).filter((hash) => !cluster.knowsNeeds(hash))
  if (foreign.length > 0) {
    const rows = await batch.rows<{ hash: string; definition: Parameters<typeof cluster.storeNeeds>[0] }>(
      'read-needs',
      READ_NEEDS,
      [foreign],
    )
    for (const row of rows) {
      cluster.storeNeeds(row.definition)
      cluster.markNeedsStored(row.hash)
    }
  }
  queues.refresh(counts.map((row) => [row.needs, row.runs] as const))
}
