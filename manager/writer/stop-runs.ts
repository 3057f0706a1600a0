/** Stops: queued runs end at once; assigned runs are cancelled and, without a confirmation in time, forced. */
import type { Actor } from '#api/identity/index.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { RunBatch } from './batch.ts'
import { writeEnds } from './end-runs.ts'
import { RUN_COLUMNS, fromRunRow, type RunRow } from '../store/run-rows.ts'
import { STOPPED_BEFORE_RUNNING, isAssigned, type RunHandle } from '../model/run.ts'

type StoppableRow = RunRow & { worker_key: number | null }
/** `is_queued` false without a worker: it waits for its retry, or for its parts. */
type StoppedRow = StoppableRow & { is_queued: boolean }

// The sum makes PostgreSQL use the index of active runs instead of the index of all runs of the task.
const FIND = `
  SELECT ${RUN_COLUMNS}, r.worker_key, r.queue_seq IS NOT NULL AS is_queued FROM runs r
  WHERE r.task_key + 0 = $1 AND r.next_check_at IS NOT NULL ORDER BY r.key FOR UPDATE`
const FIND_ONE = `
  SELECT ${RUN_COLUMNS}, r.worker_key, r.queue_seq IS NOT NULL AS is_queued FROM runs r
  WHERE r.id = $2 AND r.task_key = $1 AND r.next_check_at IS NOT NULL FOR UPDATE`

// With the deadline in the row any manager can finish the stop if this one dies. Who asks again does not postpone it.
const ASK = `
  UPDATE runs r SET cancel_requested_at = coalesce(r.cancel_requested_at, now()),
    next_check_at = CASE WHEN r.cancel_requested_at IS NULL THEN n.at ELSE least(r.next_check_at, n.at) END
  FROM (SELECT now() + make_interval(secs => $2::float8 / 1000) AS at) n
  WHERE r.key = ANY($1::bigint[])`

const FIND_STOPPED_TASK = 'SELECT key, id, name, domain_key AS "domainKey" FROM tasks WHERE key = $1'

/** `recordedFor`: the user in the journal; undefined: a stop that belongs to another change. `runId`: one run; undefined: all of the task. */
export type TaskStop = { taskKey: number; recordedFor: Actor | undefined; runId?: string }

type StoppedTask = { key: number; id: string; name: string; domainKey: number | null }

/** Stops the active runs of the task, or one of them; returns the keys of those that a worker must confirm. */
export async function stopTask(batch: RunBatch, { taskKey, recordedFor, runId }: TaskStop): Promise<number[]> {
  const finding =
    recordedFor === undefined ? [] : batch.rows<StoppedTask>('find-stopped-task', FIND_STOPPED_TASK, [taskKey])
  const rows = await (runId === undefined
    ? batch.rows<StoppedRow>('find-stoppable', FIND, [taskKey])
    : batch.rows<StoppedRow>('find-stoppable-one', FIND_ONE, [taskKey, runId]))
  const [task] = await finding
  if (recordedFor !== undefined && task !== undefined && rows.length > 0)
    batch.record(recordedFor, task, { type: 'task', change: 'stop' })
  const waiting = rows.filter((row) => row.worker_key === null)
  await endStopped(batch, waiting.map(fromRunRow))
  for (const row of waiting) if (row.is_queued) batch.context.queues.add(row.needs, -1)
  const held = rows.filter((row) => row.worker_key !== null)
  if (held.length === 0) return []
  const keys = held.map((row) => row.key)
  await batch.rows('ask-stop', ASK, [keys, batch.context.timing.stopDeadlineMs])
  batch.afterCommit(() => {
    for (const row of held) cancelAt(batch, row.worker_key, fromRunRow(row))
  })
  return keys
}

function cancelAt(batch: RunBatch, workerKey: number | null, run: RunHandle): void {
  const session = workerKey === null ? undefined : batch.context.cluster.find(workerKey)
  if (session === undefined || !isAssigned(run)) return
  const held = session.runs.get(run.id)
  if (held !== undefined) held.isCancelSent = true
  session.cancel([run])
}

const FIND_CANCELLED = `
  SELECT ${RUN_COLUMNS}, r.worker_key FROM runs r
  WHERE r.worker_key = ANY($1::bigint[]) AND r.cancel_requested_at IS NOT NULL AND r.next_check_at IS NOT NULL`

/** Sends stops to workers of this manager that another manager received. */
export async function sendRequestedCancels(batch: RunBatch): Promise<void> {
  const { cluster } = batch.context
  const keys = Array.from(cluster.sessions, (session) => session.key)
  if (keys.length === 0) return
  const rows = await batch.rows<StoppableRow>('find-cancelled', FIND_CANCELLED, [keys])
  for (const row of rows) {
    const held = row.worker_key === null ? undefined : cluster.find(row.worker_key)?.runs.get(row.id)
    if (held !== undefined && held.isCancelSent !== true)
      batch.afterCommit(() => cancelAt(batch, row.worker_key, fromRunRow(row)))
  }
}

const FIND_BY_KEY = `
  SELECT ${RUN_COLUMNS}, r.worker_key FROM runs r
  WHERE r.key = ANY($1::bigint[]) AND r.next_check_at IS NOT NULL ORDER BY r.key FOR UPDATE`

/** Ends these runs as stopped without a confirmation; later reports are stale. */
export async function forceStop(batch: RunBatch, keys: readonly number[]): Promise<void> {
  const rows = await batch.rows<StoppableRow>('find-forced', FIND_BY_KEY, [keys])
  await endStopped(batch, rows.map(fromRunRow))
  batch.afterCommit(() => {
    for (const row of rows) {
      if (row.worker_key === null) continue
      cancelAt(batch, row.worker_key, fromRunRow(row))
      batch.context.cluster.find(row.worker_key)?.runs.delete(row.id)
    }
  })
}

async function endStopped(batch: RunBatch, runs: readonly RunHandle[]): Promise<void> {
  const ending = { ...STOPPED_BEFORE_RUNNING, state: TASK_STATE.stopped }
  await writeEnds(
    batch,
    runs.map((run) => ({ run, ending, workerId: null })),
  )
}
