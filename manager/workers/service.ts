/** Workers as records, and why a run is where it is. */
import type { Database } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { TASK_STATE } from '#proto/index.ts'
import { isId, newToken } from '#core/ids.ts'
import { parseDurationMs } from '#core/time.ts'
import { visibleDomains, type TaskAccess, type TaskAction, type TaskCaller, type TaskDomain } from '../access.ts'
import type { Cluster } from '../dispatch/cluster.ts'
import { memoryClassBytes, refusalOf, type RunNeeds, type WorkerView } from '../scheduler/index.ts'
import type { TasksService } from '../tasks/index.ts'
import type { WorkerRemoval } from '../runs/remove-worker.ts'
import type { RunWriter } from '../runs/writer.ts'
import { findNewestRun, findWorker, insertToken, listWorkers, setDraining, type WorkerRecord } from './repository.ts'
import { presentWorker, type NewWorkerToken, type Worker, type WorkerQuery } from './schema.ts'
import { digestSecret } from './tokens.ts'

export type WorkersDeps = {
  database: Database
  access: TaskAccess
  tasks: TasksService
  cluster: Cluster
  writer: Pick<RunWriter, 'removeWorker' | 'claim'>
  newId: () => string
  /** SHA-256 of the certificate that workers will be shown; undefined: they dial without TLS. */
  fingerprint: string | undefined
}
export type WorkersService = ReturnType<typeof createWorkersService>

/** A join token lives no longer. */
const MAX_TOKEN_MS = 3_600_000
/** Workers that an explanation names. */
const MAX_EXPLAINED = 1_000

