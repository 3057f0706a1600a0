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

export type QuotasDeps = {
  database: Database
  journal: Journal
  access: AccessPolicy
  quotas: Quotas
  defaults: QuotaDefaults
}

/** Every call throws `forbidden` for other callers, and for an unknown domain; `not_found` for an unknown user. */
export class QuotasService {
  readonly #database: Database
  readonly #journal: Journal
  readonly #access: AccessPolicy
  readonly #quotas: Quotas
  readonly #defaults: QuotaDefaults

  constructor({ database, journal, access, quotas, defaults }: QuotasDeps) {
    this.#database = database
    this.#journal = journal
    this.#access = access
    this.#quotas = quotas
    this.#defaults = defaults
  }

  async getOfDomain(caller: UserPrincipal, domainId: string): Promise<DomainQuotas> {
    const { domainKey } = await this.#domainOf(caller, domainId)
    return presentDomainQuotas(domainId, await this.#find(domainKey), this.#defaults.domain)
  }

  /** Replaces all own values of the domain; absent and null ones have their default. The change is in force everywhere within a second. */
  async setOfDomain(caller: UserPrincipal, domainId: string, input: NewDomainQuotas): Promise<DomainQuotas> {
    const { domainKey } = await this.#domainOf(caller, domainId)
    const own = withoutNulls(input.own)
    await this.#set(caller, 'domain', { key: domainKey, id: domainId }, own)
    return presentDomainQuotas(domainId, own, this.#defaults.domain)
  }

  async getOfUser(caller: UserPrincipal, userId: string): Promise<UserQuotas> {
    return presentUserQuotas(userId, await this.#find(await this.#userKeyOf(caller, userId)), this.#defaults.user)
  }

  /** Every user may read their own usage. */
  async usageOfUser(caller: UserPrincipal, userId: string): Promise<UserUsage> {
    const key = userId === caller.id ? caller.key : await this.#userKeyOf(caller, userId)
    return { user_id: userId, quotas: await this.#quotas.usageOfUser(key) }
  }

  async setOfUser(caller: UserPrincipal, userId: string, input: NewUserQuotas): Promise<UserQuotas> {
    const key = await this.#userKeyOf(caller, userId)
    const own = withoutNulls(input.own)
    await this.#set(caller, 'user', { key, id: userId }, own)
    return presentUserQuotas(userId, own, this.#defaults.user)
  }

  async #domainOf(caller: UserPrincipal, id: string) {
    this.#access.requirePlatformAdmin(caller)
    return await this.#access.enter(caller, id)
  }

  async #userKeyOf(caller: UserPrincipal, id: string): Promise<number> {
    this.#access.requirePlatformAdmin(caller)
    const key = isId(id) ? await findUserKey(this.#database.db, id) : undefined
    if (key === undefined) throw notFound()
    return key
  }

  async #find(key: number) {
    return (await findQuotas(this.#database.db, [key])).get(key)?.values ?? {}
  }

  async #set(caller: UserPrincipal, owner: Owner, { key, id }: { key: number; id: string }, own: QuotaValues) {
    await this.#journal.change(caller, async (tx, record) => {
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
    await this.#quotas.settled()
  }
}

const notFound = () => new ServiceError('not_found', 'entity not found')

function withoutNulls(values: Readonly<Record<string, number | null | undefined>>): QuotaValues {
  return Object.fromEntries(
    Object.entries(values).filter((entry): entry is [string, number] => typeof entry[1] === 'number'),
  )
}
