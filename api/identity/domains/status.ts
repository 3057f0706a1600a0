/**
 * The status of a domain: enabled, disabled, frozen, deleted, and restored during the grace period (contract 1.2,
 * decisions 13 and 46).
 */
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { AccessPolicy, DomainAction, UserPrincipal } from '../access/index.ts'
import type { Journal, Recorder } from '../journal/index.ts'
import { recordDomainChange } from './changes.ts'
import { countEntities } from './removal.ts'
import type { DomainRecord, DomainStatus } from './record.ts'
import { findRestorable, lockDomain, updateDomain } from './repository.ts'

const OPERATIONS = {
  enabled: 'domain.enable',
  disabled: 'domain.disable',
  freezed: 'domain.freeze',
  deleted: 'domain.delete',
} as const satisfies Record<DomainStatus, string>

export class DomainStatusService {
  readonly #database: Database
  readonly #journal: Journal
  readonly #access: AccessPolicy

  constructor({ database, journal, access }: { database: Database; journal: Journal; access: AccessPolicy }) {
    this.#database = database
    this.#journal = journal
    this.#access = access
  }

  /**
   * Idempotent. Restores a deleted domain during its grace period, for members of its built-in role. Only platform
   * administrators can enable a frozen domain. Throws `forbidden`.
   */
  async enable(caller: UserPrincipal, id: string): Promise<DomainRecord> {
    const restorable = await this.#findRestorableKey(caller, id)
    if (restorable !== undefined) return await this.#setStatus(caller, restorable, 'enabled', { isRestoring: true })
    return await this.#setStatus(caller, await this.#requireKey(caller, id, 'enable'), 'enabled')
  }

  /** Restricts access to administrators of the domain and stops its messages. Idempotent. */
  async disable(caller: UserPrincipal, id: string): Promise<DomainRecord> {
    return await this.#setStatus(caller, await this.#requireKey(caller, id, 'disable'), 'disabled')
  }

  /** Restricts access to platform administrators. Requires a platform administrator. Idempotent. */
  async freeze(caller: UserPrincipal, id: string): Promise<DomainRecord> {
    this.#access.requirePlatformAdmin(caller)
    return await this.#setStatus(caller, (await this.#access.enter(caller, id)).domainKey, 'freezed')
  }

  /** Denies all access. The purge removes the domain after its grace period. */
  async remove(caller: UserPrincipal, id: string): Promise<void> {
    await this.#setStatus(caller, await this.#requireKey(caller, id, 'delete'), 'deleted')
  }

  async #setStatus(
    caller: UserPrincipal,
    key: number,
    status: DomainStatus,
    { isRestoring }: { isRestoring: boolean } = { isRestoring: false },
  ): Promise<DomainRecord> {
    return await this.#journal.change(caller, async (tx, record) => {
      const before = await lockDomain(tx, key)
      if (before === undefined)
        throw new ServiceError('forbidden', 'failed to perform authorization: the domain is being removed')
      // The status changed after the caller entered the domain: the caller may not leave the states deleted and frozen.
      if ((before.status === 'deleted' && !isRestoring) || (before.status === 'freezed' && !caller.isPlatformAdmin))
        throw new ServiceError('forbidden', `failed to perform authorization: the domain is ${before.status}`)
      if (before.status === status) return before
      // The purge removes its entities after the grace period.
      const recordDeletion: Recorder = (entry) => record({ ...entry, later: () => countEntities(this.#database, key) })
      const after = await updateDomain(tx, key, { status }, caller.id)
      recordDomainChange(status === 'deleted' ? recordDeletion : record, OPERATIONS[status], before, after)
      return after
    })
  }

  async #requireKey(caller: UserPrincipal, id: string, action: DomainAction): Promise<number> {
    const domain = await this.#access.enter(caller, id)
    domain.require(action)
    return domain.domainKey
  }

  /**
   * Returns the key of a deleted domain that the caller may restore. The policy and the scopes of tokens do not cover
   * deleted domains.
   */
  async #findRestorableKey(caller: UserPrincipal, id: string): Promise<number | undefined> {
    if (caller.scope !== undefined) return undefined
    const found = isId(id) ? await findRestorable(this.#database.db, id, caller.key) : undefined
    if (found === undefined || (caller.boundDomainKey !== undefined && caller.boundDomainKey !== found.key))
      return undefined
    return found.isAdmin || caller.isPlatformAdmin ? found.key : undefined
  }
}
