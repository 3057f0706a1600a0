/**
 * Broadcasts: a run that is not assigned, with one run per worker below it. It begins with the first of them and ends
 * with the last.
 */
import { TASK_STATE } from '#proto/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { RunNeeds } from '../model/needs.ts'
import type { RunBatch } from './batch.ts'
import { markRunning, writeEnds } from './end-runs.ts'
import { MAX_WORKERS, WORKER_COLUMNS, fits, type WorkerRow } from './fitting-workers.ts'
import { RUN_COLUMNS, fromRunRow, type RunRow } from '../store/run-rows.ts'
import { STOPPED_BEFORE_RUNNING, type FailureReason, type AssignedRun } from '../model/run.ts'

/** Two managers that end the last two parts concurrently do not see each other's end: this check finds it. */
export const GROUP_CHECK_MS = 2_000

export type GroupPart = { kind: 'group' } | { kind: 'member'; parentId: string }

const ALIVE_WORKERS = `
  SELECT ${WORKER_COLUMNS} FROM workers
  WHERE manager_id IS NOT NULL AND lease_until > now() ORDER BY key LIMIT ${MAX_WORKERS}`

/** Ids of the workers that could run it now, at any manager. Throws `unavailable` if there are none. */
export async function findBroadcastWorkers(batch: RunBatch, needs: RunNeeds): Promise<string[]> {
  const rows = await batch.rows<WorkerRow>('alive-workers', ALIVE_WORKERS, [])
  const fitting = rows.filter((row) => {
    const session = batch.context.cluster.find(row.key)
    // The worker has no session here any more; its lease expires soon.
    if (session === undefined && row.manager_id === batch.context.managerId) return false
    return fits(needs, row, session, session?.isSuspect ?? false)
  })
  if (fitting.length === 0) {
    throw new ServiceError('unavailable', 'no worker fits the broadcast now: see /placement', { retryAfterSeconds: 5 })
  }
  return fitting.map((row) => row.id)
}

const WRITE_GROUPS = `
  UPDATE runs r SET parent_id = c.parent_id, is_broadcast = c.parent_id IS NULL,
    queue_seq = CASE WHEN c.parent_id IS NULL THEN NULL ELSE r.queue_seq END,
    next_check_at = CASE WHEN c.parent_id IS NULL THEN now() + make_interval(secs => ${GROUP_CHECK_MS / 1000}) ELSE r.next_check_at END
  FROM unnest($1::uuid[], $2::uuid[]) AS c (id, parent_id)
  WHERE r.id = c.id`

/** Stores for newly inserted runs which broadcast they are or belong to. */
export async function writeGroups(batch: RunBatch, runs: readonly { runId: string; part: GroupPart }[]): Promise<void> {
  if (runs.length === 0) return
  await batch.rows('write-groups', WRITE_GROUPS, [
    runs.map(({ runId }) => runId),
    runs.map(({ part }) => (part.kind === 'member' ? part.parentId : null)),
  ])
}

type GroupRow = RunRow & {
  open: number
  begun: number
  failed: number
  stopped: number
  reason: FailureReason | null
  duration_ms: number | null
}

const READ_GROUPS = `
  SELECT ${RUN_COLUMNS}, m.* FROM runs r
  CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE c.next_check_at IS NOT NULL) AS open,
      count(*) FILTER (WHERE c.running_at IS NOT NULL) AS begun,
      count(*) FILTER (WHERE c.state = ${TASK_STATE.failed}) AS failed,
      count(*) FILTER (WHERE c.state = ${TASK_STATE.stopped}) AS stopped,
      min(c.reason) AS reason,
      extract(epoch FROM now() - min(c.running_at))::float8 * 1000 AS duration_ms
    FROM runs c WHERE c.parent_id = r.id) m
  WHERE r.id = ANY($1::uuid[]) AND r.next_check_at IS NOT NULL
  ORDER BY r.key FOR UPDATE OF r`

/** Begins and ends broadcasts after their parts. */
export async function settleGroups(batch: RunBatch, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return
  const rows = await batch.rows<GroupRow>('read-groups', READ_GROUPS, [ids])
  const begun = rows.filter((row) => row.open > 0 && row.begun > 0 && row.state === TASK_STATE.scheduled)
  await markRunning(batch, begun.map(fromRunRow) as AssignedRun[])
  const ended = rows.filter((row) => row.open === 0)
  await writeEnds(
    batch,
    ended.map((row) => ({ run: fromRunRow(row), ending: endingOf(row), workerId: null })),
  )
}

function endingOf(row: GroupRow) {
  const { durationMs: _none, ...ending } = STOPPED_BEFORE_RUNNING
  const durationMs = row.duration_ms
  if (row.failed > 0) {
    const error = `${row.failed} of its runs failed`
    return { ...ending, durationMs, state: TASK_STATE.failed, reason: row.reason ?? ('guest_error' as const), error }
  }
  return { ...ending, durationMs, state: row.stopped > 0 ? TASK_STATE.stopped : TASK_STATE.completed }
}
