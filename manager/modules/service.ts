/** The module API: listing, pre-pulls, pushes, removal and signature policies. */
import { createHash } from 'node:crypto'
import type { Database } from '#core/database/index.ts'
import { digestOfHash } from '#core/digest.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { Slots } from '#core/slots.ts'
import type { DescribedExport, DescribedImport, ModuleKind } from '#guests/wasm/index.ts'
import type { RegistryLogin } from '#core/transfer/index.ts'
import { UPLOAD_TAG, repositoryNameOf } from '#proto/index.ts'
import { domainOf } from '../access/domain-of.ts'
import { visibleDomainKeys } from '../access/access.ts'
import type { TaskAccess, TaskAction, TaskCaller, TaskDomain, VisibleDomainKeys } from '../access/access.ts'
import type { Cluster } from '../placement/cluster.ts'
import type { WorkerSession } from '../placement/worker-session.ts'
import type { ModuleContent, OpenModule } from './content.ts'
import { inspectModule } from './inspect.ts'
import type { InspectedFacts } from './inspect.ts'
import type { ModulePolicies, ModulePolicy } from './policies.ts'
import type { ProxiedModule, ProxyClient, ResolvedReference } from './proxy-client.ts'
import type { BodyReceiver } from './received-body.ts'
import type { ImageResolver } from './resolve.ts'
import type { ShownModule } from './schema.ts'
import { findModule } from '../store/modules.ts'
import { deleteUses, listUses } from './uses.ts'
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
  content: ModuleContent
  logger: Logger
}

export type PrePullOrder = {
  reference: string
  domainId: string | undefined
  /** Undefined: only the proxy. */
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
  /** Selects one of several references of the module. */
  reference: string | undefined
}

export type ReadTicket = {
  ticket: string
  expiresAt: Date
  digest: string
  sizeBytes: number
  /** host:port of the proxy. */
  registry: string
  /** Name of the module at the proxy, with a tag or the digest of its manifest. */
  artifact: string
}

export type KnownFacts = {
  kind: ModuleKind | null
  exports: DescribedExport[] | null
  imports: DescribedImport[] | null
}

/** Pre-pulls that run at the same time, and per domain; starts do not wait for them. */
const MAX_PULLS_AHEAD = 16
const MAX_PULLS_AHEAD_PER_DOMAIN = 4