export function createWorkersService(deps: WorkersDeps) {
  const { database, access, tasks, cluster, writer, newId } = deps

  /** Workers of the platform are shown whole to its administrator, to others what they need to see whether there is room. */
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
      isPlatformOnly: worker.isPlatformOnly,
      memoryBytes: worker.memoryBytes,
      isAlive: worker.isAlive,
      isSuspect: session?.isSuspect ?? false,
      isDraining: worker.isDraining || (session?.isDraining ?? false),
      slots: worker.slots,
      backlog: worker.backlog,
      ...(session === undefined ? {} : { crowdedDomains: session.crowdedDomains }),
      held: session?.held ?? worker.taskCount,
      lastPlaced: 0,
    }
  }

  /** Throws `not_found` for what the caller may not see, `forbidden` for what he may see but not drive. */
  async function require(caller: TaskCaller, id: string, action: TaskAction): Promise<WorkerRecord> {
    const worker = isId(id) ? await findWorker(database.db, id) : undefined
    if (
      worker === undefined ||
      (worker.domainId !== null && !(await access.can(caller, 'worker_read', worker.domainId)))
    ) {
      throw new ServiceError('not_found', 'no such worker')
    }
    if (action === 'worker_manage' && !(await access.can(caller, action, worker.domainId))) {
      if (caller === undefined) throw new ServiceError('unauthenticated', 'driving a worker needs a token')
      const where =
        worker.domainId === null ? 'the platform: only its administrator drives it' : 'the domain of the worker'
      throw new ServiceError('forbidden', `failed to perform authorization: needs worker_manage in ${where}`)
    }
    return worker
  }

  /** The domain named; else the platform for its administrator, the only domain for anybody else. */
  async function tokenDomain(caller: TaskCaller, domainId: string | null | undefined): Promise<TaskDomain | null> {
    const isNamed = typeof domainId === 'string' && domainId !== ''
    if (caller === undefined) {
      if (isNamed || !(await access.can(caller, 'worker_manage', null)))
        throw new ServiceError('unauthenticated', 'making a join token of workers needs a token of a user')
      return null
    }
    if (isNamed) return await access.require(caller, 'worker_manage', domainId)
    const domains = await access.domains(caller, 'worker_manage')
    if (typeof domains === 'string') return null
    const [only, ...others] = domains
    if (only === undefined)
      throw new ServiceError('forbidden', 'failed to perform authorization: needs worker_manage in a domain')
    if (others.length > 0)
      throw new ServiceError('malformed', 'domain_id is required: you may manage workers of several domains', {
        details: [{ path: '/domain_id', message: 'is required' }],
      })
    return only
  }

  async function setDrain(caller: TaskCaller, id: string, isDraining: boolean): Promise<Worker> {
    const worker = await require(caller, id, 'worker_manage')
    if (!(await setDraining(database.db, worker.key, isDraining))) throw new ServiceError('not_found', 'no such worker')
    const session = cluster.find(worker.key)
    session?.askDrain(isDraining)
    cluster.changed()
    if (!isDraining) await writer.claim()
    return await present(caller, await require(caller, id, 'worker_read'))
  }

  async function takeAway(caller: TaskCaller, id: string, removal: WorkerRemoval): Promise<void> {
    const worker = await require(caller, id, 'worker_manage')
    const outcome = await writer.removeWorker(worker.key, removal)
    if (outcome === 'gone') throw new ServiceError('not_found', 'no such worker')
    if (outcome === 'busy')
      throw new ServiceError('invalid_state', 'the worker is alive and runs tasks: drain it before it is deleted')
  }

  return {
    /** Gives it nothing new; what runs there ends. */
    drain: (caller: TaskCaller, id: string) => setDrain(caller, id, true),
    resume: (caller: TaskCaller, id: string) => setDrain(caller, id, false),
    /** Throws `invalid_state` while it is alive with running tasks. */
    remove: (caller: TaskCaller, id: string) => takeAway(caller, id, 'delete'),
    /** Secret and certificates count no more; its runs go to others. */
    revoke: (caller: TaskCaller, id: string) => takeAway(caller, id, 'revoke'),

    /** A join token for workers of a domain, or of the platform. Shown once. */
    async createToken(caller: TaskCaller, body: NewWorkerToken) {
      const domain = await tokenDomain(caller, body.domain_id)
      const validForMs = body.expires_in === undefined ? MAX_TOKEN_MS : parseDurationMs(body.expires_in, '/expires_in')
      if (validForMs < 1_000 || validForMs > MAX_TOKEN_MS) throw refusedField('/expires_in', 'must be 1s to 1h')
      const id = newId()
      const secret = newToken()
      const uses = body.uses ?? 1
      const createdBy = caller?.id ?? null
      const expiresAt = await insertToken(database.db, {
        id,
        hash: digestSecret(secret),
        domain,
        uses,
        validForMs,
        createdBy,
      })
      const token = deps.fingerprint === undefined ? secret : `${deps.fingerprint}.${secret}`
      return { id, token, uses, domainId: domain?.id ?? null, expiresAt }
    },

    async list(caller: TaskCaller, query: WorkerQuery): Promise<{ total: number; workers: Worker[] }> {
      const domains = visibleDomains(await access.domains(caller, 'worker_read'))
      const page = await listWorkers(database.db, {
        domains,
        status: query.status,
        label: parseLabel(query.label),
        offset: query.offset,
        limit: query.limit,
      })
      return { total: page.total, workers: await Promise.all(page.workers.map((worker) => present(caller, worker))) }
    },

    async get(caller: TaskCaller, id: string): Promise<Worker> {
      return await present(caller, await require(caller, id, 'worker_read'))
    },

    /** For each worker whether the newest run of the task is there, or why it is not. */
    async explain(caller: TaskCaller, taskId: string) {
      const task = await tasks.get(caller, taskId)
      const domains = visibleDomains(await access.domains(caller, 'task_read'))
      const [run, { workers }] = await Promise.all([
        findNewestRun(database.db, task.key),
        listWorkers(database.db, {
          domains,
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
      const chosen = run === undefined ? undefined : workers.find(({ id }) => id === run.workerId)
      const position = chosen && run && cluster.find(chosen.key)?.preparing.get(run.runId)
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
      return { runId: run?.runId ?? null, position, reason: reasonOf(run, explained, position), workers: explained }
    },
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
    return position === 0 ? 'its component is being transpiled' : 'its component waits to be transpiled'
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
