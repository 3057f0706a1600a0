/**
 * Workers that could run a task, connected to any manager: read from the database if no worker that is connected here
 * fits.
 */
import { ServiceError } from '#core/errors/index.ts'
import type { RunNeeds } from '../model/needs.ts'
import { unfitReason } from '../placement/placement.ts'
import type { WorkerView } from '../placement/placement.ts'
import type { WorkerSession } from '../placement/worker-session.ts'
import type { RunBatch } from './batch.ts'

/** Limit of workers per statement. */
export const MAX_WORKERS = 1_000

export type WorkerRow = {
  key: number
  id: string
  domain_id: string | null
  labels: Record<string, string>
  runtimes: string[]
  platform_only: boolean
  memory_bytes: number
  slots: number
  backlog: number
  draining: boolean
  manager_id: string | null
}

export const WORKER_COLUMNS =
  'key, id, domain_id, labels, runtimes, platform_only, memory_bytes, slots, backlog, draining, manager_id'

/** No worker could run it; `explainUnfit` has the reasons. */
export class NoWorkerFits extends ServiceError {
  constructor() {
    super('invalid_state', 'no worker fits: see /placement')
  }
}

/** Whether the worker could run it, independent of its load. */
export function fits(needs: RunNeeds, row: WorkerRow, session: WorkerSession | undefined, isSuspect: boolean): boolean {
  const isDraining = row.draining || (session?.isDraining ?? false)
  return unfitReason(needs, { ...viewOf(row), isSuspect, isDraining }) === undefined
}

/** Returns the view of a worker without its load. */
function viewOf(row: WorkerRow): WorkerView {
  return {
    id: row.id,
    domainId: row.domain_id,
    labels: row.labels,
    runtimes: row.runtimes,
    isPlatformOnly: row.platform_only,
    memoryBytes: row.memory_bytes,
    isAlive: true,
    isSuspect: false,
    isDraining: row.draining,
    slots: row.slots,
    backlog: row.backlog,
    held: 0,
    lastPlaced: 0,
  }
}

const LEASED_WORKERS = `
  SELECT ${WORKER_COLUMNS} FROM workers
  WHERE lease_until > now() AND revoked_at IS NULL ORDER BY key LIMIT ${MAX_WORKERS}`

/** Results for the starts of one batch. */
export class FittingWorkers {
  readonly #batch: RunBatch
  #rows: Promise<WorkerRow[]> | undefined

  constructor(batch: RunBatch) {
    this.#batch = batch
  }

  /** Throws `NoWorkerFits`. A worker fits until its lease expires, also while it is disconnected. */
  async require(needs: RunNeeds): Promise<void> {
    const { cluster } = this.#batch.context
    const rows = await this.#leased()
    // With more workers than the limit the check is skipped: the run is queued.
    if (rows.length === MAX_WORKERS) return
    if (!rows.some((row) => fits(needs, row, cluster.find(row.key), false))) throw new NoWorkerFits()
  }

  /**
   * Why no worker could run it, as a sentence; undefined: one could, or may. A worker that drains or is disconnected is waited for until its
   * lease expires.
   */
  async unfit(needs: RunNeeds): Promise<string | undefined> {
    const rows = await this.#leased()
    if (rows.length === MAX_WORKERS) return undefined
    const reasons = rows.map((row) => unfitReason(needs, { ...viewOf(row), isDraining: false }))
    if (reasons.includes(undefined)) return undefined
    const [reason] = reasons
    if (reason === undefined) return 'no worker is connected'
    const others = rows.length === 1 ? '' : `, and ${rows.length - 1} other workers do not fit either`
    return `of worker ${rows[0]?.id}, ${reason}${others}`
  }

  #leased(): Promise<WorkerRow[]> {
    this.#rows ??= this.#batch.rows<WorkerRow>('leased-workers', LEASED_WORKERS, [])
    return this.#rows
  }
}
