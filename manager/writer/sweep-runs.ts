/**
 * Checks every run whose deadline in the database has passed. This finds all lost work: a manager that died between
 * commit and send, a worker that hangs, a run that cannot be placed.
 */
import { formatDurationMs, monotonicMs } from '#core/time.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { RunBatch } from './batch.ts'
import { GROUP_CHECK_MS } from './broadcasts.ts'
import { writeEnds } from './end-runs.ts'
import type { DelayedRun } from './delayed-runs.ts'
import { FittingWorkers } from './fitting-workers.ts'
import { DEFAULT_QUEUE_TIMEOUT_MS, MAX_CHECKED_PER_SWEEP } from '../model/limits.ts'
import { leaseMs, type ManagerTiming } from '../model/timing.ts'
import { UNKNOWN_CHECK_MS, evictRuns } from './reconcile-runs.ts'
import { RUN_COLUMNS, fromRunRow, type RunRow } from '../store/run-rows.ts'
import { STOPPED_BEFORE_RUNNING, isAssigned, type AssignedRun, type RunHandle } from '../model/run.ts'
import { forceStop } from './stop-runs.ts'

type DueRow = RunRow & {
  worker_key: number | null
  is_queued: boolean
  is_cancelled: boolean
  is_broadcast: boolean
  is_orphan: boolean
  manager_id: string | null
  ran_ms: number | null
  checks: number
  /** The time since it was started, or since its last attempt ended. */
  waited_ms: number
}

/** The longest pause between two checks of a run that waits for a worker. */
const MAX_PLACEMENT_CHECK_MS = 3_600_000

