/**
 * Reconciles the database with the claims of a worker, at its Hello and when its lease expires (task-manager.md section
 * 3, rules 3 to 6). The database decides; the worker receives what to keep, stop and resend.
 */
import { TASK_STATE, type TaskState } from '#proto/index.ts'
import type { RunIdentity } from '../model/run.ts'
import type { WorkerSession } from '../placement/worker-session.ts'
import { noteRuns, noteWorkers } from '../store/notes.ts'
import type { RunBatch } from './batch.ts'
import { writeEnds, type EndedRow } from './end-runs.ts'
import { requeueRuns, type Requeue } from './requeue-runs.ts'
import { afterFailure } from '../model/retry.ts'
import { RUN_COLUMNS, fromRunRow, type RunRow } from '../store/run-rows.ts'
import { STOPPED_BEFORE_RUNNING, isAssigned, type AssignedRun } from '../model/run.ts'

/** The runs that a worker claims to hold, by run id. */
export type HelloClaims = {
  bootId: string
  running: ReadonlyMap<string, { run: RunIdentity; state: TaskState }>
  spooled: ReadonlyMap<string, RunIdentity>
}

/** Ids of the accepted claims: runs that continue, and runs whose result is awaited. The others are obsolete. */
export type Reconciliation = {
  keep: ReadonlySet<string>
  resend: ReadonlySet<string>
}

const BEGIN_SESSION = `
  WITH changed AS (UPDATE workers w SET boot_id = $3, manager_id = $4, last_alive_at = now(),
    lease_until = now() + make_interval(secs => $5::float8 / 1000)
  FROM (SELECT key, boot_id FROM workers WHERE key = $1 FOR UPDATE) AS before
  WHERE w.key = before.key AND w.session_epoch = $2
  RETURNING w.key, CASE WHEN w.draining THEN 'draining' ELSE 'alive' END AS state, before.boot_id <> $3 AS is_new_boot),
  noted AS (${noteWorkers('changed')})
  SELECT is_new_boot FROM changed`

const HELD = `
  SELECT ${RUN_COLUMNS} FROM runs r WHERE r.worker_key = $1 AND r.next_check_at IS NOT NULL ORDER BY r.key FOR UPDATE`

/** Undefined: the session's epoch is void, because this worker registered again. */
export async function reconcileHello(
  batch: RunBatch,
  session: WorkerSession,
  claims: HelloClaims,
  managerId: string,
  leaseMs: number,
): Promise<Reconciliation | undefined> {
  const [begun] = await batch.rows<{ is_new_boot: boolean }>('begin-session', BEGIN_SESSION, [
    session.key,
    session.epoch,
    claims.bootId,
    managerId,
    leaseMs,
  ])
  if (begun === undefined) return undefined
  const held = await readAssigned(batch, session.key)
  const keep = new Set<string>()
  const resend = new Set<string>()
  const kept: AssignedRun[] = []
  const resumed: AssignedRun[] = []
  const missing: AssignedRun[] = []
  for (const run of held) {
    const claim = claims.running.get(run.id)
    if (claim?.run.fence === run.fence) {
      keep.add(run.id)
      kept.push(run)
      if (claim.state === TASK_STATE.running && run.state !== TASK_STATE.running) resumed.push(run)
    } else if (claims.spooled.get(run.id)?.fence === run.fence) {
      resend.add(run.id)
      kept.push(run)
    } else missing.push(run)
  }
  await markResumed(batch, resumed)
  await evictRuns(batch, missing, begun.is_new_boot ? 'the worker was restarted' : 'the worker does not hold it')
  batch.afterCommit(() => {
    session.runs.clear()
    for (const run of kept) session.runs.set(run.id, run)
  })
  return { keep, resend }
}

const RESUME = `
  WITH changed AS (UPDATE runs r SET state = ${TASK_STATE.running}, running_at = coalesce(r.running_at, now()),
    next_check_at = greatest(r.next_check_at, now() + make_interval(secs => $2::float8 / 1000))
  WHERE r.key = ANY($1::bigint[])
  RETURNING r.id, r.task_key, r.state, r.worker_key, r.reason)
  ${noteRuns('changed')}`

