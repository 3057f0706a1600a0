/** The rules of user accounts (specification section 4 Users, contract section 5, decisions 28, 29, 48, 50, 51). */
import { sql } from 'kysely'
import type { RawBuilder, SqlBool } from 'kysely'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId, newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import type { AccessPolicy, UserPrincipal } from '../access/index.ts'
import type { Journal } from '../journal/index.ts'
import { hashPassword, verifyPassword } from '../passwords/index.ts'
import { grantAdmin } from '../roles/index.ts'
import type { LoginUser } from '../tokens/index.ts'
import { revokeSessionsOf } from '../tokens/index.ts'
import { allOf, contains, containsMetadata, parseMetadataFilter } from '../wire/index.ts'
import { requireEmail, requireUsername } from './identity.ts'
import type { UserRecord } from './repository.ts'
import {
  applyUniqueNamesSwitch,
  countUsers,
  findUser,
  findUserByLogin,
  insertUser,
  listUsers,
  lockIsSolePlatformAdmin,
  lockSoleAdminDomains,
  lockUser,
  updateUser,
} from './repository.ts'
import type { NewUser, UserQuery, UserUpdate } from './schema.ts'

export type UsersService = {
  /** Throws `unauthenticated` for nobody's registration where it is switched off: known before the body is read. */
  requireMayRegister(caller: UserPrincipal | undefined): void
  /** Without a caller: self-registration. Throws `malformed`, `conflict`, and for what the caller may not set `unauthenticated` or `forbidden`. */
  create(caller: UserPrincipal | undefined, input: NewUser): Promise<UserRecord>
  getProfile(caller: UserPrincipal): Promise<UserRecord>
  /** The record, and whether the caller may see all of it. */
  get(caller: UserPrincipal, id: string): Promise<{ user: UserRecord; isStranger: boolean }>
  list(caller: UserPrincipal, query: UserQuery): Promise<Page<UserRecord>>
  update(caller: UserPrincipal, id: string, input: UserUpdate): Promise<UserRecord>
  /** Changes the caller's own password and ends his other sessions. */
  changeSecret(caller: UserPrincipal, oldSecret: string, newSecret: string): Promise<UserRecord>
  /**
   * By the user, his owner or the platform administrator; idempotent (decision 13). Disabling ends every session. Throws
   * `invalid_state` for the last administrator of a domain, unless the platform administrator forces it and thereby takes
   * his place, and for the last one of the platform.
   */
  setStatus(
    caller: UserPrincipal,
    id: string,
    status: 'enabled' | 'disabled',
    options?: { force: boolean },
  ): Promise<UserRecord>
  findLogin(login: string): Promise<LoginUser | undefined>
  /** Called once at the start: makes the stored unique names agree with the setting. */
  prepare(): Promise<void>
}

export type UsersDeps = {
  database: Database
  journal: Journal
  access: AccessPolicy
  allowSelfRegister: boolean
  uniqueNames: boolean
  passwordPattern: RegExp
}

const NOT_FOUND = 'entity not found'

