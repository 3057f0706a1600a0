/**
 * Recovers after a commit with unknown outcome: what was committed is read before anything is repeated. A committed assignment was not
 * sent, because sending follows the answer; so it is sent now, under its fence.
 */
import { TASK_STATE } from '#proto/index.ts'
import type { RunBatch } from './batch.ts'
import type { Change } from './changes.ts'
import { RUN_COLUMNS, fromRunRow, type RunRow } from '../store/run-rows.ts'
import { isAssigned } from '../model/run.ts'
import type { StartedRun } from '../model/start.ts'

const FIND_ASSIGNED = `
  SELECT ${RUN_COLUMNS}, r.worker_key FROM runs r
  WHERE r.worker_key = ANY($1::bigint[]) AND r.next_check_at IS NOT NULL AND r.state = ${TASK_STATE.scheduled}`

/** Adopts assignments to workers of this manager that are not in its memory. */
export async function adoptAssigned(batch: RunBatch): Promise<void> {
  const { cluster } = batch.context
  const keys = Array.from(cluster.sessions, (session) => session.key)
  if (keys.length === 0) return
  const rows = await batch.rows<RunRow & { worker_key: number }>('find-assigned', FIND_ASSIGNED, [keys])
  for (const row of rows) {
    const session = cluster.find(row.worker_key)
    const run = fromRunRow(row)
    if (session === undefined || session.runs.has(run.id) || !isAssigned(run)) continue
    batch.afterCommit(() => {
      session.assign(run)
      cluster.touch(session)
    })
  }
}

const FIND_STARTED = 'SELECT id, key, task_key FROM runs WHERE id = ANY($1::uuid[])'

/** Runs of the starts and ends among the changes that an earlier attempt at this batch did insert, by run id. */
export async function findStarted(batch: RunBatch, changes: readonly Change[]): Promise<Map<string, StartedRun>> {
  const runIds = changes.flatMap((change) => {
    if (change.kind === 'finished') return change.finished.map(({ run }) => run.id)
    return change.kind === 'start' ? [change.request.runId] : []
  })
  if (runIds.length === 0) return new Map()
  const rows = await batch.rows<{ id: string; key: number; task_key: number }>('find-started', FIND_STARTED, [runIds])
  return new Map(rows.map((row) => [row.id, { runId: row.id, runKey: row.key, taskKey: row.task_key }]))
}
