/** Modules for people: what is cached where, pulling ahead, pushing, forgetting, and what is asked of signatures. */
import { createHash } from 'node:crypto'
import type { Database } from '#core/database/index.ts'
import { digestOfHash } from '#core/digest.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { Slots } from '#core/slots.ts'
import type { RegistryLogin } from '#core/transfer/index.ts'
import { UPLOAD_TAG, repositoryNameOf } from '#proto/index.ts'
import { domainOf } from '../access/domain-of.ts'
import { visibleDomains } from '../access/access.ts'
import type { TaskAccess, TaskAction, TaskCaller, TaskDomain, VisibleDomains } from '../access/access.ts'
import type { Cluster } from '../placement/cluster.ts'
import type { WorkerSession } from '../placement/worker-session.ts'
import type { ModulePolicies, ModulePolicy } from './policies.ts'
import type { ProxiedModule, ProxyClient, ResolvedReference } from './proxy-client.ts'
import type { BodyReceiver } from './received-body.ts'
import type { ImageResolver } from './resolve.ts'
import type { Exports, ShownModule } from './schema.ts'
import { findModule } from '../store/modules.ts'
import { forgetUses, listUses } from './uses.ts'
import type { ModuleUse, UseFilter } from './uses.ts'
import type { TicketIssuer } from './tickets.ts'

export type ModulesDeps = {
  database: Database
  access: TaskAccess
  cluster: Cluster
  proxy: ProxyClient
  proxyAddress: string
  tickets: TicketIssuer
  images: ImageResolver
  policies: ModulePolicies
  bodies: BodyReceiver
  logger: Logger
}

export type PullAhead = {
  reference: string
  domainId: string | undefined
  /** Undefined: none but the proxy. */
  workers: 'all' | readonly string[] | undefined
  labels: Readonly<Record<string, string>>
}

export type Push = {
  reference: string
  domainId: string | undefined
  login: RegistryLogin | undefined
}

export type TicketOrder = {
  digest: string
  domainId: string | undefined
  /** Where the module is used from several: one of them. */
  reference: string | undefined
}

export type ReadTicket = {
  ticket: string
  expiresAt: Date
  digest: string
  sizeBytes: number
  /** host:port of the proxy. */
  registry: string
  /** What the module is called there, with a tag or the digest of its manifest. */
  artifact: string
}

/** Pulls ahead that run at a time, and for one domain; a start does not wait behind them. */
const MAX_PULLS_AHEAD = 16
const MAX_PULLS_AHEAD_PER_DOMAIN = 4

