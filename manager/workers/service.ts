/** Worker records: listing, draining, removal, and join tokens. */
import type { Database } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import { isId, newToken } from '#core/ids.ts'
import type { PageRange } from '#core/page.ts'
import { parseDurationMs } from '#core/time.ts'
import {
  visibleDomainKeys,
  type TaskAccess,
  type TaskAction,
  type TaskCaller,
  type TaskDomain,
} from '../access/access.ts'
import { actorOf } from '../access/callers.ts'
import type { Cluster } from '../placement/cluster.ts'
import type { WorkerMeasured } from '../placement/metrics.ts'
import type { WorkerRemoval } from '../writer/remove-worker.ts'
import type { RunWriter } from '../writer/writer.ts'
import { findWorker, insertToken, listWorkers, setDraining, type WorkerRecord } from '../store/workers.ts'
import { presentWorker, type NewWorkerToken, type Worker, type WorkerQuery } from './schema.ts'
import { domainOf } from '../access/domain-of.ts'
import { digestSecret } from '../model/worker-secret.ts'

export type WorkersDeps = {
  database: Database
  access: TaskAccess
  cluster: Cluster
  writer: Pick<RunWriter, 'removeWorker' | 'claim'>
  newId: () => string
  /** SHA-256 of the certificate of the gRPC listener; undefined: no TLS. */
  fingerprint: string | undefined
}
/** Longest validity of a join token. */
const MAX_TOKEN_MS = 3_600_000

export class WorkersService {
  readonly #deps: WorkersDeps

  constructor(deps: WorkersDeps) {
    this.#deps = deps
  }

  /** The worker gets no new runs and finishes those that it has. */
  async drain(caller: TaskCaller, id: string): Promise<Worker> {
    return await this.#setDrain(caller, id, true)
  }

  async resume(caller: TaskCaller, id: string): Promise<Worker> {
    return await this.#setDrain(caller, id, false)
  }

  /** Throws `invalid_state` while it is alive with running tasks. */
  async remove(caller: TaskCaller, id: string): Promise<void> {
    await this.#removeWorker(caller, id, 'delete')
  }

  /** Its secret and certificates become invalid at once; its runs are requeued. */
  async revoke(caller: TaskCaller, id: string): Promise<void> {
    await this.#removeWorker(caller, id, 'revoke')
  }

  /** A join token for workers of a domain, or of the platform. Shown once. */
  async createToken(caller: TaskCaller, body: NewWorkerToken) {
    const { database, fingerprint, newId } = this.#deps
    const domain = await this.#tokenDomain(caller, body.domain_id)
    const validForMs = body.expires_in === undefined ? MAX_TOKEN_MS : parseDurationMs(body.expires_in, '/expires_in')
    if (validForMs < 1_000 || validForMs > MAX_TOKEN_MS) throw refusedField('/expires_in', 'must be between 1s and 1h')
    const id = newId()
    const secret = newToken()
    const uses = body.uses ?? 1
    const hash = digestSecret(secret)
    const made = { id, hash, domain, uses, validForMs, caller }
    const expiresAt = await database.transaction((tx) => insertToken(tx, made))
    const token = fingerprint === undefined ? secret : `${fingerprint}.${secret}`
    return { id, token, uses, domainId: domain?.id ?? null, expiresAt }
  }

