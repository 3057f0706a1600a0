/** Explains the placement of a run: `GET /tasks/{id}/placement`. */
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { TASK_STATE } from '#proto/index.ts'
import { visibleDomainKeys, type TaskAccess, type TaskCaller } from '../access/access.ts'
import { memoryClassBytes, requiredRuntime, type RunNeeds } from '../model/needs.ts'
import type { Cluster } from '../placement/cluster.ts'
import { memoryRoom, unfitReason, type WorkerView } from '../placement/placement.ts'
import { findNewestRun, listWorkers, type WorkerRecord } from '../store/workers.ts'
import type { TaskRecord } from '../store/tasks.ts'
import { refusalOf } from '../writer/counted-quota.ts'
import type { CountedQuotas } from '../writer/counted-quota.ts'
import type { TasksService } from '../tasks/service.ts'

export type PlacementDeps = {
  database: Database
  access: TaskAccess
  tasks: TasksService
  cluster: Cluster
  counted: CountedQuotas
}

/** Workers in an explanation. */
const MAX_EXPLAINED = 1_000
const NO_WORKER = 'no worker has joined'

/** Explains for each worker whether it has the newest run of the task, or why not. */
export async function explainPlacement(
  { database, access, tasks, cluster, counted }: PlacementDeps,
  caller: TaskCaller,
  taskId: string,
) {
  const task = await tasks.get(caller, taskId)
  const domains = visibleDomainKeys(await access.domains(caller, 'task_read'))
  const [run, { workers }] = await Promise.all([
    findNewestRun(database.db, task.key),
    listWorkers(database.db, {
      domains,
      offset: 0,
      limit: MAX_EXPLAINED,
    }),
  ])
  const needs = (run?.needs as RunNeeds | null | undefined) ?? needsOf(task)
  const chosen = run === undefined ? undefined : workers.find(({ id }) => id === run.workerId)
  const position = chosen && run && cluster.find(chosen.key)?.preparing.get(run.runId)
  const explained = workers.map((worker) => {
    const seen = viewOf(worker, cluster)
    const isChosen = run?.workerId === worker.id
    const refusal = unfitReason(needs, seen)
    const room = roomOf(seen, needs)
    return {
      workerId: worker.id,
      name: worker.name,
      chosen: isChosen,
      reason: isChosen ? 'the run is assigned to it' : (refusal ?? room),
      fits: refusal === undefined,
    }
  })
  const refusal = refusalOf(counted, task.domain_id)
  const limit = task.domain_id === null ? undefined : access.quotas.ofDomainId(task.domain_id, 'concurrent_runs')
  const isLimited = limit !== undefined && cluster.heldBy(task.domain_id ?? '') >= limit
  const exceeded = refusal?.message ?? (isLimited ? `the quota of the domain is ${limit} concurrent runs` : undefined)
  const reason = (run?.isQueued === true ? exceeded : undefined) ?? reasonOf(run, explained, position)
  return { runId: run?.runId ?? null, position, reason, workers: explained }
}

function roomOf(worker: WorkerView, { memoryBytes }: RunNeeds): string {
  if (worker.held >= worker.slots) return `all of its ${worker.slots} slots are in use`
  if (memoryRoom(worker, memoryBytes) > 0) return 'it fits'
  return `its runs hold ${worker.heldBytes} of the ${worker.runMemoryBytes} bytes of memory that it has for them`
}

/** Workers in an error message. */
const MAX_SAID = 3

/** The reason why no worker fits the task, among the workers that the caller can see; connected ones first. */
export async function explainUnfit(
  { database, access, tasks, cluster }: Omit<PlacementDeps, 'counted'>,
  caller: TaskCaller,
  taskId: string,
): Promise<ServiceError> {
  const task = await tasks.get(caller, taskId)
  const domains = visibleDomainKeys(await access.domains(caller, 'task_read'))
  const { workers } = await listWorkers(database.db, { domains, offset: 0, limit: MAX_EXPLAINED })
  const needs = needsOf(task)
  const refusals = workers
    .toSorted((one, other) => Number(other.isAlive) - Number(one.isAlive))
    .flatMap((worker) => {
      const refusal = unfitReason(needs, viewOf(worker, cluster))
      return refusal === undefined ? [] : [{ worker, refusal }]
    })
  const said = refusals.slice(0, MAX_SAID).map(({ worker, refusal }) => `${worker.name}: ${refusal}`)
  const more = refusals.length > MAX_SAID ? `; and ${refusals.length - MAX_SAID} more, see /placement` : ''
  const why = refusals.length === 0 ? NO_WORKER : `${said.join('; ')}${more}`
  return new ServiceError('invalid_state', `no worker fits: ${why}`)
}

function needsOf(task: TaskRecord): RunNeeds {
  return {
    domainId: task.domain_id,
    workerId: task.worker_id,
    labels: task.labels,
    runtime: requiredRuntime(task.module ?? undefined, task.http),
    memoryBytes: memoryClassBytes(task.memory_limit_bytes),
  }
}

function viewOf(worker: WorkerRecord, cluster: Cluster): WorkerView {
  const session = cluster.find(worker.key)
  return {
    id: worker.id,
    domainId: worker.domainId,
    labels: worker.labels,
    runtimes: worker.runtimes,
    isPlatformOnly: worker.isPlatformOnly,
    memoryBytes: worker.memoryBytes,
    isAlive: worker.isAlive,
    isSuspect: session?.isSuspect ?? false,
    isDraining: worker.isDraining || (session?.isDraining ?? false),
    slots: worker.slots,
    backlog: worker.backlog,
    ...(session === undefined
      ? {}
      : {
          crowdedDomains: session.crowdedDomains,
          runMemoryBytes: session.runMemoryBytes,
          heldBytes: session.heldBytes,
        }),
    held: session?.held ?? worker.taskCount,
    lastPlaced: 0,
  }
}

type Explained = { chosen: boolean; fits: boolean }

function reasonOf(
  run: { state: number; workerId: string | null; isQueued: boolean } | undefined,
  workers: readonly Explained[],
  position: number | undefined,
): string {
  if (run === undefined) return 'the task has not been started'
  if (run.workerId !== null && run.state === TASK_STATE.scheduled && position !== undefined)
    return position === 0 ? 'its component is being transpiled' : 'its component is waiting for transpilation'
  if (run.workerId !== null)
    return run.state === TASK_STATE.scheduled ? 'assigned to a worker, not running yet' : 'it was placed'
  if (run.state !== TASK_STATE.scheduled) return 'it ended before it was placed'
  if (!run.isQueued) return 'waiting for the backoff before the next attempt'
  if (workers.length === 0) return NO_WORKER
  return workers.some(({ fits }) => fits) ? 'every worker that fits is busy' : 'no worker fits'
}
