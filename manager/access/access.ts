/**
 * Who may do what with tasks and workers (task-manager.md section 1, SKEIN_MANAGER_AUTH). A small interface, so that
 * the room knows neither how tokens are verified nor where roles are stored.
 */
import type { FastifyRequest } from 'fastify'
import type { AccessPolicy, DomainAction, UserPrincipal } from '#api/identity/index.ts'
import { findActingUser } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isForeignOrigin } from '#core/http/index.ts'
import { isPublishedElsewhere } from '#core/loopback.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

export type TaskAction = Extract<
  DomainAction,
  'task_create' | 'task_read' | 'task_update' | 'task_delete' | 'task_start' | 'worker_read' | 'worker_manage'
>

/**
 * undefined: a request without a principal. It makes tasks of no domain; with authorisation off it may do everything, else
 * it drives tasks of no domain and sees that the platform's workers exist (contract decision 61).
 */
export type TaskCaller = UserPrincipal | undefined

export type TaskDomain = { key: number; id: string }

/** The domains in which a caller may do something: a list, 'all' where nothing is hidden, or what belongs to no domain. */
export type DomainReach = readonly TaskDomain[] | 'all' | 'no domain'
/** The same by key, as statements take it. */
export type VisibleDomains = readonly number[] | 'all' | 'no domain'

export function visibleDomains(reach: DomainReach): VisibleDomains {
  return typeof reach === 'string' ? reach : reach.map(({ key }) => key)
}

/** Whether a row belongs to what is visible, by its column with the key of its domain (null: no domain). */
export function isVisible(column: Sql<unknown>, domains: VisibleDomains): Sql<boolean> {
  if (domains === 'all') return sql`true`
  return domains === 'no domain' ? sql`${column} IS NULL` : sql`${column} = ANY(${[...domains]}::bigint[])`
}

export type TaskAccess = {
  /** Throws `unauthenticated`. */
  authenticate(request: FastifyRequest): Promise<TaskCaller>
  /** True when the caller may do it in the domain; false also where he is no member. */
  can(caller: TaskCaller, action: TaskAction, domainId: string | null): Promise<boolean>
  /** The domain, when the caller may do it there. Throws `forbidden`. */
  require(caller: UserPrincipal, action: TaskAction, domainId: string): Promise<TaskDomain>
  /** Every domain in which the caller may do it. */
  domains(caller: TaskCaller, action: TaskAction): Promise<DomainReach>
  /**
   * The key of the channel, when the user may do it there. Throws `forbidden` alike for what he may not do, may not see, and
   * for what is not there.
   */
  requireChannel(user: UserPrincipal, action: ChannelAction, domainId: string, channelId: string): Promise<number>
  /** The user a task acts as; undefined when he is gone or disabled. */
  findUser(key: number): Promise<UserPrincipal | undefined>
}

export type ChannelAction = 'publish' | 'subscribe'

export type AuthMode = 'auto' | 'on' | 'off'

/**
 * What SKEIN_MANAGER_AUTH means here. Behind a proxy every request comes over loopback, and not every proxy says so in a
 * header: where one is configured, or the public address is not of this machine, `auto` is `on` (contract decision 61).
 */
export function authModeOf(asked: AuthMode, reached: { trustProxy: readonly string[]; publicUrl: string }): AuthMode {
  if (asked !== 'auto') return asked
  return isPublishedElsewhere(reached) ? 'on' : 'auto'
}

export type TaskAccessDeps = {
  database: Database
  access: AccessPolicy
  /** Sets `request.principal` or throws `unauthenticated`. */
  authenticate: (request: FastifyRequest) => Promise<void>
  mode: AuthMode
  corsOrigins: readonly string[]
}

export function createTaskAccess({ database, access, authenticate, mode, corsOrigins }: TaskAccessDeps): TaskAccess {
  async function enter(caller: UserPrincipal, domainId: string) {
    try {
      return await access.enter(caller, domainId)
    } catch (error) {
      if (error instanceof ServiceError && error.kind === 'forbidden') return undefined
      throw error
    }
  }
  return {
    async authenticate(request) {
      const isOpen = mode === 'off' || (mode === 'auto' && isLocal(request, corsOrigins))
      // A token that is given counts, and is refused when it is wrong, also where none is needed.
      if (isOpen && request.headers.authorization === undefined) return undefined
      await authenticate(request)
      return request.principal
    },
    async can(caller, action, domainId) {
      if (caller === undefined) return mode === 'off' || (domainId === null && !action.startsWith('worker_'))
      if (domainId === null) return caller.isPlatformAdmin && caller.boundDomainKey === undefined
      return (await enter(caller, domainId))?.can(action) ?? false
    },
    async require(caller, action, domainId) {
      const domain = await access.enter(caller, domainId)
      domain.require(action)
      return { key: domain.domainKey, id: domain.domainId }
    },
    async domains(caller, action) {
      if (caller === undefined) return mode === 'off' ? 'all' : 'no domain'
      if (caller.isPlatformAdmin && caller.boundDomainKey === undefined) return 'all'
      const found: TaskDomain[] = []
      for (const domain of await memberships(database, caller)) {
        if ((await enter(caller, domain.id))?.can(action) === true) found.push(domain)
      }
      return found
    },
    async requireChannel(user, action, domainId, channelId) {
      const refusal = new ServiceError(
        'forbidden',
        `failed to perform authorization: needs ${action} on channel ${channelId} of the domain of the task`,
      )
      try {
        const { domain, entity } = await access.locate(user, domainId, 'channel', channelId)
        const actions = await domain.actionsOn(entity)
        if (actions.has(action)) return entity.key
      } catch (error) {
        if (!(error instanceof ServiceError) || (error.kind !== 'not_found' && error.kind !== 'forbidden')) throw error
      }
      throw refusal
    },
    findUser: (key) => findActingUser(database.db, key),
  }
}

/** Domains in which the caller has a role of the domain itself. */
async function memberships(database: Database, caller: UserPrincipal): Promise<TaskDomain[]> {
  if (caller.isPlatformAdmin) {
    const { rows } =
      await sql<TaskDomain>`SELECT key, id FROM domains WHERE key = ${caller.boundDomainKey ?? null}`.execute(
        database.db,
      )
    return rows
  }
  const { rows } = await sql<TaskDomain>`
    SELECT DISTINCT d.key, d.id FROM grants g JOIN domains d ON d.key = g.domain_key
    WHERE g.user_key = ${caller.key} AND g.entity_key = g.domain_key ORDER BY d.key`.execute(database.db)
  return rows
}

const LOOPBACK_ADDRESS = /^(127\.|::1$|::ffff:127\.)/
const LOOPBACK_HOST = /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?$/i
const FORWARDED = [
  'forwarded',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  'x-forwarded-port',
  'x-real-ip',
]

/** A request of this very machine: over loopback, to a loopback name, not through a proxy, not from a foreign page. */
export function isLocal(request: FastifyRequest, corsOrigins: readonly string[]): boolean {
  return (
    LOOPBACK_ADDRESS.test(request.socket.remoteAddress ?? '') &&
    LOOPBACK_HOST.test(request.headers.host ?? '') &&
    !FORWARDED.some((name) => request.headers[name] !== undefined) &&
    !Object.keys(request.headers).some((name) => name.startsWith('x-forwarded-')) &&
    !isForeignOrigin(request, corsOrigins)
  )
}
