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

/** A worker that began a session, with what it claims. */
export type BegunSession = { session: WorkerSession; claims: HelloClaims; leaseMs: number }

// The rows are locked in the order of their keys, as all statements that lock several workers do.
const BEGIN_SESSIONS = `
  WITH begun AS (SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::float8[]) AS b (key, epoch, boot_id, lease_ms)),
  before AS MATERIALIZED (SELECT w.key, w.boot_id FROM workers w WHERE w.key = ANY($1::bigint[]) ORDER BY w.key FOR UPDATE),
  changed AS (UPDATE workers w SET boot_id = begun.boot_id, manager_id = $5, last_alive_at = now(),
    lease_until = now() + make_interval(secs => begun.lease_ms / 1000)
  FROM begun JOIN before ON before.key = begun.key
  WHERE w.key = begun.key AND w.session_epoch = begun.epoch
  RETURNING w.key, CASE WHEN w.draining THEN 'draining' ELSE 'alive' END AS state, before.boot_id <> begun.boot_id AS is_new_boot),
  noted AS (${noteWorkers('changed')})
  SELECT key, is_new_boot FROM changed`

const HELD = `
  SELECT ${RUN_COLUMNS}, r.worker_key FROM runs r
  WHERE r.worker_key = ANY($1::bigint[]) AND r.next_check_at IS NOT NULL ORDER BY r.key FOR UPDATE`

const COUNT_HELD = `
  SELECT r.worker_key, count(*)::int AS held FROM runs r
  WHERE r.worker_key = ANY($1::bigint[]) AND r.next_check_at IS NOT NULL GROUP BY r.worker_key`

/** Workers whose runs are read by one statement. */
const MAX_TOGETHER = 100
/** Runs that they claim or have in the database: a worker that was restarted claims none. A worker with more is alone. */
const MAX_RUNS_TOGETHER = 5_000

/**
 * After a loss of the manager, all of its workers say Hello within seconds: those of a batch are written together. Returns an outcome for each;
 * undefined: the session's epoch is void, because this worker registered again.
 */
export async function reconcileHellos(
  batch: RunBatch,
  hellos: readonly BegunSession[],
  managerId: string,
): Promise<(Reconciliation | undefined)[]> {
  const outcomes = new Map<BegunSession, Reconciliation | undefined>()
  const held = hellos.length > 1 ? await countHeld(batch, hellos) : new Map<number, number>()
  let left = [...hellos]
  while (left.length > 0) {
    const together = takeTogether(left, held)
    const taken = new Set(together)
    left = left.filter((hello) => !taken.has(hello))
    const settled = await reconcileTogether(batch, together, managerId)
    for (const [index, hello] of together.entries()) outcomes.set(hello, settled[index])
  }
  return hellos.map((hello) => outcomes.get(hello))
}

/** Runs in the database, by the key of the worker. */
async function countHeld(batch: RunBatch, hellos: readonly BegunSession[]): Promise<Map<number, number>> {
  const keys = hellos.map(({ session }) => session.key)
  const rows = await batch.rows<{ worker_key: number; held: number }>('count-held-runs', COUNT_HELD, [keys])
  return new Map(rows.map(({ worker_key: key, held }) => [key, held]))
}

/** The next Hellos that are written by the same statements. Two sessions of one worker are two statements, of which the later one is in force. */
export function takeTogether(left: readonly BegunSession[], held: ReadonlyMap<number, number>): BegunSession[] {
  const ofWorkers = new Map<number, BegunSession>()
  let runs = 0
  for (const hello of left) {
    const { key } = hello.session
    if (ofWorkers.has(key)) continue
    runs += Math.max(hello.claims.running.size + hello.claims.spooled.size, held.get(key) ?? 0)
    if (ofWorkers.size === MAX_TOGETHER || (ofWorkers.size > 0 && runs > MAX_RUNS_TOGETHER)) break
    ofWorkers.set(key, hello)
  }
  return [...ofWorkers.values()]
}

type Reconciled = {
  keep: Set<string>
  resend: Set<string>
  kept: AssignedRun[]
  resumed: AssignedRun[]
  missing: AssignedRun[]
}

async function reconcileTogether(
  batch: RunBatch,
  hellos: readonly BegunSession[],
  managerId: string,
): Promise<(Reconciliation | undefined)[]> {
  const rows = await batch.rows<{ key: number; is_new_boot: boolean }>('begin-sessions', BEGIN_SESSIONS, [
    hellos.map(({ session }) => session.key),
    hellos.map(({ session }) => session.epoch),
    hellos.map(({ claims }) => claims.bootId),
    hellos.map(({ leaseMs }) => leaseMs),
    managerId,
  ])
  const isNewBoot = new Map(rows.map((row) => [row.key, row.is_new_boot]))
  const begun = hellos.filter(({ session }) => isNewBoot.has(session.key))
  const held = await readAssigned(
    batch,
    begun.map(({ session }) => session.key),
  )
  const reconciled = new Map(
    begun.map((hello) => [hello, compareClaims(held.get(hello.session.key) ?? [], hello.claims)]),
  )
  await markResumed(
    batch,
    [...reconciled.values()].flatMap(({ resumed }) => resumed),
  )
  for (const isNew of [true, false]) {
    const missing = [...reconciled].flatMap(([{ session }, one]) =>
      isNewBoot.get(session.key) === isNew ? one.missing : [],
    )
    await evictRuns(batch, missing, isNew ? 'the worker was restarted' : 'the worker does not hold it')
  }
  batch.afterCommit(() => {
    for (const [{ session }, { kept }] of reconciled) {
      session.runs.clear()
      for (const run of kept) session.runs.set(run.id, run)
    }
  })
  return hellos.map((hello) => reconciled.get(hello))
}

/** The runs of a worker in the database, by what the worker says about them. */
function compareClaims(held: readonly AssignedRun[], claims: HelloClaims): Reconciled {
  const found: Reconciled = { keep: new Set(), resend: new Set(), kept: [], resumed: [], missing: [] }
  for (const run of held) {
    const claim = claims.running.get(run.id)
    if (claim?.run.fence === run.fence) {
      found.keep.add(run.id)
      found.kept.push(run)
      if (claim.state === TASK_STATE.running && run.state !== TASK_STATE.running) found.resumed.push(run)
    } else if (claims.spooled.get(run.id)?.fence === run.fence) {
      found.resend.add(run.id)
      found.kept.push(run)
    } else found.missing.push(run)
  }
  return found
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

/** The runs of these workers that have not ended, by the key of the worker. */
async function readAssigned(batch: RunBatch, workerKeys: readonly number[]): Promise<Map<number, AssignedRun[]>> {
  if (workerKeys.length === 0) return new Map()
  const rows = await batch.rows<RunRow & { worker_key: number }>('held-runs', HELD, [workerKeys])
  const found = new Map<number, AssignedRun[]>()
  for (const row of rows) {
    const run = fromRunRow(row)
    if (!isAssigned(run)) continue
    found.getOrInsertComputed(row.worker_key, () => []).push(run)
  }
  return found
}

export async function readAssignedTo(batch: RunBatch, workerKey: number): Promise<AssignedRun[]> {
  return (await readAssigned(batch, [workerKey])).get(workerKey) ?? []
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
  const held = await readAssignedTo(batch, workerKey)
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
