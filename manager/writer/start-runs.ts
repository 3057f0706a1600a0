/**
 * Starts: reads the tasks, validates each start, places or queues each run, and inserts all rows of the batch in one
 * statement. A run that finds a free slot is inserted with its fence, so that it needs no second write.
 */
import { randomUUID } from 'node:crypto'
import type { Actor } from '#api/identity/index.ts'
import { jsonArray } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs } from '#core/time.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { WorkerSession } from '../placement/worker-session.ts'
import { noteRuns } from '../store/notes.ts'
import { requireNextState } from '../model/lifecycle.ts'
import type { StartRequest, StartedRun } from '../model/start.ts'
import type { RunNeeds } from '../model/needs.ts'
import type { RunBatch } from './batch.ts'
import { DEFAULT_QUEUE_TIMEOUT_MS } from '../model/limits.ts'
import { findBroadcastWorkers, writeGroups } from './broadcasts.ts'
import { FittingWorkers } from './fitting-workers.ts'
import type { AssignedRun, RunSpec } from '../model/run.ts'
import { SpecRoom, planFor, prepare, requireStartable, type PreparedRun } from './run-plan.ts'
import { RUN_METRICS } from './metrics.ts'
import { lockClaims } from '#queues/index.ts'
import { findStartKeys } from './start-keys.ts'
import { unchangedTasks } from './known-tasks.ts'
import type { StartTask, StartTasks } from './known-tasks.ts'
import type { UnrecordedRun } from './unrecorded-runs.ts'

type Prepared = {
  index: number
  request: StartRequest
  task: StartTask
  spec: RunSpec
  /** The spec in stored form. */
  specJson: string
  digest: string
  needs: RunNeeds
  needsHash: string
  session: WorkerSession | undefined
  /** It was sent to its worker before. */
  sent: UnrecordedRun | undefined
  /** Present for a run of a broadcast: it is the parent run, or one of its parts. */
  part: { kind: 'group' } | { kind: 'member'; parentId: string } | undefined
}

/** Outcome of a start whose task may have changed since it was cached: nothing was written. */
export const STALE_TASK = Symbol('the task has changed')

export type StartOutcome = StartedRun | Error | typeof STALE_TASK

const NO_CLAIMS: ReadonlySet<string> = new Set()

/** `isLast`: no write follows the runs, so the commit is sent with them. */
export async function startRuns(
  batch: RunBatch,
  requests: readonly StartRequest[],
  { tasks, modules, areFresh }: StartTasks,
  isLast: boolean,
): Promise<StartOutcome[]> {
  const outcomes: StartOutcome[] = []
  const finding = findStartKeys(batch, requests, tasks)
  const claiming = requests.flatMap(({ claims, runId }) => (claims === undefined ? [] : [runId]))
  // Runs that still have their messages, until the commit. Few batches have any.
  const [repeated, claims] =
    claiming.length === 0 ? [await finding, NO_CLAIMS] : await Promise.all([finding, lockClaims(batch.db, claiming)])

  const prepared: Prepared[] = []
  const room = new SpecRoom()
  const workers = new FittingWorkers(batch)
  const awaited = awaitedWorkers(batch)
  for (const [index, request] of requests.entries()) {
    try {
      const task = tasks.get(request.taskId)
      if (task === undefined) throw new ServiceError('not_found', 'no such task')
      const earlier = repeated.runOf(request, task)
      if (earlier !== undefined) {
        outcomes[index] = { runId: earlier, runKey: undefined, taskKey: task.key }
        continue
      }
      if (request.claims !== undefined && !claims.has(request.runId)) throw new LostClaims()
      requireStartable(request, task)
      const run = prepare(request, task, planFor(request, task, modules, batch.context.cluster))
      room.take(run.specJson)
      if (request.drivesTask) task.state = requireNextState(task.state, 'start')
      if (task.broadcast) {
        prepared.push(...(await broadcast(batch, { index, request, task, ...run }, room, awaited)))
        repeated.remember(request, task)
        continue
      }
      const sent = sentAlready(batch, request, run)
      const session = sent?.session ?? placeNow(batch, { request, task, ...run }, awaited)
      const isUnfit = session === undefined && batch.context.cluster.candidates(run.needsHash).length === 0
      if (request.needsWorker === true && isUnfit) await workers.require(run.needs)
      prepared.push({ index, request, task, ...run, session, sent, part: undefined })
      repeated.remember(request, task)
    } catch (error) {
      // A cached task can be stale: only a start that was checked against the row can be refused.
      outcomes[index] = areFresh ? (error as Error) : STALE_TASK
    }
  }
  await insert(batch, prepared, outcomes, { areFresh, isLast })
  await repeated.write()
  return outcomes
}

