/**
 * Enables, disables and deletes users, and keeps the last administrators of domains and the platform (contract 2.4,
 * decision 46).
 */
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { AccessPolicy, UserPrincipal } from '../access/index.ts'
import type { RemovedUser } from '../roles/index.ts'
import { grantAdmin, lockSoleAdminDomains, removeUserEverywhere } from '../roles/index.ts'
import { revokeSessionsOf } from '../tokens/index.ts'
import type { ChangeDeps, Decision } from './changes.ts'
import { changeUser } from './changes.ts'
import { dropMailedTokens } from './mailed-tokens.ts'
import type { UserRecord } from './repository.ts'
import { lockIsSolePlatformAdmin } from './repository.ts'
import { getUser, requireSelfOrAdmin, requireUnscopedToken } from './rules.ts'

export type StatusDeps = ChangeDeps & { database: Database; access: AccessPolicy }

export class Statuses {
  readonly #deps: StatusDeps

  constructor(deps: StatusDeps) {
    this.#deps = deps
  }

  /**
   * Requires the user, their owner or a platform administrator. Idempotent (decision 13). Disabling ends every session.
   * Throws `invalid_state` for the last administrator of a domain, unless a platform administrator forces it and takes
   * over, and for the last platform administrator.
   */
  async setStatus(
    caller: UserPrincipal,
    id: string,
    status: 'enabled' | 'disabled',
    { force }: { force: boolean } = { force: false },
  ): Promise<UserRecord> {
    const user = await getUser(this.#deps.database.db, id)
    // The owner of a user who became a platform administrator must not gain power over the platform.
    if (user.createdBy === caller.id && user.role !== 'admin') requireUnscopedToken(caller)
    else requireSelfOrAdmin(this.#deps.access, caller, user)
    if (user.status === status) return user
    if (status === 'enabled')
      return await changeUser(this.#deps, caller, id, 'user.enable', (_tx, { status: now }) =>
        now === status ? undefined : { change: { status } },
      )
    return await changeUser(
      this.#deps,
      caller,
      id,
      'user.disable',
      (tx, locked, domains: string[]) => this.#disable(tx, caller, locked, domains),
      (tx) => this.#releaseDomains(tx, caller, user.key, force),
    )
  }

  /**
   * Requires the user or a platform administrator. Ends all logins and tokens immediately and removes the user from
   * every role. Email, username and names remain in use until the record is removed after its grace period. Throws the
   * same errors as `setStatus`.
   */
  async remove(caller: UserPrincipal, id: string, { force }: { force: boolean } = { force: false }): Promise<void> {
    const user = await getUser(this.#deps.database.db, id)
    requireSelfOrAdmin(this.#deps.access, caller, user)
    await changeUser(
      this.#deps,
      caller,
      id,
      'user.delete',
      async (tx, locked, removed: RemovedUser) => {
        await this.#requireNotSolePlatformAdmin(tx, locked)
        await revokeSessionsOf(tx, locked.key)
        await dropMailedTokens(tx, locked.key, 'recovery')
        await dropMailedTokens(tx, locked.key, 'verification')
        return {
          change: { status: 'deleted' },
          alsoChanged: removed.entityKeys,
          attributes: this.#takenOver(removed.takenOver),
        }
      },
      (tx) => removeUserEverywhere(tx, user.key, force ? { key: caller.key } : undefined),
    )
  }

  async #requireNotSolePlatformAdmin(tx: Transaction, user: UserRecord): Promise<void> {
    if (user.role === 'admin' && user.status === 'enabled' && (await lockIsSolePlatformAdmin(tx, user.key)))
      throw new ServiceError('invalid_state', 'the user is the only platform administrator')
  }

  /** Ensures that no domain loses its last administrator. Returns the domains that the caller takes over. */
  async #releaseDomains(tx: Transaction, caller: UserPrincipal, userKey: number, force: boolean): Promise<string[]> {
    const domains = await lockSoleAdminDomains(tx, userKey)
    const first = domains[0]
    if (first === undefined) return []
    if (!force || caller.key === userKey)
      throw new ServiceError(
        'invalid_state',
        `the user is the only administrator of the domain ${first.id}: add another administrator first`,
      )
    this.#deps.access.requirePlatformAdmin(caller)
    for (const { key } of domains) await grantAdmin(tx, caller.key, 'domain', key, [key])
    return domains.map((domain) => domain.id)
  }

  #takenOver(domains: readonly string[]) {
    return domains.length === 0 ? {} : { taken_over: domains }
  }

  async #disable(
    tx: Transaction,
    caller: UserPrincipal,
    user: UserRecord,
    domains: readonly string[],
  ): Promise<Decision | undefined> {
    if (user.status === 'disabled' && domains.length === 0) return undefined
    await this.#requireNotSolePlatformAdmin(tx, user)
    await revokeSessionsOf(tx, user.key)
    await dropMailedTokens(tx, user.key, 'recovery')
    const alsoChanged = domains.length === 0 ? [] : [caller.key]
    return { change: { status: 'disabled' }, alsoChanged, attributes: this.#takenOver(domains) }
  }
}
