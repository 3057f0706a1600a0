/**
 * Authorization for tasks and workers (task-manager.md section 1, SKEIN_MANAGER_AUTH). `TaskAccess` hides token
 * verification and role storage from the manager.
 */
import type { FastifyRequest } from 'fastify'
import type { AccessPolicy, DomainAction, Quotas, UserPrincipal } from '#api/identity/index.ts'
import { findActingUser, optionalBearerOf } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isForeignOrigin, peerAddressOf } from '#http/index.ts'
import { isPublishedElsewhere } from '#core/loopback.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

export type TaskAction = Extract<
  DomainAction,
  | 'task_create'
  | 'task_read'
  | 'task_update'
  | 'task_delete'
  | 'task_start'
  | 'task_secrets'
  | 'worker_read'
  | 'worker_manage'
>

/**
 * The user of a request, or undefined for a request without a token. A request without a token creates tasks that belong
 * to no domain. With authorization off it is allowed every action. Otherwise it can only use tasks that belong to no
 * domain and see that the platform's workers exist (contract decision 61).
 */
export type TaskCaller = UserPrincipal | undefined

export type TaskDomain = { key: number; id: string }

/** The domains in which a caller is allowed an action. 'no domain' allows only entities that belong to no domain. */
export type AllowedDomains = readonly TaskDomain[] | 'all' | 'no domain'
/** `AllowedDomains` with the database key of each domain, for SQL conditions. */
export type VisibleDomainKeys = readonly number[] | 'all' | 'no domain'

export function visibleDomainKeys(domains: AllowedDomains): VisibleDomainKeys {
  return typeof domains === 'string' ? domains : domains.map(({ key }) => key)
}

/**
 * Keys of the domains of a listing: those in which the caller can read tasks, or the given one. Throws `forbidden` for a
 * domain in which they cannot, `unauthenticated` for a domain without a token.
 */
export async function visibleIn(
  access: Pick<TaskAccess, 'domains' | 'require'>,
  caller: TaskCaller,
  domainId: string | undefined,
): Promise<VisibleDomainKeys> {
  if (domainId === undefined) return visibleDomainKeys(await access.domains(caller, 'task_read'))
  if (caller === undefined) throw new ServiceError('unauthenticated', 'a filter by domain needs a token')
  return [(await access.require(caller, 'task_read', domainId)).key]
}

/** Returns the SQL condition that selects visible rows. `column` holds the key of the row's domain, or null for no domain. */
export function visibleDomainCondition(column: Sql<unknown>, domains: VisibleDomainKeys): Sql<boolean> {
  if (domains === 'all') return sql`true`
  if (domains === 'no domain') return sql`${column} IS NULL`
  // Equality with one key, unlike ANY, keeps the order of an index that begins with the domain.
  return domains.length === 1 ? sql`${column} = ${domains[0]}` : sql`${column} = ANY(${[...domains]}::bigint[])`
}

export type TaskAccess = {
  /** Throws `unauthenticated`. */
  authenticate(request: FastifyRequest): Promise<TaskCaller>
  /** True if the caller is allowed the action in the domain; false also if they are not a member. */
  can(caller: TaskCaller, action: TaskAction, domainId: string | null): Promise<boolean>
  /** The domain, if the caller is allowed the action there. Throws `forbidden`. */
  require(caller: UserPrincipal, action: TaskAction, domainId: string): Promise<TaskDomain>
  /** Every domain in which the caller is allowed the action. */
  domains(caller: TaskCaller, action: TaskAction): Promise<AllowedDomains>
  /**
   * The key of the channel, if the user is allowed the action there. Throws the same `forbidden` for a channel that is
   * missing, invisible or not permitted.
   */
  requireChannel(user: UserPrincipal, action: ChannelAction, domainId: string, channelId: string): Promise<number>
  /** Throws `forbidden` for a user who may not read clients of the domain, give them commands, or start its tasks. */
  requireCommands(user: UserPrincipal, domainId: string): Promise<void>
  /** The user that a task acts as; undefined if they were deleted or disabled. */
  findUser(key: number): Promise<UserPrincipal | undefined>
  /** The quotas of domains in force. */
  readonly quotas: TaskQuotas
}

export type TaskQuotas = Pick<Quotas, 'ofDomainId'>

export type ChannelAction = 'publish' | 'subscribe'

export type AuthMode = 'auto' | 'on' | 'off'

/**
 * Returns the effective mode of SKEIN_MANAGER_AUTH. `auto` becomes `on` when a trusted proxy is configured or the public
 * address is not local. A reverse proxy on the same machine connects over loopback and may send no forwarding header, so
 * its requests would look local (contract decision 61).
 */
export function effectiveAuthMode(
  asked: AuthMode,
  reached: { trustProxy: readonly string[]; publicUrl: string },
): AuthMode {
  if (asked !== 'auto') return asked
  return isPublishedElsewhere(reached) ? 'on' : 'auto'
}

export type TaskAccessDeps = {
  database: Database
  access: AccessPolicy
  quotas: TaskQuotas
  /** Sets `request.principal` or throws `unauthenticated`. */
  authenticate: (request: FastifyRequest) => Promise<void>
  mode: AuthMode
  corsOrigins: readonly string[]
}

export function createTaskAccess({
  database,
  access,
  quotas,
  authenticate,
  mode,
  corsOrigins,
}: TaskAccessDeps): TaskAccess {
  async function enter(caller: UserPrincipal, domainId: string) {
    try {
      return await access.enter(caller, domainId)
    } catch (error) {
      if (error instanceof ServiceError && error.kind === 'forbidden') return undefined
      throw error
    }
  }
  return {
    quotas,
    async authenticate(request) {
      const isOpen = mode === 'off' || (mode === 'auto' && isLocal(request, corsOrigins))
      // A request that sends a token is verified even when the mode requires no token.
      // A value that has not the form of a token counts as absent (contract decision 60).
      if (isOpen && optionalBearerOf(request) === undefined) return undefined
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
    async requireCommands(user, domainId) {
      const domain = await enter(user, domainId)
      // The runs get what the commands contain, and a program can print it.
      for (const action of ['client_read', 'client_command', 'task_start'] as const)
        if (domain?.can(action) !== true)
          throw new ServiceError(
            'forbidden',
            `failed to perform authorization: needs ${action} in the domain of the task to answer commands`,
          )
    },
    findUser: (key) => findActingUser(database.db, key),
  }
}

/** Domains in which the caller has a role on the domain itself. */
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

/** A request from this machine: over loopback, to a loopback name, not through a proxy, not from a foreign page. */
export function isLocal(request: FastifyRequest, corsOrigins: readonly string[]): boolean {
  return (
    LOOPBACK_ADDRESS.test(peerAddressOf(request.socket)) &&
    LOOPBACK_HOST.test(request.headers.host ?? '') &&
    !FORWARDED.some((name) => request.headers[name] !== undefined) &&
    !Object.keys(request.headers).some((name) => name.startsWith('x-forwarded-')) &&
    !isForeignOrigin(request, corsOrigins)
  )
}