/** Another manager has given the messages of this run to another run, which it started. */
export class LostClaims extends ServiceError {
  constructor() {
    super('conflict', 'the messages were given to another run')
  }
}

/** The run, if its worker has it already. A worker that has what the task was before loses it. */
function sentAlready(batch: RunBatch, { runId }: StartRequest, run: PreparedRun): UnrecordedRun | undefined {
  const sent = batch.context.unrecorded.find(runId)
  if (sent === undefined || !sent.isHeld) return undefined
  if (sent.isSame(run)) return sent
  sent.leaveWorker()
  return undefined
}

/** Workers that queued runs of any domain could get. */
function awaitedWorkers(batch: RunBatch): ReadonlySet<WorkerSession> {
  const { queues, cluster } = batch.context
  const awaited = new Set<WorkerSession>()
  for (const needs of queues.needs) {
    if (batch.roomOf(cluster.domainOf(needs)) === 0) continue
    for (const session of cluster.candidates(needs)) awaited.add(session)
  }
  return awaited
}

/**
 * Places at once, except on workers that queued runs wait for: those are claimed fairly at the end of the batch, and so is
 * this run. Throws `unavailable` in a full queue, and the error of the quota of queued runs.
 */
function placeNow(
  batch: RunBatch,
  { request, task, digest, needsHash, spec }: Pick<Prepared, 'request' | 'task' | 'digest' | 'needsHash' | 'spec'>,
  awaited: ReadonlySet<WorkerSession>,
): WorkerSession | undefined {
  const { queues } = batch.context
  const waits = queues.waiting(needsHash) > 0 || batch.roomOf(task.domain_id) === 0
  const session = waits ? undefined : batch.place(needsHash, { taskKey: task.key, digest, spec }, awaited)
  if (session !== undefined) return session
  batch.requireQueueRoom(task.domain_id)
  batch.willQueue(task.domain_id, request.cause)
  return undefined
}

/**
 * Starts one run for each worker that fits, and a parent run that ends with the last. Throws `unavailable` if none fits.
 */
async function broadcast(
  batch: RunBatch,
  run: Omit<Prepared, 'session' | 'sent' | 'part'>,
  room: SpecRoom,
  awaited: ReadonlySet<WorkerSession>,
): Promise<Prepared[]> {
  const { cluster } = batch.context
  const workers = await findBroadcastWorkers(batch, run.needs)
  room.take(run.specJson, workers.length)
  const group: Prepared = { ...run, session: undefined, sent: undefined, part: { kind: 'group' } }
  const members: Prepared[] = []
  try {
    for (const workerId of workers) {
      const needs = { ...run.needs, workerId }
      const needsHash = cluster.storeNeeds(needs)
      const request = { ...run.request, runId: randomUUID(), drivesTask: false, idempotency: undefined }
      const member = { ...run, index: -1, request, needs, needsHash }
      const session = placeNow(batch, member, awaited)
      members.push({ ...member, session, sent: undefined, part: { kind: 'member', parentId: run.request.runId } })
    }
  } catch (error) {
    for (const { session, needsHash } of members) if (session !== undefined) batch.release(session, needsHash)
    throw error
  }
  return [group, ...members]
}

/** A run keeps the large message that it refers to; messages that it claims are kept by themselves. */
const KEEP_CONTENTS = `
  INSERT INTO run_contents (run_key, content_key) SELECT * FROM unnest($1::bigint[], $2::bigint[])`