  /** `alive` selects by the lease alone, also workers that are being drained. */
  async list(
    caller: TaskCaller,
    query: Omit<WorkerQuery, keyof PageRange> & PageRange & { alive?: boolean | undefined },
  ): Promise<{ total: number; workers: Worker[]; next: PageEnd }> {
    const { database, access } = this.#deps
    const { status, alive, offset, limit, cursor } = query
    const domains = visibleDomainKeys(await access.domains(caller, 'worker_read'))
    const page = await listWorkers(database.db, {
      domains,
      status,
      alive,
      label: parseLabel(query.label),
      offset,
      limit,
      cursor,
    })
    return {
      total: page.total,
      next: page.next,
      workers: await Promise.all(page.workers.map((worker) => this.#present(caller, worker))),
    }
  }

  /** The worker, and its measurements of the last heartbeat if this manager holds its session. */
  async measured(caller: TaskCaller, id: string): Promise<{ worker: Worker; measured: WorkerMeasured | undefined }> {
    const record = await this.#require(caller, id, 'worker_read')
    const worker = await this.#present(caller, record)
    return { worker, measured: this.#deps.cluster.find(record.key)?.measured }
  }

  async get(caller: TaskCaller, id: string): Promise<Worker> {
    return await this.#present(caller, await this.#require(caller, id, 'worker_read'))
  }

  /** The platform administrator sees platform workers completely; other callers see their load. */
  async #present(caller: TaskCaller, worker: WorkerRecord): Promise<Worker> {
    const { access, cluster } = this.#deps
    const isWhole = await access.can(caller, 'worker_read', worker.domainId)
    return presentWorker(worker, [...(cluster.find(worker.key)?.cachedDigests ?? [])], isWhole)
  }

  /** Throws `not_found` if the caller cannot see the worker, `forbidden` if they can see it but not manage it. */
  async #require(caller: TaskCaller, id: string, action: TaskAction): Promise<WorkerRecord> {
    const { access, database } = this.#deps
    const worker = isId(id) ? await findWorker(database.db, id) : undefined
    if (
      worker === undefined ||
      (worker.domainId !== null && !(await access.can(caller, 'worker_read', worker.domainId)))
    ) {
      throw new ServiceError('not_found', 'no such worker')
    }
    if (action === 'worker_manage' && !(await access.can(caller, action, worker.domainId))) {
      if (caller === undefined) throw new ServiceError('unauthenticated', 'managing a worker requires a token')
      const why =
        worker.domainId === null
          ? 'the worker belongs to the platform, and only the platform administrator can manage it; workers of a domain join with a token of the domain (POST /workers/tokens)'
          : 'needs worker_manage in the domain of the worker'
      throw new ServiceError('forbidden', `failed to perform authorization: ${why}`)
    }
    return worker
  }

  /** The given domain; else the platform for its administrator, the only domain for other callers. */
  async #tokenDomain(caller: TaskCaller, domainId: string | null | undefined): Promise<TaskDomain | null> {
    const { access } = this.#deps
    if (caller !== undefined) {
      const several = 'you can manage workers of several domains'
      return await domainOf(access, caller, 'worker_manage', { domainId, several })
    }
    const isNamed = typeof domainId === 'string' && domainId !== ''
    if (isNamed || !(await access.can(caller, 'worker_manage', null)))
      throw new ServiceError('unauthenticated', 'creating a join token requires a token of a user')
    return null
  }

  async #setDrain(caller: TaskCaller, id: string, isDraining: boolean): Promise<Worker> {
    const { cluster, database, writer } = this.#deps
    const worker = await this.#require(caller, id, 'worker_manage')
    if (!(await setDraining(database.db, worker.key, isDraining, caller)))
      throw new ServiceError('not_found', 'no such worker')
    cluster.find(worker.key)?.sendDrain(isDraining)
    cluster.changed()
    if (!isDraining) await writer.claim()
    return await this.#present(caller, await this.#require(caller, id, 'worker_read'))
  }

  async #removeWorker(caller: TaskCaller, id: string, removal: WorkerRemoval): Promise<void> {
    const worker = await this.#require(caller, id, 'worker_manage')
    const outcome = await this.#deps.writer.removeWorker(worker.key, removal, actorOf(caller))
    if (outcome === 'gone') throw new ServiceError('not_found', 'no such worker')
    if (outcome === 'busy')
      throw new ServiceError('invalid_state', 'the worker is alive and has runs: drain it before you delete it')
  }
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
