/** The life of a domain: enabled, disabled, frozen, deleted with its grace, and restored (contract 1.2, decisions 13 and 46). */
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { AccessPolicy, DomainAction, UserPrincipal } from '../access/index.ts'
import type { Journal } from '../journal/index.ts'
import { recordDomainChange } from './changes.ts'
import type { DomainRecord, DomainStatus } from './record.ts'
import { findRestorable, lockDomain, updateDomain } from './repository.ts'

export type DomainStatusService = {
  /**
   * Idempotent. Whoever holds the built-in role of a deleted domain restores it so during its grace. A frozen domain is
   * open to the platform administrator alone, so nobody else ends that. Throws `forbidden`.
   */
  enable(caller: UserPrincipal, id: string): Promise<DomainRecord>
  /** Closes the domain to everybody but its administrators, and stops its messages. Idempotent. */
  disable(caller: UserPrincipal, id: string): Promise<DomainRecord>
  /** Closes the domain to everybody but the platform administrator, who alone may do it. Idempotent. */
  freeze(caller: UserPrincipal, id: string): Promise<DomainRecord>
  /** Closes the domain to everybody; the purge takes it away after its grace. */
  remove(caller: UserPrincipal, id: string): Promise<void>
}

const OPERATIONS = {
  enabled: 'domain.enable',
  disabled: 'domain.disable',
  freezed: 'domain.freeze',
  deleted: 'domain.delete',
} as const satisfies Record<DomainStatus, string>

export function createDomainStatusService({
  database,
  journal,
  access,
}: {
  database: Database
  journal: Journal
  access: AccessPolicy
}): DomainStatusService {
  async function setStatus(
    caller: UserPrincipal,
    key: number,
    status: DomainStatus,
    { isRestoring }: { isRestoring: boolean } = { isRestoring: false },
  ): Promise<DomainRecord> {
    return await journal.change(caller, async (tx, record) => {
      const before = await lockDomain(tx, key)
      if (before === undefined)
        throw new ServiceError('forbidden', 'failed to perform authorization: the domain is being removed')
      // Deleted or frozen since the caller entered it: leaving these states is not his.
      if ((before.status === 'deleted' && !isRestoring) || (before.status === 'freezed' && !caller.isPlatformAdmin))
        throw new ServiceError('forbidden', `failed to perform authorization: the domain is ${before.status}`)
      if (before.status === status) return before
      const after = await updateDomain(tx, key, { status }, caller.id)
      recordDomainChange(record, OPERATIONS[status], before, after)
      return after
    })
  }

  async function requireKey(caller: UserPrincipal, id: string, action: DomainAction): Promise<number> {
    const domain = await access.enter(caller, id)
    domain.require(action)
    return domain.domainKey
  }

  /** The key of a deleted domain that the caller may restore. The policy knows no deleted ones, nor do the scopes of a token. */
  async function findRestorableKey(caller: UserPrincipal, id: string): Promise<number | undefined> {
    if (caller.scope !== undefined) return undefined
    const found = isId(id) ? await findRestorable(database.db, id, caller.key) : undefined
    if (found === undefined || (caller.boundDomainKey !== undefined && caller.boundDomainKey !== found.key))
      return undefined
    return found.isAdmin || caller.isPlatformAdmin ? found.key : undefined
  }

  return {
    async enable(caller, id) {
      const restorable = await findRestorableKey(caller, id)
      if (restorable !== undefined) return await setStatus(caller, restorable, 'enabled', { isRestoring: true })
      return await setStatus(caller, await requireKey(caller, id, 'enable'), 'enabled')
    },
    disable: async (caller, id) => await setStatus(caller, await requireKey(caller, id, 'disable'), 'disabled'),
    async freeze(caller, id) {
      access.requirePlatformAdmin(caller)
      return await setStatus(caller, (await access.enter(caller, id)).domainKey, 'freezed')
    },
    async remove(caller, id) {
      await setStatus(caller, await requireKey(caller, id, 'delete'), 'deleted')
    },
  }
}