export class ModulesService {
  readonly #deps: ModulesDeps
  readonly #prePulls = new Slots({
    what: 'modules being pre-pulled',
    max: MAX_PULLS_AHEAD,
    share: MAX_PULLS_AHEAD_PER_DOMAIN,
  })

  constructor(deps: ModulesDeps) {
    this.#deps = deps
  }

  async list(caller: TaskCaller, query: Omit<UseFilter, 'domains'> & { domainId: string | undefined }) {
    const domains = await this.#visible(caller, 'task_read', query.domainId)
    const { total, uses, next } = await listUses(this.#deps.database, { ...query, domains })
    return { total, next, modules: this.#show(uses, await this.#askProxy(uses, false)) }
  }

  /** One entry per domain and reference, and what the module is; null: unknown. Throws `not_found`. */
  async get(caller: TaskCaller, digest: string): Promise<{ modules: ShownModule[] } & KnownFacts> {
    const domains = await this.#visible(caller, 'task_read', undefined)
    const { uses } = await listUses(this.#deps.database, { digest, domains, offset: 0, limit: 100 })
    if (uses.length === 0) throw new ServiceError('not_found', 'no such module')
    const [uploaded, proxied] = await Promise.all([
      uses.some(({ source }) => source === 'upload') ? findModule(this.#deps.database.db, digest) : undefined,
      this.#askProxy(uses, true),
    ])
    const { kind = null, exports = null, imports = null } = uploaded ?? proxied?.get(digest) ?? {}
    return { modules: this.#show(uses, proxied), kind, exports, imports }
  }

  /**
   * The bytes of a module that a task of a readable domain uses. Throws `not_found`, and `rate_limited` and `unavailable` with too
   * many readers.
   */
  async read(caller: TaskCaller, digest: string): Promise<OpenModule> {
    const domains = await this.#visible(caller, 'task_read', undefined)
    const { uses } = await listUses(this.#deps.database, { digest, domains, offset: 0, limit: 100 })
    const use = uses.find(({ source }) => source === 'upload') ?? uses[0]
    if (use === undefined) throw new ServiceError('not_found', 'no such module')
    return await this.#deps.content.open(use)
  }

  /** Throws `forbidden` if the caller is not allowed to create tasks, before any byte is read. */
  async requireInspect(caller: TaskCaller, domainId: string | undefined): Promise<string | null> {
    if (caller === undefined && domainId === undefined) {
      if (await this.#deps.access.can(caller, 'task_create', null)) return null
    }
    return (await this.#domainFor(caller, 'task_create', domainId))?.id ?? null
  }

  /** What a module is, without storing it. Throws `malformed` unless it is WebAssembly that can be read, and `too_large`. */
  async inspect(domainId: string | null, bytes: AsyncIterable<Buffer>): Promise<InspectedFacts> {
    return await this.#deps.bodies.receive(domainId, bytes, (body) => inspectModule(body, domainId ?? ''))
  }

  /**
   * Resolves now and pulls afterwards: into the proxy, then into the chosen workers. Throws the errors of a start with
   * this image, and `rate_limited` and `unavailable` with too many pre-pulls.
   */
  async prePull(caller: TaskCaller, order: PrePullOrder) {
    const domain = await this.#domainFor(caller, 'task_create', order.domainId)
    const release = await this.#prePulls.take(domain?.id ?? null)
    try {
      const found = await this.#deps.images.find(order.reference, domain?.id ?? null)
      const sessions = this.#chosenWorkers(domain?.id ?? null, order)
      void this.#pullFor(found, sessions).finally(release)
      return { ...found, notes: this.#deps.images.notesOf(found), workers: sessions.length }
    } catch (error) {
      release()
      throw error
    }
  }

  /** Throws `forbidden` if the caller is not allowed to push, before any byte is read. */
  async requirePush(caller: TaskCaller, domainId: string | undefined): Promise<string | null> {
    return (await this.#domainFor(caller, 'task_create', domainId))?.id ?? null
  }

  /**
   * Sends the module once it is complete. Throws `too_large`, and `unprocessable` with the message of proxy or registry.
   */
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
   * Removes the use of a registry's module by the caller's domains, and drops it from the proxy if no other domain uses
   * it. Throws `not_found`, `forbidden`, and `invalid_state` for an upload, whose lifetime is that of its tasks.
   */
  async remove(caller: TaskCaller, digest: string, domainId: string | undefined): Promise<void> {
    const readable = await this.#visible(caller, 'task_read', domainId)
    const { uses } = await listUses(this.#deps.database, { digest, domains: readable, offset: 0, limit: 100 })
    if (uses.length === 0) throw new ServiceError('not_found', 'no such module')
    const removable = await this.#visible(caller, 'task_delete', domainId)
    if (removable === 'no domain') throw new ServiceError('unauthenticated', 'removing a module requires a token')
    const mine = uses.filter(({ domainKey }) => removable === 'all' || removable.includes(domainKey ?? 0))
    if (mine.length === 0) {
      throw new ServiceError('forbidden', 'failed to perform authorization: needs task_delete in the domain')
    }
    if (mine.every(({ source }) => source === 'upload')) {
      throw new ServiceError(
        'invalid_state',
        'the module was uploaded to tasks: delete them, or upload another module to them',
      )
    }
    if (await deleteUses(this.#deps.database, digest, { domains: removable, caller }))
      await this.#deps.proxy.remove(digest)
  }

  /** A ticket with which a standard tool can pull a module that the caller can read. Throws `not_found`. */
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
    await this.#deps.policies.set(await this.#domainFor(caller, 'worker_manage', domainId), policy, caller)
    return policy
  }

  /** Keys of the selected domains: the given one, else all in which the caller is allowed the action. */
  async #visible(caller: TaskCaller, action: TaskAction, domainId: string | undefined): Promise<VisibleDomainKeys> {
    if (domainId !== undefined && caller !== undefined)
      return [(await this.#deps.access.require(caller, action, domainId)).key]
    if (domainId === undefined) return visibleDomainKeys(await this.#deps.access.domains(caller, action))
    throw new ServiceError('unauthenticated', 'modules of a domain require a token')
  }

  /** The domain of a new entity: the given one, else the token's or the caller's only one; null: the platform. */
  async #domainFor(caller: TaskCaller, action: TaskAction, domainId: string | undefined): Promise<TaskDomain | null> {
    if (caller === undefined) {
      if (domainId === undefined && (await this.#deps.access.can(caller, 'worker_manage', null))) return null
      throw new ServiceError('unauthenticated', 'pulling, pushing and policies of modules require a token')
    }
    return await domainOf(this.#deps.access, caller, action, {
      domainId,
      several: `you have ${action} in several domains`,
    })
  }

  /** The cached modules of the proxy among these; undefined: it does not answer. */
  async #askProxy(uses: readonly ModuleUse[], withExports: boolean): Promise<Map<string, ProxiedModule> | undefined> {
    const digests = new Set(uses.filter(({ source }) => source === 'registry').map(({ digest }) => digest))
    if (digests.size === 0) return new Map()
    try {
      return new Map(
        (await this.#deps.proxy.describe([...digests], withExports)).map((module) => [module.digest, module]),
      )
    } catch (error) {
      this.#deps.logger.info(
        { err: error },
        'failed to read the cached modules of the module proxy; showing them as unknown',
      )
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

  #chosenWorkers(domainId: string | null, { workers, labels }: PrePullOrder): WorkerSession[] {
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
      this.#deps.logger.warn({ reference: found.reference, err: error }, 'failed to pre-pull a module')
    }
  }
}