export class ModulesService {
  readonly #deps: ModulesDeps
  readonly #pullsAhead = new Slots({
    what: 'modules being pulled ahead',
    max: MAX_PULLS_AHEAD,
    share: MAX_PULLS_AHEAD_PER_DOMAIN,
  })

  constructor(deps: ModulesDeps) {
    this.#deps = deps
  }

  async list(caller: TaskCaller, query: Omit<UseFilter, 'domains'> & { domainId: string | undefined }) {
    const domains = await this.#visible(caller, 'task_read', query.domainId)
    const { total, uses } = await listUses(this.#deps.database, { ...query, domains })
    return { total, modules: this.#show(uses, await this.#askProxy(uses, false)) }
  }

  /** One entry per domain and reference, and what all of them export; null: it is not known. Throws `not_found`. */
  async get(caller: TaskCaller, digest: string): Promise<{ modules: ShownModule[]; exports: Exports }> {
    const domains = await this.#visible(caller, 'task_read', undefined)
    const { uses } = await listUses(this.#deps.database, { digest, domains, offset: 0, limit: 100 })
    if (uses.length === 0) throw new ServiceError('not_found', 'no such module')
    const [uploaded, proxied] = await Promise.all([
      uses.some(({ source }) => source === 'upload') ? findModule(this.#deps.database.db, digest) : undefined,
      this.#askProxy(uses, true),
    ])
    const exports = uploaded?.exports ?? (proxied?.get(digest)?.exports as Exports | undefined) ?? null
    return { modules: this.#show(uses, proxied), exports }
  }

  /**
   * Resolves now and pulls afterwards: into the proxy, then into the chosen workers. Throws what a start of a run with
   * this image would throw, `rate_limited` and `unavailable` when too much is being pulled ahead already.
   */
  async pullAhead(caller: TaskCaller, order: PullAhead) {
    const domain = await this.#domainFor(caller, 'task_create', order.domainId)
    const giveBack = await this.#pullsAhead.take(domain?.id ?? null)
    try {
      const found = await this.#deps.images.find(order.reference, domain?.id ?? null)
      const sessions = this.#chosenWorkers(domain?.id ?? null, order)
      void this.#pullFor(found, sessions).finally(giveBack)
      return { ...found, notes: this.#deps.images.notesOf(found), workers: sessions.length }
    } catch (error) {
      giveBack()
      throw error
    }
  }

  /** Throws `forbidden` where the caller may not do it, before any byte is read. */
  async requirePush(caller: TaskCaller, domainId: string | undefined): Promise<string | null> {
    return (await this.#domainFor(caller, 'task_create', domainId))?.id ?? null
  }

  /** Hands the module on once it is here. Throws `too_large`, and `unprocessable` with what proxy or registry say. */
  async push(domainId: string | null, { reference, login }: Push, bytes: AsyncIterable<Buffer>) {
    return await this.#deps.bodies.receive(domainId, bytes, async (body) => {
      const hash = createHash('sha256')
      async function* hashed(): AsyncGenerator<Uint8Array> {
        for await (const piece of body.pieces()) {
          hash.update(piece)
          yield piece
        }
      }
      const pushed = await this.#deps.proxy.push(
        { reference, domainId, login },
        { sizeBytes: body.sizeBytes, read: hashed },
      )
      return { digest: digestOfHash(hash), sizeBytes: body.sizeBytes, ...pushed }
    })
  }

  /**
   * Forgets that the caller's domains used a module of a registry, and drops it from the proxy when nobody else did.
   * Throws `not_found`, `forbidden`, and `invalid_state` for an upload, which lives and goes with its tasks.
   */
  async remove(caller: TaskCaller, digest: string, domainId: string | undefined): Promise<void> {
    const readable = await this.#visible(caller, 'task_read', domainId)
    const { uses } = await listUses(this.#deps.database, { digest, domains: readable, offset: 0, limit: 100 })
    if (uses.length === 0) throw new ServiceError('not_found', 'no such module')
    const removable = await this.#visible(caller, 'task_delete', domainId)
    if (removable === 'no domain') throw new ServiceError('unauthenticated', 'forgetting a module needs a token')
    const mine = uses.filter(({ domainKey }) => removable === 'all' || removable.includes(domainKey ?? 0))
    if (mine.length === 0) {
      throw new ServiceError('forbidden', 'failed to perform authorization: needs task_delete in the domain')
    }
    if (mine.every(({ source }) => source === 'upload')) {
      throw new ServiceError('invalid_state', 'the module was uploaded to tasks: delete them, or give them another one')
    }
    if (await forgetUses(this.#deps.database, digest, removable)) await this.#deps.proxy.remove(digest)
  }

  /** What lets a tool of the field pull a module that the caller may read. Throws `not_found`. */
  async ticket(caller: TaskCaller, { digest, domainId, reference }: TicketOrder): Promise<ReadTicket> {
    const domains = await this.#visible(caller, 'task_read', domainId)
    const { uses } = await listUses(this.#deps.database, { digest, domains, reference, offset: 0, limit: 1 })
    const [use] = uses
    if (use === undefined) throw new ServiceError('not_found', 'no such module')
    const module = { digest, reference: use.reference ?? '' }
    const name = repositoryNameOf(module)
    const pinned = module.reference.split('@')[1]
    return {
      ...this.#deps.tickets.forReader(use.domainId, module),
      digest,
      sizeBytes: use.sizeBytes,
      registry: this.#deps.proxyAddress,
      artifact: pinned === undefined ? `${name}:${UPLOAD_TAG}` : `${name}@${pinned}`,
    }
  }

  async policy(caller: TaskCaller, domainId: string | undefined): Promise<ModulePolicy> {
    return await this.#deps.policies.find((await this.#domainFor(caller, 'task_read', domainId))?.id ?? null)
  }

  async setPolicy(caller: TaskCaller, domainId: string | undefined, policy: ModulePolicy): Promise<ModulePolicy> {
    await this.#deps.policies.set(await this.#domainFor(caller, 'worker_manage', domainId), policy)
    return policy
  }

  /** Keys of the domains that are meant: the named one, else all in which the caller may do it. */
  async #visible(caller: TaskCaller, action: TaskAction, domainId: string | undefined): Promise<VisibleDomains> {
    if (domainId !== undefined && caller !== undefined)
      return [(await this.#deps.access.require(caller, action, domainId)).key]
    if (domainId === undefined) return visibleDomains(await this.#deps.access.domains(caller, action))
    throw new ServiceError('unauthenticated', 'modules of a domain need a token')
  }

  /** Where something new belongs: the named domain, else the token's or the caller's only one; null: the platform. */
  async #domainFor(caller: TaskCaller, action: TaskAction, domainId: string | undefined): Promise<TaskDomain | null> {
    if (caller === undefined) {
      if (domainId === undefined && (await this.#deps.access.can(caller, 'worker_manage', null))) return null
      throw new ServiceError('unauthenticated', 'pulling, pushing and policies of modules need a token')
    }
    return await domainOf(this.#deps.access, caller, action, {
      domainId,
      several: `you have ${action} in several domains`,
    })
  }

  /** What the proxy has of these; undefined: it does not answer. */
  async #askProxy(uses: readonly ModuleUse[], withExports: boolean): Promise<Map<string, ProxiedModule> | undefined> {
    const digests = new Set(uses.filter(({ source }) => source === 'registry').map(({ digest }) => digest))
    if (digests.size === 0) return new Map()
    try {
      return new Map(
        (await this.#deps.proxy.describe([...digests], withExports)).map((module) => [module.digest, module]),
      )
    } catch (error) {
      this.#deps.logger.info({ err: error }, 'failed to ask the module proxy which modules it has')
      return undefined
    }
  }

  #show(uses: readonly ModuleUse[], proxied: Map<string, ProxiedModule> | undefined): ShownModule[] {
    return uses.map((use) => ({
      ...use,
      isProxied: use.source === 'upload' || proxied === undefined ? null : proxied.has(use.digest),
      workers: this.#sessionsFor(use.domainId)
        .filter((session) => session.cachedDigests.has(use.digest))
        .map(({ id, name }) => ({ id, name })),
    }))
  }

  /** Workers that run tasks of this domain: those of the platform, and its own. */
  #sessionsFor(domainId: string | null): WorkerSession[] {
    return [...this.#deps.cluster.sessions].filter(
      (session) => session.domainId === null || session.domainId === domainId,
    )
  }

  #chosenWorkers(domainId: string | null, { workers, labels }: PullAhead): WorkerSession[] {
    if (workers === undefined) return []
    return this.#sessionsFor(domainId).filter(
      (session) =>
        !session.isDraining &&
        (workers === 'all' || workers.includes(session.id)) &&
        Object.entries(labels).every(([name, value]) => session.labels[name] === value),
    )
  }

  async #pullFor(found: ResolvedReference, sessions: readonly WorkerSession[]): Promise<void> {
    try {
      await this.#deps.proxy.pull(found.digest, found.reference)
      for (const session of sessions) {
        if (!session.isAlive) continue
        session.prefetch(found, this.#deps.cluster.peersOf(session, found.digest))
      }
    } catch (error) {
      this.#deps.logger.warn({ reference: found.reference, err: error }, 'failed to pull a module ahead')
    }
  }
}