const FIND_DUE = `
  SELECT ${RUN_COLUMNS}, r.worker_key, r.queue_seq IS NOT NULL AS is_queued, r.cancel_requested_at IS NOT NULL AS is_cancelled,
    r.is_broadcast, r.parent_id IS NOT NULL AND r.queue_seq IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM run_needs n JOIN workers p ON p.id = (n.definition ->> 'workerId')::uuid
      WHERE n.hash = r.needs AND p.manager_id IS NOT NULL AND p.lease_until > now()) AS is_orphan,
    w.manager_id, extract(epoch FROM now() - r.running_at)::float8 * 1000 AS ran_ms, r.checks,
    CASE WHEN r.worker_key IS NULL THEN extract(epoch FROM now() - greatest(r.created_at,
      (SELECT max(a.ended_at) FROM run_attempts a WHERE a.run_key = r.key)))::float8 * 1000 ELSE 0 END AS waited_ms
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

const ENQUEUE_DUE = `
  UPDATE runs r SET queue_seq = nextval('fence'), next_check_at = now() + make_interval(secs => $2::float8 / 1000)
  WHERE r.key = ANY($1::bigint[]) AND r.queue_seq IS NULL AND r.worker_key IS NULL AND r.state = ${TASK_STATE.scheduled}
    AND r.next_check_at <= now()
  RETURNING r.key`

/** Queues runs whose pause has passed. Those that a sweep has queued before stay as they are. */
export async function enqueueDue(batch: RunBatch, runs: readonly DelayedRun[]): Promise<void> {
  const { queues, timing } = batch.context
  const needsOf = new Map(runs.map(({ key, needs }) => [key, needs]))
  const sorted = [...needsOf.keys()].toSorted((left, right) => left - right)
  const rows = await batch.rows<{ key: number }>('enqueue-due', ENQUEUE_DUE, [sorted, timing.placementCheckMs])
  for (const { key } of rows) queues.add(needsOf.get(key) ?? '', 1)
}

/** Returns the number of due rows, so that the caller repeats at once while there are many. */
export async function sweepRuns(batch: RunBatch, managerId: string): Promise<number> {
  const rows = await batch.rows<DueRow>('due-runs', FIND_DUE, [])
  const { timing, cluster, queues } = batch.context
  const enqueue: DueRow[] = []
  const forced: number[] = []
  const orphans: DueRow[] = []
  const dropped: AssignedRun[] = []
  const overdue = { running: [] as AssignedRun[], waiting: [] as RunHandle[] }
  const deferred: { key: number; delayMs: number }[] = []
  const later = (key: number, delayMs: number) => deferred.push({ key, delayMs })
  for (const row of rows) {
    const run = fromRunRow(row)
    const session = row.worker_key === null ? undefined : cluster.find(row.worker_key)
    if (run.state === TASK_STATE.unknown && !row.is_cancelled) later(run.key, UNKNOWN_CHECK_MS)
    else if (row.is_broadcast) {
      batch.touchGroup(run.id)
      later(run.key, GROUP_CHECK_MS)
    } else if (row.is_orphan) orphans.push(row)
    else if (row.is_cancelled) forced.push(run.key)
    else if (!isAssigned(run)) {
      if (!row.is_queued) enqueue.push(row)
      else if (queueTimeoutMs(run) <= row.waited_ms) overdue.waiting.push(run)
      else later(run.key, nextPlacementCheckMs(timing, row, queueTimeoutMs(run)))
    } else if (row.manager_id === null) dropped.push(run)
    else if (session === undefined) later(run.key, timing.runCheckMarginMs)
    else if (session.runs.get(run.id)?.fence !== run.fence) dropped.push(run)
    else if (run.spec.daemon === true) later(run.key, UNKNOWN_CHECK_MS)
    else if (row.ran_ms !== null && row.ran_ms > run.spec.timeout_ms + timing.runCheckMarginMs)
      overdue.running.push(run)
    else later(run.key, Math.max(run.spec.timeout_ms - (row.ran_ms ?? 0), 0) + timing.runCheckMarginMs)
  }
  if (enqueue.length > 0) {
    await batch.rows('enqueue-runs', ENQUEUE, [enqueue.map((row) => row.key), timing.placementCheckMs])
    for (const row of enqueue) queues.add(row.needs, 1)
  }
  await endOrphans(batch, orphans)
  if (forced.length > 0) await forceStop(batch, forced)
  await evictRuns(batch, dropped, 'the worker does not hold it')
  await endOverdue(batch, overdue.running)
  for (const key of await endUnplaceable(batch, overdue.waiting)) later(key, timing.placementCheckMs)
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

const queueTimeoutMs = ({ spec }: Pick<RunHandle, 'spec'>) => spec.queue_timeout_ms ?? DEFAULT_QUEUE_TIMEOUT_MS

/** Doubling, at most to the end of its wait; the worker of a part of a broadcast can be removed at any time. */
function nextPlacementCheckMs(timing: ManagerTiming, row: DueRow, queueTimeout: number): number {
  const backoffMs = row.parent_id === null ? timing.placementCheckMs * 2 ** row.checks : timing.placementCheckMs
  return Math.min(backoffMs, MAX_PLACEMENT_CHECK_MS, queueTimeout - row.waited_ms)
}

/**
 * Ends runs that have waited for their `queue_timeout` and fit no worker. The others, whose keys are returned, wait on: for a slot, or for
 * workers that may still come back to a manager that has just started.
 */
async function endUnplaceable(batch: RunBatch, runs: readonly RunHandle[]): Promise<number[]> {
  if (runs.length === 0) return []
  const { timing, cluster, beganMs, queues } = batch.context
  if (monotonicMs() - beganMs < leaseMs(timing, timing.heartbeatIntervalMs)) return runs.map(({ key }) => key)
  const workers = new FittingWorkers(batch)
  const reasons = new Map<string, string | undefined>()
  for (const hash of new Set(runs.map(({ needs }) => needs))) {
    const needs = cluster.needsOf(hash)
    reasons.set(hash, needs === undefined ? undefined : await workers.unfit(needs))
  }
  const ends = runs.flatMap((run) => {
    const why = reasons.get(run.needs)
    if (why === undefined) return []
    const error = `no worker that fits came within its queue_timeout of ${formatDurationMs(queueTimeoutMs(run))}: ${why}`
    const ending = { ...STOPPED_BEFORE_RUNNING, state: TASK_STATE.failed, reason: 'queue_timeout' as const, error }
    return [{ run, ending, workerId: null }]
  })
  await writeEnds(batch, ends)
  for (const { run } of ends) queues.add(run.needs, -1)
  const ended = new Set(ends.map(({ run }) => run.key))
  return runs.flatMap(({ key }) => (ended.has(key) ? [] : [key]))
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

// Needs come in the order in which their runs have waited, which decides between domains of equal start tags.
const COUNT_QUEUES =
  'SELECT needs, count(*)::int AS runs FROM runs WHERE queue_seq IS NOT NULL GROUP BY needs ORDER BY min(queue_seq)'
const READ_NEEDS = 'SELECT hash, definition FROM run_needs WHERE hash = ANY($1::text[])'

// This compares the smallest and the largest key in the index of domains.
const ARE_SHARED = `
  SELECT (SELECT min(domain_key) FROM tasks) IS DISTINCT FROM (SELECT max(domain_key) FROM tasks)
    OR (EXISTS (SELECT FROM tasks WHERE domain_key IS NULL) AND EXISTS (SELECT FROM tasks WHERE domain_key IS NOT NULL)) AS "isShared"`

/** Counts the queued runs of all managers, and loads needs that another manager stored. */
export async function refreshQueues(batch: RunBatch): Promise<void> {
  const { queues, cluster } = batch.context
  const [counts, [sharing]] = await Promise.all([
    batch.rows<NeedsCount>('count-queues', COUNT_QUEUES, []),
    batch.rows<{ isShared: boolean }>('shared-workers', ARE_SHARED, []),
  ])
  cluster.isShared = sharing?.isShared ?? false
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