export function createUsersService(deps: UsersDeps): UsersService {
  const { database, journal, access, uniqueNames } = deps

  function requirePassword(password: string, path: string): void {
    if (deps.passwordPattern.test(password)) return
    const message = 'is too weak: at least 8 characters, or what SKEIN_PASSWORD_PATTERN asks for'
    throw new ServiceError('malformed', `secret ${message}`, { details: [{ path, message }] })
  }

  async function requireUser(id: string): Promise<UserRecord> {
    const user = isId(id) ? await findUser(database.db, id) : undefined
    if (user === undefined) throw new ServiceError('not_found', NOT_FOUND)
    return user
  }

  function requireSelfOrAdmin(caller: UserPrincipal, user: UserRecord): void {
    if (caller.id !== user.id) access.requirePlatformAdmin(caller)
  }

  /** Sees to it that neither the platform nor a domain loses its last administrator; gives the domains taken over. */
  async function releaseAdministered(
    tx: Transaction,
    caller: UserPrincipal,
    user: UserRecord,
    force: boolean,
  ): Promise<string[]> {
    if (user.role === 'admin' && (await lockIsSolePlatformAdmin(tx, user.key)))
      throw new ServiceError('invalid_state', 'the user is the only administrator of the platform')
    const domains = await lockSoleAdminDomains(tx, user.key)
    const first = domains[0]
    if (first === undefined) return []
    if (!force || caller.key === user.key)
      throw new ServiceError(
        'invalid_state',
        `the user is the only administrator of the domain ${first.id}: give that role to somebody else first`,
      )
    access.requirePlatformAdmin(caller)
    for (const { key } of domains) await grantAdmin(tx, caller.key, 'domain', key, [key])
    return domains.map((domain) => domain.id)
  }

  function requireMayRegister(caller: UserPrincipal | undefined): void {
    if (deps.allowSelfRegister || caller !== undefined) return
    throw new ServiceError(
      'unauthenticated',
      'failed to perform authentication: registration needs the platform administrator',
    )
  }

  return {
    requireMayRegister,
    async create(caller, input) {
      const role = input.role ?? 'user'
      requireMayRegister(caller)
      if (role === 'admin' && caller === undefined)
        throw new ServiceError(
          'unauthenticated',
          'failed to perform authentication: only the platform administrator may set a role',
        )
      const names = identityOf(input)
      requirePassword(input.credentials.secret, '/credentials/secret')
      if (caller !== undefined && (role === 'admin' || !deps.allowSelfRegister)) access.requirePlatformAdmin(caller)
      const secretHash = await hashPassword(input.credentials.secret)
      const id = newId()
      return await journal.change(caller ?? 'system', async (tx, record) => {
        const user = await insertUser(
          tx,
          {
            id,
            ...names,
            secretHash,
            tags: input.tags ?? [],
            metadata: input.metadata ?? {},
            profilePicture: input.profile_picture ?? null,
            role,
            status: input.status ?? 'enabled',
            createdBy: caller?.id ?? null,
          },
          uniqueNames,
        )
        record({
          operation: 'user.create',
          entityKeys: [user.key],
          attributes: { id, email: user.email, username: user.username, status: user.status },
        })
        return user
      })
    },
    getProfile: (caller) => requireUser(caller.id),
    async get(caller, id) {
      const user = await requireUser(id)
      const seesAll = caller.isPlatformAdmin || caller.id === user.id || user.createdBy === caller.id
      return { user, isStranger: !seesAll }
    },
    async list(caller, query) {
      const where = allOf(conditionsOf(caller, query))
      const [total, items] = await Promise.all([
        countUsers(database.db, where),
        query.only_total === true
          ? []
          : listUsers(database.db, {
              where,
              order: query.order,
              dir: query.dir ?? 'asc',
              offset: query.offset,
              limit: query.limit,
            }),
      ])
      return { total, offset: query.offset, limit: query.limit, items }
    },
    async update(caller, id, input) {
      const user = await requireUser(id)
      requireSelfOrAdmin(caller, user)
      const change = {
        ...(input.first_name === undefined ? {} : { firstName: input.first_name }),
        ...(input.last_name === undefined ? {} : { lastName: input.last_name }),
        ...(input.metadata === undefined ? {} : { metadata: input.metadata }),
      }
      return await journal.change(caller, async (tx, record) => {
        const updated = await updateUser(tx, id, change, caller.id, uniqueNames)
        if (updated === undefined) throw new ServiceError('not_found', NOT_FOUND)
        // The fields that we know and no others: a body may hold anything (decision 43).
        const { first_name, last_name, metadata } = input
        record({
          operation: 'user.update',
          entityKeys: [user.key],
          attributes: { id, first_name, last_name, metadata },
        })
        return updated
      })
    },
    async changeSecret(caller, oldSecret, newSecret) {
      const user = await requireUser(caller.id)
      requirePassword(newSecret, '/new_secret')
      if (!(await verifyPassword(oldSecret, user.secretHash))) {
        throw new ServiceError('unauthenticated', 'failed to perform authentication: wrong old_secret')
      }
      const secretHash = await hashPassword(newSecret)
      return await journal.change(caller, async (tx, record) => {
        // Of two changes at once the later one no longer knows the old password.
        if ((await lockUser(tx, user.id))?.secretHash !== user.secretHash) {
          throw new ServiceError('unauthenticated', 'failed to perform authentication: wrong old_secret')
        }
        const updated = await updateUser(tx, user.id, { secretHash }, caller.id, uniqueNames)
        if (updated === undefined) throw new ServiceError('not_found', NOT_FOUND)
        await revokeSessionsOf(tx, user.key, caller.sessionId)
        record({ operation: 'user.reset_secret', entityKeys: [user.key], attributes: { id: user.id } })
        return updated
      })
    },
    async setStatus(caller, id, status, { force } = { force: false }) {
      const user = await requireUser(id)
      if (user.createdBy !== caller.id) requireSelfOrAdmin(caller, user)
      if (user.status === status) return user
      return await journal.change(caller, async (tx, record) => {
        const takenOver = status === 'disabled' ? await releaseAdministered(tx, caller, user, force) : []
        const updated = await updateUser(tx, id, { status }, caller.id, uniqueNames)
        if (updated === undefined) throw new ServiceError('not_found', NOT_FOUND)
        if (status === 'disabled') await revokeSessionsOf(tx, user.key)
        record({
          operation: status === 'enabled' ? 'user.enable' : 'user.disable',
          entityKeys: takenOver.length === 0 ? [user.key] : [user.key, caller.key],
          attributes: { id, status, ...(takenOver.length === 0 ? {} : { taken_over: takenOver }) },
        })
        return updated
      })
    },
    findLogin: (login) => findUserByLogin(database.db, login),
    prepare: () => applyUniqueNamesSwitch(database.db, uniqueNames),
  }
}