async function markResumed(batch: RunBatch, runs: readonly AssignedRun[]): Promise<void> {
  if (runs.length === 0) return
  await batch.rows('resume-runs', RESUME, [runs.map((run) => run.key), batch.context.timing.runCheckMarginMs])
  for (const run of runs) {
    run.state = TASK_STATE.running
    if (run.drivesTask) batch.changeTask(run.taskKey, { runKey: run.key, state: TASK_STATE.running, durationMs: null })
  }
}

export async function readAssigned(batch: RunBatch, workerKey: number): Promise<AssignedRun[]> {
  const rows = await batch.rows<RunRow>('held-runs', HELD, [workerKey])
  return rows.map(fromRunRow).filter(isAssigned)
}

/**
 * Runs that a worker certainly does not execute: undelivered ones are requeued without cost, started ones have lost an
 * attempt.
 */
export async function evictRuns(batch: RunBatch, runs: readonly AssignedRun[], why: string): Promise<void> {
  const ends: EndedRow[] = []
  const requeues: Requeue[] = []
  for (const run of runs) {
    if (run.state === TASK_STATE.scheduled) {
      requeues.push({ run, reason: 'not_delivered', error: why, costsAttempt: false, delayMs: 0 })
      continue
    }
    const next = afterFailure(run.spec, run.attempt, 'worker_lost', batch.context.random())
    if (next.retry) requeues.push({ run, reason: 'worker_lost', error: why, costsAttempt: true, delayMs: next.delayMs })
    else ends.push({ run, ending: lost(why), workerId: null })
  }
  await writeEnds(batch, ends)
  await requeueRuns(batch, requeues)
}

function lost(why: string) {
  return { ...STOPPED_BEFORE_RUNNING, state: TASK_STATE.failed, reason: 'worker_lost' as const, error: why }
}

const DECLARE_DEAD = `
  WITH changed AS (UPDATE workers SET manager_id = NULL, session_epoch = session_epoch + 1
  WHERE key = $1 AND session_epoch = $2 AND lease_until < now()
  RETURNING key, 'dead' AS state),
  noted AS (${noteWorkers('changed')})
  SELECT key FROM changed`

const MARK_UNKNOWN = `
  WITH changed AS (UPDATE runs r SET state = ${TASK_STATE.unknown}, next_check_at = now() + make_interval(secs => $2::float8 / 1000)
  WHERE r.key = ANY($1::bigint[])
  RETURNING r.id, r.task_key, r.state, r.worker_key, r.reason)
  ${noteRuns('changed')}`

/** Check interval of an unknown run; only its worker, a stop or a user ends it. */
export const UNKNOWN_CHECK_MS = 3_600_000

/**
 * Handles a worker with an expired lease. Its epoch rises, so that its later messages are rejected; false if a heartbeat
 * arrived meanwhile.
 */
export async function expireWorkerLease(batch: RunBatch, workerKey: number, epoch: number): Promise<boolean> {
  const [dead] = await batch.rows('declare-dead', DECLARE_DEAD, [workerKey, epoch])
  if (dead === undefined) return false
  const held = await readAssigned(batch, workerKey)
  const waits = held.filter((run) => run.spec.on_lost === 'wait' && run.state === TASK_STATE.running)
  if (waits.length > 0) {
    await batch.rows('mark-unknown', MARK_UNKNOWN, [waits.map((run) => run.key), UNKNOWN_CHECK_MS])
    for (const run of waits) {
      if (run.drivesTask)
        batch.changeTask(run.taskKey, { runKey: run.key, state: TASK_STATE.unknown, durationMs: null })
    }
  }
  await evictRuns(
    batch,
    held.filter((run) => !waits.includes(run)),
    'the lease of the worker expired',
  )
  batch.afterCommit(() => {
    const session = batch.context.cluster.find(workerKey)
    if (session === undefined || session.epoch !== epoch) return
    session.runs.clear()
    batch.context.cluster.remove(session)
  })
  return true
}
