/**
 * Claims: runs that wait are given to workers of this manager that have room, per needs, by priority and age. Several
 * managers claim from one queue; a row that another one has locked is skipped.
 */
import { TASK_STATE } from '#proto/index.ts'
import type { WorkerSession } from '../placement/worker-session.ts'
import type { RunBatch } from './batch.ts'
import { MAX_CLAIMED_PER_BATCH } from '../model/limits.ts'
import { RUN_COLUMNS, fromRunRow, type RunRow } from '../store/run-rows.ts'

const FIND_WAITING = `
  SELECT r.key, r.task_key, r.module_digest, r.spec FROM runs r
  WHERE r.queue_seq IS NOT NULL AND r.needs = $1
  ORDER BY r.priority DESC, r.queue_seq
  LIMIT $2
  FOR UPDATE SKIP LOCKED`

// Only to workers whose session is still this one; see INSERT_RUNS.
const ASSIGN = `
  WITH held AS MATERIALIZED (
    SELECT w.key FROM workers w
    JOIN (SELECT DISTINCT * FROM unnest($2::bigint[], $4::bigint[])) AS s (key, epoch) ON w.key = s.key AND w.session_epoch = s.epoch
    ORDER BY w.key FOR SHARE OF w)
  UPDATE runs r SET worker_key = c.worker_key, fence = nextval('fence'), queue_seq = NULL, assigned_at = now(),
    next_check_at = now() + make_interval(secs => c.check_ms / 1000)
  FROM unnest($1::bigint[], $2::bigint[], $3::float8[]) AS c (key, worker_key, check_ms) JOIN held ON held.key = c.worker_key
  WHERE r.key = c.key AND r.state = ${TASK_STATE.scheduled}
  RETURNING ${RUN_COLUMNS}`

type Waiting = Pick<RunRow, 'key' | 'task_key' | 'module_digest' | 'spec'>

export async function claimRuns(batch: RunBatch): Promise<void> {
  const { queues, cluster, timing } = batch.context
  const placed: { row: Waiting; session: WorkerSession }[] = []
  for (const needsHash of queues.needs) {
    const wanted = Math.min(cluster.roomFor(needsHash), MAX_CLAIMED_PER_BATCH - placed.length)
    if (wanted <= 0) continue
    const rows = await batch.rows<Waiting>('find-waiting', FIND_WAITING, [needsHash, wanted])
    if (rows.length < wanted) queues.empty(needsHash)
    for (const row of rows) {
      const session = batch.place(needsHash, row.task_key, row.module_digest)
      // No room for this one: a long run behind which shorter ones may still fit.
      if (session === undefined) queues.add(needsHash, rows.length < wanted ? 1 : 0)
      else {
        if (rows.length === wanted) queues.add(needsHash, -1)
        placed.push({ row, session })
      }
    }
  }
  if (placed.length === 0) return
  const sorted = placed.toSorted((left, right) => left.row.key - right.row.key)
  const assigned = await batch.rows<RunRow>('assign-runs', ASSIGN, [
    sorted.map(({ row }) => row.key),
    sorted.map(({ session }) => session.key),
    sorted.map(({ row }) => row.spec.timeout_ms + timing.runCheckMarginMs),
    sorted.map(({ session }) => session.epoch),
  ])
  const sessions = new Map(sorted.map(({ row, session }) => [row.key, session]))
  const taken = new Set(assigned.map((row) => row.key))
  for (const { row, session } of sorted) if (!taken.has(row.key)) batch.unplace(session)
  for (const row of assigned) {
    const session = sessions.get(row.key)
    const run = fromRunRow(row)
    const { fence } = run
    if (session === undefined || fence === null) continue
    batch.afterCommit(() => cluster.assign(session, { ...run, fence }))
  }
}
