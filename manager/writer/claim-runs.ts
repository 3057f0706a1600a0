/**
 * Claims: queued runs are assigned to workers of this manager with free slots. Domains share them fairly (`FairShares`); within a
 * queue, runs are in the order of priority and age. Several managers claim from one queue; a row that another one has
 * locked is skipped.
 */
import { TASK_STATE } from '#proto/index.ts'
import type { WorkerSession } from '../placement/worker-session.ts'
import { RUN_METRICS } from './metrics.ts'
import type { RunBatch } from './batch.ts'
import type { PlannedClaim, WaitingQueue } from './fair-shares.ts'
import { MAX_CLAIMED_PER_BATCH } from '../model/limits.ts'
import { RUN_COLUMNS, fromRunRow, type RunRow } from '../store/run-rows.ts'

const FIND_WAITING = `
  SELECT r.key, r.task_key, r.module_digest, r.spec FROM runs r
  WHERE r.queue_seq IS NOT NULL AND r.needs = $1
  ORDER BY r.priority DESC, r.queue_seq
  LIMIT $2
  FOR UPDATE SKIP LOCKED`

// Runs are assigned only to workers with this session; see INSERT_RUNS.
const ASSIGN = `
  WITH held AS MATERIALIZED (
    SELECT w.key FROM workers w
    JOIN (SELECT DISTINCT * FROM unnest($2::bigint[], $4::bigint[])) AS s (key, epoch) ON w.key = s.key AND w.session_epoch = s.epoch
    ORDER BY w.key FOR SHARE OF w)
  UPDATE runs r SET worker_key = c.worker_key, fence = nextval('fence'), queue_seq = NULL, assigned_at = now(),
    next_check_at = now() + make_interval(secs => c.check_ms / 1000)
  FROM unnest($1::bigint[], $2::bigint[], $3::float8[]) AS c (key, worker_key, check_ms) JOIN held ON held.key = c.worker_key
  WHERE r.key = c.key AND r.state = ${TASK_STATE.scheduled}
  RETURNING ${RUN_COLUMNS}, extract(epoch FROM now() - r.created_at)::float8 AS waited_seconds`

type Waiting = Pick<RunRow, 'key' | 'task_key' | 'module_digest' | 'spec'>

const placeable = (row: Waiting) => ({ taskKey: row.task_key, digest: row.module_digest, spec: row.spec })

/**
 * The queues in the order of the fair shares of their domains. A queue without a worker that fits is passed over: it waits for a worker, not
 * for a slot.
 */
function planClaims(batch: RunBatch, without: ReadonlySet<string>): PlannedClaim[] {
  const { queues, cluster, shares } = batch.context
  const rooms = new Map<WorkerSession, number>()
  const waiting: WaitingQueue[] = []
  for (const needs of queues.needs) {
    const share = cluster.domainOf(needs)
    if (share === undefined || without.has(needs) || cluster.candidates(needs).length === 0) continue
    let room = 0
    for (const session of cluster.candidates(needs)) {
      const capacity = cluster.roomOn(session, needs)
      room += capacity
      rooms.set(session, Math.max(rooms.get(session) ?? 0, capacity))
    }
    waiting.push({ needs, share, waiting: queues.waiting(needs), room })
  }
  let total = 0
  for (const room of rooms.values()) total += room
  return total === 0 ? [] : shares.plan(waiting, Math.min(total, MAX_CLAIMED_PER_BATCH), (share) => batch.roomOf(share))
}

/** The waiting runs of the planned claims, per queue. */
async function findWaiting(batch: RunBatch, planned: readonly PlannedClaim[]): Promise<Map<string, Waiting[]>> {
  const { queues } = batch.context
  const wanted = new Map<string, number>()
  for (const { needs, reserves } of planned) if (!reserves) wanted.set(needs, (wanted.get(needs) ?? 0) + 1)
  const found = await Promise.all(
    [...wanted].map(async ([needs, count]) => {
      const rows = await batch.rows<Waiting>('find-waiting', FIND_WAITING, [needs, count])
      return { needs, rows, isShort: rows.length < count }
    }),
  )
  for (const { needs, rows, isShort } of found) {
    if (!isShort) continue
    queues.empty(needs)
    queues.add(needs, rows.length)
  }
  return new Map(found.map(({ needs, rows }) => [needs, rows]))
}

/** Queues of a domain that wait for its share one by one, before all of its queues do. */
const MAX_SEPARATE_QUEUES = 4

/** A queue whose domain has used up its share of slots has no turn: the turns are planned again without it. */
export async function claimRuns(batch: RunBatch): Promise<void> {
  const { queues, cluster } = batch.context
  const limited = new Set<string>()
  for (let round = 1; ; round++) {
    const needs = await claimOnce(batch, limited)
    if (needs.length === 0) return
    const domains = new Set(needs.map((hash) => cluster.domainOf(hash)))
    const all = round < MAX_SEPARATE_QUEUES ? needs : queues.needs.filter((hash) => domains.has(cluster.domainOf(hash)))
    for (const hash of all) limited.add(hash)
  }
}

/** Returns the queues whose next run waits for the share of its domain. */
async function claimOnce(batch: RunBatch, without: ReadonlySet<string>): Promise<string[]> {
  const limited: string[] = []
  const { queues, cluster, timing, shares } = batch.context
  const placed: { row: Waiting; session: WorkerSession; needs: string }[] = []
  const planned = planClaims(batch, without)
  if (planned.length === 0) return limited
  const found = await findWaiting(batch, planned)
  // Workers that the next run waits for: another domain's short runs would otherwise fill them again for ever, while a run
  // of unknown duration needs a free slot.
  const reserved = new Set<WorkerSession>()
  const stopped = new Set<string>()
  for (const { needs, share, reserves } of planned) {
    if (stopped.has(needs)) continue
    const row = reserves ? undefined : found.get(needs)?.shift()
    if (row === undefined && !reserves) continue
    const session = row === undefined ? undefined : batch.place(needs, placeable(row), reserved)
    if (row === undefined || session === undefined) {
      stopped.add(needs)
      // It waits for a run of its own domain: others get the slot that its share leaves them.
      if (row !== undefined && batch.isShareUsedUp(needs, placeable(row))) {
        limited.push(needs)
        continue
      }
      for (const candidate of cluster.candidates(needs)) reserved.add(candidate)
      continue
    }
    queues.add(needs, -1)
    batch.afterCommit(() => shares.served(share))
    placed.push({ row, session, needs })
  }
  if (placed.length === 0) return limited
  const sorted = placed.toSorted((left, right) => left.row.key - right.row.key)
  const assigned = await batch.rows<RunRow & { waited_seconds: number }>('assign-runs', ASSIGN, [
    sorted.map(({ row }) => row.key),
    sorted.map(({ session }) => session.key),
    sorted.map(({ row }) => row.spec.timeout_ms + timing.runCheckMarginMs),
    sorted.map(({ session }) => session.epoch),
  ])
  const taken = new Map(assigned.map((row) => [row.key, row]))
  // The runs are in the order of the plan, because a worker begins its runs in the order in which they arrive.
  for (const { row: waiting, session, needs } of placed) {
    const row = taken.get(waiting.key)
    if (row === undefined) {
      batch.unplace(session, needs)
      continue
    }
    const run = fromRunRow(row)
    const { fence } = run
    if (fence === null) continue
    batch.afterCommit(() => {
      cluster.assign(session, { ...run, fence })
      if (run.attempt === 1) RUN_METRICS.dispatch.observe({ path: 'queued' }, row.waited_seconds)
    })
  }
  return limited
}