/** The large messages of these runs. */
function contentsOf(
  prepared: readonly Prepared[],
  inserted: ReadonlyMap<string, { key: number }>,
): { runKey: number; contentKey: number }[] {
  return prepared.flatMap(({ request, spec }) => {
    const run = inserted.get(request.runId)
    const [message] = spec.given?.messages ?? []
    if (run === undefined || request.claims !== undefined || message === undefined) return []
    return 'content_key' in message ? [{ runKey: run.key, contentKey: message.content_key }] : []
  })
}

const STORE_NEEDS = `
  INSERT INTO run_needs (hash, definition)
  SELECT * FROM unnest($1::text[], $2::jsonb[]) AS n (hash, definition) ORDER BY hash
  ON CONFLICT ON CONSTRAINT run_needs_pkey DO NOTHING`

// If the epoch of a worker was raised meanwhile, the worker has registered again, perhaps at another manager that has
// reconciled its runs: its run is queued instead. The lock holds the epoch until the commit. Workers and tasks are few
// compared with runs and are passed once, as arrays: half of the time of a small batch is the setup of the plan in
// PostgreSQL, and this plan has the fewest nodes.
const INSERT_RUNS = `
  WITH started AS (INSERT INTO runs (id, task_key, drives_task, state, spec, module_digest, needs, priority, worker_key, fence, queue_seq,
    assigned_at, next_check_at, domain_key, cause)
  SELECT n.id, n.task_key, n.drives_task, ${TASK_STATE.scheduled}, n.spec, n.module_digest, n.needs, n.priority, n.held_key,
    CASE WHEN n.held_key IS NOT NULL THEN coalesce(n.fence, nextval('fence')) END,
    CASE WHEN n.held_key IS NULL THEN nextval('fence') END,
    CASE WHEN n.held_key IS NOT NULL THEN now() END,
    now() + make_interval(secs => n.check_ms / 1000), n.domain_key, n.cause
  FROM (
    SELECT m.*, CASE WHEN m.worker_key = ANY (ARRAY(
        SELECT w.key FROM workers w
        WHERE w.key = ANY ($10::bigint[]) AND w.session_epoch = ($11::bigint[])[array_position($10::bigint[], w.key)]
        ORDER BY w.key FOR SHARE)) THEN m.worker_key END AS held_key
    FROM unnest($1::uuid[], $2::bigint[], $3::boolean[], $4::json[], $5::text[], $6::text[], $7::smallint[], $8::bigint[],
        $9::float8[], $14::bigint[], $15::json[], $16::bigint[])
      AS m (id, task_key, drives_task, spec, module_digest, needs, priority, worker_key, check_ms, domain_key, cause, fence)
    WHERE m.task_key = ANY (${unchangedTasks('$12::bigint[]', '$13::text[]')})
    OFFSET 0) n
  RETURNING key, id, fence, task_key, state, worker_key, reason),
  noted AS (${noteRuns('started')})
  SELECT key, id, fence FROM started`

