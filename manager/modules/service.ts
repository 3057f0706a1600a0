/** Modules for people: what is cached where, pulling ahead, pushing, forgetting, and what is asked of signatures. */
import { createHash } from 'node:crypto'
import type { Secret } from '#core/config/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { Slots } from '#core/slots.ts'
import { visibleDomains } from '../access.ts'
import type { TaskAccess, TaskAction, TaskCaller, TaskDomain, VisibleDomains } from '../access.ts'
import type { Cluster } from '../dispatch/cluster.ts'
import type { WorkerSession } from '../dispatch/worker-session.ts'
import type { ModuleRefs } from './module-refs.ts'
import type { ModulePolicies, ModulePolicy } from './policies.ts'
import type { ProxiedModule, ProxyClient, ResolvedReference } from './proxy-client.ts'
import type { BodyReceiver } from './received-body.ts'
import type { ImageResolver } from './resolve.ts'
import type { Exports, ShownModule } from './schema.ts'
import { findModule } from './repository.ts'
import { forgetUses, listUses } from './uses.ts'
import type { ModuleUse, UseFilter } from './uses.ts'

export type ModulesDeps = {
  database: Database
  access: TaskAccess
  cluster: Cluster
  refs: ModuleRefs
  proxy: ProxyClient
  images: ImageResolver
  policies: ModulePolicies
  bodies: BodyReceiver
  logger: Logger
}
export type ModulesService = ReturnType<typeof createModulesService>

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
  login: { username: string; password: Secret } | undefined
}

/** Pulls ahead that run at a time, and for one domain; a start does not wait behind them. */
const MAX_PULLS_AHEAD = 16
const MAX_PULLS_AHEAD_PER_DOMAIN = 4