type Names = Pick<UserRecord, 'firstName' | 'lastName' | 'name' | 'email' | 'username'>

function required(path: string): ServiceError {
  return new ServiceError('malformed', `${path.slice(1).replaceAll('/', '.')} is required`, {
    details: [{ path, message: 'is required' }],
  })
}

/** Reads the newer shape, or the older one with `name` and `credentials.identity` (decision 50). */
function identityOf(input: NewUser): Names {
  const { identity } = input.credentials
  const isOlder =
    identity !== undefined ||
    (input.name !== undefined && input.first_name === undefined && input.last_name === undefined)
  if (isOlder) {
    const login = identity ?? input.email ?? input.credentials.username
    if (login === undefined || login === '') throw required('/credentials/identity')
    const isEmail = login.includes('@')
    return {
      firstName: input.first_name || null,
      lastName: input.last_name || null,
      name: input.name || null,
      email: isEmail ? requireEmail(login) : input.email === undefined ? null : requireEmail(input.email),
      username: isEmail
        ? input.credentials.username === undefined
          ? null
          : requireUsername(input.credentials.username)
        : requireUsername(login),
    }
  }
  if (input.first_name === undefined || input.first_name === '') throw required('/first_name')
  if (input.last_name === undefined || input.last_name === '') throw required('/last_name')
  if (input.email === undefined || input.email === '') throw required('/email')
  if (input.credentials.username === undefined || input.credentials.username === '')
    throw required('/credentials/username')
  return {
    firstName: input.first_name,
    lastName: input.last_name,
    name: input.name ?? null,
    email: requireEmail(input.email),
    username: requireUsername(input.credentials.username),
  }
}

function conditionsOf(caller: UserPrincipal, query: UserQuery): RawBuilder<SqlBool>[] {
  const conditions: RawBuilder<SqlBool>[] = []
  const owned = sql<SqlBool>`u.created_by = ${caller.id}`
  const shared = sql<SqlBool>`EXISTS (SELECT 1 FROM grants mine JOIN grants theirs ON theirs.domain_key = mine.domain_key AND theirs.entity_type = 'domain'
    WHERE mine.user_key = ${caller.key} AND mine.entity_type = 'domain' AND theirs.user_key = u.key)`
  if (query.visibility === 'mine') conditions.push(owned)
  else if (query.visibility === 'shared') conditions.push(shared)
  else if (!caller.isPlatformAdmin) conditions.push(sql<SqlBool>`(u.key = ${caller.key} OR ${owned} OR ${shared})`)
  if (query.status !== 'all') conditions.push(sql<SqlBool>`u.status = ${query.status}`)
  if (query.metadata !== undefined) conditions.push(containsMetadata('u.metadata', parseMetadataFilter(query.metadata)))
  if (query.identity !== undefined)
    conditions.push(sql<SqlBool>`(${contains('u.email', query.identity)} OR ${contains('u.username', query.identity)})`)
  if (query.username !== undefined) conditions.push(contains('u.username', query.username))
  if (query.email !== undefined) conditions.push(contains('u.email', query.email))
  if (query.first_name !== undefined) conditions.push(contains('u.first_name', query.first_name))
  if (query.last_name !== undefined) conditions.push(contains('u.last_name', query.last_name))
  if (query.name !== undefined) {
    conditions.push(
      sql<SqlBool>`(${contains('u.name', query.name)} OR ${contains('u.first_name', query.name)} OR ${contains('u.last_name', query.name)})`,
    )
  }
  if (query.tag !== undefined) conditions.push(sql<SqlBool>`${query.tag} = ANY (u.tags)`)
  if (query.id !== undefined) conditions.push(isId(query.id) ? sql<SqlBool>`u.id = ${query.id}` : sql<SqlBool>`false`)
  return conditions
}
