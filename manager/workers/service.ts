/** Workers as records, and why a run is where it is. */
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { TASK_STATE } from '#proto/index.ts'
import type { TaskAccess, TaskCaller } from '../access.ts'
import type { Cluster } from '../dispatch/cluster.ts'
import { memoryClassBytes, refusalOf, type RunNeeds, type WorkerView } from '../scheduler/index.ts'
import type { TasksService } from '../tasks/index.ts'
import { findNewestRun, findWorker, listWorkers, type WorkerRecord } from './repository.ts'
import { presentWorker, type Worker, type WorkerQuery } from './schema.ts'

export type WorkersDeps = { database: Database; access: TaskAccess; tasks: TasksService; cluster: Cluster }
export type WorkersService = ReturnType<typeof createWorkersService>

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
/** Workers that an explanation names. */
const MAX_EXPLAINED = 1_000

export function createWorkersService({ database, access, tasks, cluster }: WorkersDeps) {
  /** Workers of the platform are shown whole to its administrator, to members of domains that they exist. */
  async function present(caller: TaskCaller, worker: WorkerRecord): Promise<Worker> {
    const whole = await access.can(caller, 'worker_read', worker.domainId)
    return presentWorker(worker, [...(cluster.find(worker.key)?.cachedDigests ?? [])], whole)
  }

  function view(worker: WorkerRecord): WorkerView {
    const session = cluster.find(worker.key)
    return {
      id: worker.id,
      domainId: worker.domainId,
      labels: worker.labels,
      runtimes: worker.runtimes,
      memoryBytes: worker.memoryBytes,
      isAlive: worker.isAlive,
      isSuspect: session?.isSuspect ?? false,
      isDraining: worker.isDraining || (session?.isDraining ?? false),
      slots: worker.slots,
      backlog: worker.backlog,
      held: session?.held ?? worker.taskCount,
      lastPlaced: 0,
    }
  }

  return {
    async list(caller: TaskCaller, query: WorkerQuery): Promise<{ total: number; workers: Worker[] }> {
      const domains = await access.domains(caller, 'worker_read')
      const page = await listWorkers(database.db, {
        domains: domains === 'all' ? 'all' : domains.map(({ key }) => key),
        status: query.status,
        label: parseLabel(query.label),
        offset: query.offset,
        limit: query.limit,
      })
      return { total: page.total, workers: await Promise.all(page.workers.map((worker) => present(caller, worker))) }
    },

    async get(caller: TaskCaller, id: string): Promise<Worker> {
      const worker = UUID.test(id) ? await findWorker(database.db, id) : undefined
      if (
        worker === undefined ||
        (worker.domainId !== null && !(await access.can(caller, 'worker_read', worker.domainId)))
      ) {
        throw new ServiceError('not_found', 'no such worker')
      }
      return await present(caller, worker)
    },

    /** For each worker whether the newest run of the task is there, or why it is not. */
    async explain(caller: TaskCaller, taskId: string) {
      const task = await tasks.get(caller, taskId)
      const domains = await access.domains(caller, 'task_read')
      const [run, { workers }] = await Promise.all([
        findNewestRun(database.db, task.key),
        listWorkers(database.db, {
          domains: domains === 'all' ? 'all' : domains.map(({ key }) => key),
          offset: 0,
          limit: MAX_EXPLAINED,
        }),
      ])
      const needs: RunNeeds = (run?.needs as RunNeeds | null | undefined) ?? {
        domainId: task.domainId,
        workerId: task.workerId,
        labels: task.labels,
        runtime: task.module?.runtime ?? null,
        memoryBytes: memoryClassBytes(task.memoryLimitBytes),
      }
      const explained = workers.map((worker) => {
        const seen = view(worker)
        const isChosen = run?.workerId === worker.id
        const refusal = refusalOf(needs, seen)
        const room = seen.held < seen.slots ? 'it fits' : `all its ${seen.slots} slots are taken`
        return {
          workerId: worker.id,
          name: worker.name,
          chosen: isChosen,
          reason: isChosen ? 'the run was given to it' : (refusal ?? room),
          fits: refusal === undefined,
        }
      })
      return { runId: run?.runId ?? null, reason: reasonOf(run, explained), workers: explained }
    },
  }
}

type Explained = { chosen: boolean; fits: boolean }

function reasonOf(
  run: { state: number; workerId: string | null; isQueued: boolean } | undefined,
  workers: readonly Explained[],
): string {
  if (run === undefined) return 'the task has not been started'
  if (run.workerId !== null)
    return run.state === TASK_STATE.scheduled ? 'given to a worker, not running yet' : 'it was placed'
  if (run.state !== TASK_STATE.scheduled) return 'it ended before it was placed'
  if (!run.isQueued) return 'it waits before its next attempt'
  if (workers.length === 0) return 'no worker has joined'
  return workers.some(({ fits }) => fits) ? 'every worker that fits is busy' : 'no worker fits'
}

function parseLabel(text: string | undefined): { name: string; value: string } | undefined {
  if (text === undefined) return undefined
  const at = text.indexOf('=')
  if (at < 1)
    throw new ServiceError('malformed', 'label must be key=value', {
      details: [{ path: 'label', message: 'must be key=value' }],
    })
  return { name: text.slice(0, at), value: text.slice(at + 1) }
}