async function insert(
  batch: RunBatch,
  prepared: readonly Prepared[],
  outcomes: StartOutcome[],
  { areFresh, isLast }: { areFresh: boolean; isLast: boolean },
): Promise<void> {
  if (prepared.length === 0) return
  const { timing, queues, cluster } = batch.context
  await writeNeeds(batch, prepared)
  const sessions = [...new Set(prepared.flatMap(({ session }) => session ?? []))]
  const tasks = [...new Set(prepared.map(({ task }) => task))]
  const inserting = batch.rows<{ key: number; id: string; fence: number | null }>('insert-runs', INSERT_RUNS, [
    prepared.map(({ request }) => request.runId),
    prepared.map(({ task }) => task.key),
    prepared.map(({ request }) => request.drivesTask),
    jsonArray(prepared.map(({ specJson }) => specJson)),
    prepared.map(({ digest }) => digest),
    prepared.map(({ needsHash }) => needsHash),
    prepared.map(({ task }) => task.priority),
    prepared.map(({ session }) => session?.key ?? null),
    prepared.map(({ session, spec }) =>
      session === undefined
        ? Math.min(timing.placementCheckMs, spec.queue_timeout_ms ?? DEFAULT_QUEUE_TIMEOUT_MS)
        : spec.timeout_ms + timing.runCheckMarginMs,
    ),
    sessions.map((session) => session.key),
    sessions.map((session) => session.epoch),
    tasks.map((task) => task.key),
    tasks.map((task) => (areFresh ? null : task.version)),
    prepared.map(({ task }) => task.domain_key),
    jsonArray(prepared.map(({ request }) => JSON.stringify(request.cause))),
    prepared.map(({ sent }) => sent?.assigned.fence ?? null),
  ])
  if (isLast) batch.commit()
  const rows = await inserting
  const inserted = new Map(rows.map((row) => [row.id, row]))
  const kept = contentsOf(prepared, inserted)
  if (kept.length > 0) {
    await batch.rows('keep-contents', KEEP_CONTENTS, [
      kept.map(({ runKey }) => runKey),
      kept.map(({ contentKey }) => contentKey),
    ])
  }
  await writeGroups(
    batch,
    prepared.flatMap(({ request, part }) => (part === undefined ? [] : [{ runId: request.runId, part }])),
  )
  for (const { index, request, task, spec, digest, needsHash, session, sent, part } of prepared) {
    const row = inserted.get(request.runId)
    if (row === undefined) {
      batch.context.tasks.invalidate(task.id)
      if (session !== undefined && sent === undefined) batch.release(session, needsHash)
      if (index >= 0) outcomes[index] = areFresh ? new ServiceError('not_found', 'no such task') : STALE_TASK
      continue
    }
    if (index >= 0) outcomes[index] = { runId: request.runId, runKey: row.key, taskKey: task.key }
    if (index >= 0 && request.recordedFor !== undefined) recordStart(batch, request.recordedFor, request, task)
    if (request.drivesTask) {
      batch.changeTask(task.key, { runKey: row.key, state: TASK_STATE.scheduled, durationMs: null })
    }
    if (part?.kind === 'group') continue
    if (session === undefined || row.fence === null) {
      queues.add(needsHash, 1)
      if (sent !== undefined) {
        sent.leaveWorker()
        cluster.remove(sent.session)
      } else if (session !== undefined) batch.unplace(session, needsHash)
      continue
    }
    if (sent !== undefined) continue
    const run: AssignedRun = {
      key: row.key,
      id: row.id,
      taskKey: task.key,
      drivesTask: request.drivesTask,
      parentId: part?.parentId ?? null,
      attempt: 1,
      fence: row.fence,
      digest,
      needs: needsHash,
      spec,
      state: TASK_STATE.scheduled,
    }
    batch.afterCommit(() => {
      cluster.assign(session, run)
      if (request.sinceMs !== undefined)
        RUN_METRICS.dispatch.observe({ path: 'direct' }, (monotonicMs() - request.sinceMs) / 1000)
    })
  }
}

function recordStart(batch: RunBatch, actor: Actor, { runId }: StartRequest, task: StartTask): void {
  const { key, id, name, domain_key: domainKey } = task
  const change = { type: 'task', change: 'start', attributes: { run_id: runId } } as const
  batch.record(actor, { key, id, name, domainKey }, change)
}

async function writeNeeds(batch: RunBatch, prepared: readonly Prepared[]): Promise<void> {
  const { cluster } = batch.context
  const fresh = new Map<string, RunNeeds>()
  for (const { needs, needsHash } of prepared) if (!cluster.areNeedsStored(needsHash)) fresh.set(needsHash, needs)
  if (fresh.size === 0) return
  await batch.rows('store-needs', STORE_NEEDS, [
    [...fresh.keys()],
    [...fresh.values()].map((needs) => JSON.stringify(needs)),
  ])
  batch.afterCommit(() => {
    for (const hash of fresh.keys()) cluster.markNeedsStored(hash)
  })
}
