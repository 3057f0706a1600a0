/** Viewing and setting quotas, for platform administrators (contract decision 76). */
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { AccessPolicy, UserPrincipal } from '../access/index.ts'
import type { Journal } from '../journal/index.ts'
import type { QuotaDefaults } from './config.ts'
import type { QuotaValues } from './names.ts'
import type { Quotas } from './quotas.ts'
import { findQuotas, findUserKey, lockQuotas, updateQuotas } from './repository.ts'
import type { Owner } from './repository.ts'
import { presentDomainQuotas, presentUserQuotas } from './schema.ts'
import type { DomainQuotas, NewDomainQuotas, NewUserQuotas, UserQuotas, UserUsage } from './schema.ts'

/** Every call throws `forbidden` for other callers, and for an unknown domain; `not_found` for an unknown user. */
export type QuotasService = {
  getOfDomain(caller: UserPrincipal, domainId: string): Promise<DomainQuotas>
  /** Replaces all own values of the domain; absent and null ones have their default. The change is in force everywhere within a second. */
  setOfDomain(caller: UserPrincipal, domainId: string, input: NewDomainQuotas): Promise<DomainQuotas>
  getOfUser(caller: UserPrincipal, userId: string): Promise<UserQuotas>
  setOfUser(caller: UserPrincipal, userId: string, input: NewUserQuotas): Promise<UserQuotas>
  /** Every user may read their own usage. */
  usageOfUser(caller: UserPrincipal, userId: string): Promise<UserUsage>
}

export type QuotasDeps = {
  database: Database
  journal: Journal
  access: AccessPolicy
  quotas: Quotas
  defaults: QuotaDefaults
}

export function createQuotasService({ database, journal, access, quotas, defaults }: QuotasDeps): QuotasService {
  async function domainOf(caller: UserPrincipal, id: string) {
    access.requirePlatformAdmin(caller)
    return await access.enter(caller, id)
  }

  async function userKeyOf(caller: UserPrincipal, id: string): Promise<number> {
    access.requirePlatformAdmin(caller)
    const key = isId(id) ? await findUserKey(database.db, id) : undefined
    if (key === undefined) throw notFound()
    return key
  }

  const find = async (key: number) => (await findQuotas(database.db, [key])).get(key)?.values ?? {}

  async function set(caller: UserPrincipal, owner: Owner, { key, id }: { key: number; id: string }, own: QuotaValues) {
    await journal.change(caller, async (tx, record) => {
      const before = await lockQuotas(tx, owner, key)
      if (before === undefined) throw notFound()
      await updateQuotas(tx, owner, key, own)
      record({
        operation: `${owner}.update_quotas`,
        ...(owner === 'domain' ? { domainKey: key } : {}),
        entityKeys: [key],
        attributes: { id, before: { quotas: before }, after: { quotas: own } },
      })
    })
    await quotas.settled()
  }

  return {
    async getOfDomain(caller, domainId) {
      const { domainKey } = await domainOf(caller, domainId)
      return presentDomainQuotas(domainId, await find(domainKey), defaults.domain)
    },
    async setOfDomain(caller, domainId, input) {
      const { domainKey } = await domainOf(caller, domainId)
      const own = withoutNulls(input.own)
      await set(caller, 'domain', { key: domainKey, id: domainId }, own)
      return presentDomainQuotas(domainId, own, defaults.domain)
    },
    async getOfUser(caller, userId) {
      return presentUserQuotas(userId, await find(await userKeyOf(caller, userId)), defaults.user)
    },
    async usageOfUser(caller, userId) {
      const key = userId === caller.id ? caller.key : await userKeyOf(caller, userId)
      return { user_id: userId, quotas: await quotas.usageOfUser(key) }
    },
    async setOfUser(caller, userId, input) {
      const key = await userKeyOf(caller, userId)
      const own = withoutNulls(input.own)
      await set(caller, 'user', { key, id: userId }, own)
      return presentUserQuotas(userId, own, defaults.user)
    },
  }
}

const notFound = () => new ServiceError('not_found', 'entity not found')

function withoutNulls(values: Readonly<Record<string, number | null | undefined>>): QuotaValues {
  return Object.fromEntries(
    Object.entries(values).filter((entry): entry is [string, number] => typeof entry[1] === 'number'),
  )
}