export function createModulesService({
  database,
  access,
  cluster,
  refs,
  proxy,
  images,
  policies,
  bodies,
  logger,
}: ModulesDeps) {
  const pullsAhead = new Slots({
    what: 'modules being pulled ahead',
    max: MAX_PULLS_AHEAD,
    share: MAX_PULLS_AHEAD_PER_DOMAIN,
  })

  /** Keys of the domains that are meant: the named one, else all in which the caller may do it. */
  async function visible(
    caller: TaskCaller,
    action: TaskAction,
    domainId: string | undefined,
  ): Promise<VisibleDomains> {
    if (domainId !== undefined && caller !== undefined) return [(await access.require(caller, action, domainId)).key]
    if (domainId === undefined) return visibleDomains(await access.domains(caller, action))
    throw new ServiceError('unauthenticated', 'modules of a domain need a token')
  }

  /** Where something new belongs: the named domain, else the token's or the caller's only one; null: the platform. */
  async function domainFor(
    caller: TaskCaller,
    action: TaskAction,
    domainId: string | undefined,
  ): Promise<TaskDomain | null> {
    if (caller === undefined) {
      if (domainId === undefined && (await access.can(caller, 'worker_manage', null))) return null
      throw new ServiceError('unauthenticated', 'pulling, pushing and policies of modules need a token')
    }
    if (domainId !== undefined) return await access.require(caller, action, domainId)
    const domains = await access.domains(caller, action)
    if (typeof domains === 'string') return null
    const [only, ...others] = domains
    if (only === undefined) {
      throw new ServiceError('forbidden', `failed to perform authorization: needs ${action} in a domain`)
    }
    if (others.length === 0) return only
    throw new ServiceError('malformed', `domain_id is required: you have ${action} in several domains`, {
      details: [{ path: '/domain_id', message: 'is required' }],
    })
  }

  /** What the proxy has of these; undefined: it does not answer. */
  async function askProxy(
    uses: readonly ModuleUse[],
    withExports: boolean,
  ): Promise<Map<string, ProxiedModule> | undefined> {
    const digests = new Set(uses.filter(({ source }) => source === 'registry').map(({ digest }) => digest))
    if (digests.size === 0) return new Map()
    try {
      return new Map((await proxy.describe([...digests], withExports)).map((module) => [module.digest, module]))
    } catch (error) {
      logger.info({ err: error }, 'the module proxy did not say what it has')
      return undefined
    }
  }

  function show(uses: readonly ModuleUse[], proxied: Map<string, ProxiedModule> | undefined): ShownModule[] {
    return uses.map((use) => ({
      ...use,
      isProxied: use.source === 'upload' || proxied === undefined ? null : proxied.has(use.digest),
      workers: sessionsFor(use.domainId)
        .filter((session) => session.cachedDigests.has(use.digest))
        .map(({ id, name }) => ({ id, name })),
    }))
  }

  /** Workers that run tasks of this domain: those of the platform, and its own. */
  function sessionsFor(domainId: string | null): WorkerSession[] {
    return [...cluster.sessions].filter((session) => session.domainId === null || session.domainId === domainId)
  }

  function chosenWorkers(domainId: string | null, { workers, labels }: PullAhead): WorkerSession[] {
    if (workers === undefined) return []
    return sessionsFor(domainId).filter(
      (session) =>
        !session.isDraining &&
        (workers === 'all' || workers.includes(session.id)) &&
        Object.entries(labels).every(([name, value]) => session.labels[name] === value),
    )
  }

  async function pullFor(found: ResolvedReference, sessions: readonly WorkerSession[]): Promise<void> {
    try {
      await proxy.pull(found.digest, found.reference)
      for (const session of sessions) {
        if (!session.isAlive) continue
        const { digest } = found
        session.prefetch(refs.of(session.id, found, cluster.peersOf(session, digest)), digest)
      }
    } catch (error) {
      logger.warn({ reference: found.reference, err: error }, 'a module could not be pulled ahead')
    }
  }

  return {
    async list(caller: TaskCaller, query: Omit<UseFilter, 'domains'> & { domainId: string | undefined }) {
      const domains = await visible(caller, 'task_read', query.domainId)
      const { total, uses } = await listUses(database, { ...query, domains })
      return { total, modules: show(uses, await askProxy(uses, false)) }
    },

    /** One entry per domain and reference, and what all of them export; null: it is not known. Throws `not_found`. */
    async get(caller: TaskCaller, digest: string): Promise<{ modules: ShownModule[]; exports: Exports }> {
      const domains = await visible(caller, 'task_read', undefined)
      const { uses } = await listUses(database, { digest, domains, offset: 0, limit: 100 })
      if (uses.length === 0) throw new ServiceError('not_found', 'no such module')
      const [uploaded, proxied] = await Promise.all([
        uses.some(({ source }) => source === 'upload') ? findModule(database.db, digest) : undefined,
        askProxy(uses, true),
      ])
      const exports = uploaded?.exports ?? (proxied?.get(digest)?.exports as Exports | undefined) ?? null
      return { modules: show(uses, proxied), exports }
    },

    /**
     * Resolves now and pulls afterwards: into the proxy, then into the chosen workers. Throws what a start of a run with
     * this image would throw, `rate_limited` and `unavailable` when too much is being pulled ahead already.
     */
    async pullAhead(caller: TaskCaller, order: PullAhead) {
      const domain = await domainFor(caller, 'task_create', order.domainId)
      const giveBack = await pullsAhead.take(domain?.id ?? null)
      try {
        const found = await images.find(order.reference, domain?.id ?? null)
        const sessions = chosenWorkers(domain?.id ?? null, order)
        void pullFor(found, sessions).finally(giveBack)
        return { ...found, notes: images.notesOf(found), workers: sessions.length }
      } catch (error) {
        giveBack()
        throw error
      }
    },

    /** Throws `forbidden` where the caller may not do it, before any byte is read. */
    async requirePush(caller: TaskCaller, domainId: string | undefined): Promise<string | null> {
      return (await domainFor(caller, 'task_create', domainId))?.id ?? null
    },

    /** Hands the module on once it is here. Throws `too_large`, and `unprocessable` with what proxy or registry say. */
    async push(domainId: string | null, { reference, login }: Push, bytes: AsyncIterable<Buffer>) {
      return await bodies.receive(domainId, bytes, async (body) => {
        const hash = createHash('sha256')
        async function* hashed(): AsyncGenerator<Uint8Array> {
          for await (const piece of body.pieces()) {
            hash.update(piece)
            yield piece
          }
        }
        const pushed = await proxy.push({ reference, domainId, login }, hashed())
        return { digest: `sha256:${hash.digest('hex')}`, sizeBytes: body.sizeBytes, reference: pushed }
      })
    },

    /**
     * Forgets that the caller's domains used a module of a registry, and drops it from the proxy when nobody else did.
     * Throws `not_found`, `forbidden`, and `invalid_state` for an upload, which lives and goes with its tasks.
     */
    async remove(caller: TaskCaller, digest: string, domainId: string | undefined): Promise<void> {
      const readable = await visible(caller, 'task_read', domainId)
      const { uses } = await listUses(database, { digest, domains: readable, offset: 0, limit: 100 })
      if (uses.length === 0) throw new ServiceError('not_found', 'no such module')
      const removable = await visible(caller, 'task_delete', domainId)
      if (removable === 'no domain') throw new ServiceError('unauthenticated', 'forgetting a module needs a token')
      const mine = uses.filter(({ domainKey }) => removable === 'all' || removable.includes(domainKey ?? 0))
      if (mine.length === 0) {
        throw new ServiceError('forbidden', 'failed to perform authorization: needs task_delete in the domain')
      }
      if (mine.every(({ source }) => source === 'upload')) {
        throw new ServiceError(
          'invalid_state',
          'the module was uploaded to tasks: delete them, or give them another one',
        )
      }
      if (await forgetUses(database, digest, removable)) await proxy.remove(digest)
    },

    async policy(caller: TaskCaller, domainId: string | undefined): Promise<ModulePolicy> {
      return await policies.find((await domainFor(caller, 'task_read', domainId))?.id ?? null)
    },

    async setPolicy(caller: TaskCaller, domainId: string | undefined, policy: ModulePolicy): Promise<ModulePolicy> {
      await policies.set(await domainFor(caller, 'worker_manage', domainId), policy)
      return policy
    },
  }
}
