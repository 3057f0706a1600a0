/**
 * Dashboards and preferences of users: what a program with a screen keeps for its user. They belong to one user in one
 * domain; every user who may enter the domain can view a shared dashboard. The server does not read the content.
 */
import { lacksScope } from '#api/identity/index.ts'
import type { AccessPolicy, DomainAccess, ScopeOperation, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId, newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import {
  countDashboards,
  deleteDashboard,
  findDashboard,
  findPreferences,
  insertDashboard,
  listDashboards,
  storePreferences,
  updateDashboard,
} from './repository.ts'
import type { DashboardRecord, PreferencesRecord, Viewer, WholeDashboard } from './repository.ts'
import { MAX_CONTENT_BYTES, MAX_DASHBOARDS, MAX_PREFERENCES_BYTES } from './schema.ts'
import type { DashboardQuery, DashboardUpdate, NewDashboard } from './schema.ts'

export class DashboardsService {
  readonly #database: Database
  readonly #access: AccessPolicy

  constructor({ database, access }: { database: Database; access: AccessPolicy }) {
    this.#database = database
    this.#access = access
  }

  /** Throws `conflict` for a user with the maximum number of dashboards in the domain, `too_large` for a large content. */
  async create(caller: UserPrincipal, domainId: string, input: NewDashboard): Promise<WholeDashboard> {
    const { viewer } = await this.#enter(caller, domainId, 'create')
    const id = newId()
    const content = boundedJson(input.content ?? {}, 'content', MAX_CONTENT_BYTES)
    const row = { ...viewer, id, name: input.name, isShared: input.shared ?? false, content }
    const isStored = await this.#database.transaction(async (tx) => await insertDashboard(tx, row, MAX_DASHBOARDS))
    if (!isStored)
      throw new ServiceError(
        'conflict',
        `a user can have at most ${MAX_DASHBOARDS} dashboards in a domain: delete one first`,
      )
    return await this.#find(viewer, id)
  }

  async list(caller: UserPrincipal, domainId: string, query: DashboardQuery): Promise<Page<DashboardRecord>> {
    const { offset, limit } = query
    const { viewer } = await this.#enter(caller, domainId, 'list')
    const [total, page] = await Promise.all([
      countDashboards(this.#database.db, viewer),
      listDashboards(this.#database.db, viewer, query),
    ])
    return { total, offset, limit, ...page }
  }

  /** Throws the same `not_found` for an unknown dashboard and one that the caller may not view. */
  async get(caller: UserPrincipal, domainId: string, id: string): Promise<WholeDashboard> {
    const { viewer } = await this.#enter(caller, domainId, 'read')
    return await this.#find(viewer, id)
  }

  /** Only the owner may change a dashboard. Throws `forbidden` for a shared dashboard of another user. */
  async update(
    caller: UserPrincipal,
    domainId: string,
    id: string,
    { name, shared, content }: DashboardUpdate,
  ): Promise<WholeDashboard> {
    const { viewer } = await this.#enter(caller, domainId, 'update')
    const { ownerKey } = await this.#find(viewer, id)
    if (ownerKey !== caller.key) throw new ServiceError('forbidden', 'only its owner can change a dashboard')
    await updateDashboard(this.#database.db, id, {
      ...(name === undefined ? {} : { name }),
      ...(shared === undefined ? {} : { isShared: shared }),
      ...(content === undefined ? {} : { content: boundedJson(content, 'content', MAX_CONTENT_BYTES) }),
    })
    return await this.#find(viewer, id)
  }

  /** The owner may remove a dashboard, and an administrator of the domain a shared one. */
  async remove(caller: UserPrincipal, domainId: string, id: string): Promise<void> {
    const { domain, viewer } = await this.#enter(caller, domainId, 'delete')
    const { ownerKey } = await this.#find(viewer, id)
    if (ownerKey !== caller.key && !domain.isAdmin)
      throw new ServiceError('forbidden', 'only its owner or an administrator of the domain can delete a dashboard')
    await deleteDashboard(this.#database.db, id)
  }

  async preferences(caller: UserPrincipal, domainId: string): Promise<PreferencesRecord | undefined> {
    const { viewer } = await this.#enter(caller, domainId, 'read')
    return await findPreferences(this.#database.db, viewer)
  }

  /** Replaces all of them. */
  async setPreferences(
    caller: UserPrincipal,
    domainId: string,
    preferences: Record<string, unknown>,
  ): Promise<PreferencesRecord | undefined> {
    const { viewer } = await this.#enter(caller, domainId, 'update')
    await storePreferences(this.#database.db, viewer, boundedJson(preferences, 'preferences', MAX_PREFERENCES_BYTES))
    return await findPreferences(this.#database.db, viewer)
  }

  /** Throws `forbidden` for a personal access token without a scope on the dashboards of the domain. */
  async #enter(
    caller: UserPrincipal,
    domainId: string,
    operation: ScopeOperation,
  ): Promise<{ domain: DomainAccess; viewer: Viewer }> {
    const domain = await this.#access.enter(caller, domainId)
    const { scope } = caller
    if (scope !== undefined && !scope.coversAll('dashboards', operation, domain.domainKey))
      throw lacksScope({ type: 'dashboards', operation })
    return { domain, viewer: { domainKey: domain.domainKey, userKey: caller.key } }
  }

  async #find(viewer: Viewer, id: string): Promise<WholeDashboard> {
    const found = isId(id) ? await findDashboard(this.#database.db, viewer, id) : undefined
    if (found === undefined) throw new ServiceError('not_found', 'entity not found')
    return found
  }
}

/** Returns the JSON text. Throws `too_large`. */
function boundedJson(value: Record<string, unknown>, field: string, maxBytes: number): string {
  const text = JSON.stringify(value)
  if (Buffer.byteLength(text) > maxBytes)
    throw new ServiceError('too_large', `${field} must be at most ${maxBytes} bytes of JSON`)
  return text
}
