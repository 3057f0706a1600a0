/** Removes a worker permanently: its runs are requeued, and its sessions become void. */
import { storeRemoved } from '#api/identity/index.ts'
import { noteWorkers } from '../store/notes.ts'
import type { RunBatch } from './batch.ts'
import type { ChangeOf } from './changes.ts'
import { evictRuns, readAssignedTo } from './reconcile-runs.ts'

/** delete: removes its row. revoke: keeps its row for inspection and invalidates its secret and certificates. */
export type WorkerRemoval = 'delete' | 'revoke'

export type RemovalOutcome = 'done' | 'busy' | 'gone'

const LOCK_WORKER = `
  SELECT w.key, w.id, w.name, w.domain_key AS "domainKey", w.manager_id IS NOT NULL AND w.lease_until > now() AS "isAlive"
    FROM workers w WHERE w.key = $1 FOR UPDATE`
const DELETE_WORKER = `
  WITH changed AS (DELETE FROM workers WHERE key = $1 RETURNING key, id, domain_key) ${storeRemoved('worker')}`
const REVOKE_WORKER = `
  WITH certificates AS (DELETE FROM worker_certificates WHERE worker_key = $1),
  changed AS (UPDATE workers SET revoked_at = now(), manager_id = NULL, session_epoch = session_epoch + 1 WHERE key = $1
    RETURNING key, 'revoked' AS state)
  ${noteWorkers('changed')}`

type LockedWorker = { key: number; id: string; name: string; domainKey: number | null; isAlive: boolean }

/** 'busy': a deletion of a worker that is alive and has runs. */
export async function removeWorker(
  batch: RunBatch,
  { workerKey, removal, recordedFor }: ChangeOf<'remove_worker'>,
): Promise<RemovalOutcome> {
  const [worker] = await batch.rows<LockedWorker>('lock-worker', LOCK_WORKER, [workerKey])
  if (worker === undefined) return 'gone'
  const held = await readAssignedTo(batch, workerKey)
  if (removal === 'delete' && worker.isAlive && held.length > 0) return 'busy'
  await evictRuns(batch, held, removal === 'delete' ? 'the worker was deleted' : 'the worker was revoked')
  await (removal === 'delete'
    ? batch.rows('delete-worker', DELETE_WORKER, [workerKey])
    : batch.rows('revoke-worker', REVOKE_WORKER, [workerKey]))
  batch.record(recordedFor, worker, { type: 'worker', change: removal === 'delete' ? 'remove' : 'revoke' })
  batch.afterCommit(() => {
    const session = batch.context.cluster.find(workerKey)
    if (session === undefined) return
    session.runs.clear()
    session.goAway(`the worker was ${removal}d`)
    batch.context.cluster.remove(session)
  })
  return 'done'
}
