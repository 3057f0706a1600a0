/**
 * The quotas in force, in memory. All values that are set are loaded at the start, and those of changed domains and users again when
 * the journal says so, so a change is in force in all processes within a second. Without the database the last known values apply.
 */
import type { Queryable, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sleep } from '#core/time.ts'
import type { EntityFacts } from '../access/index.ts'
import { sumEntityCounts } from '../listing/index.ts'
import type { QuotaDefaults } from './config.ts'
import { DayCounts } from './day-counts.ts'
import { addToday, keptByDomain, secondsOfToday, usedToday } from './days.ts'
import { DAILY_QUOTAS, DOMAIN_QUOTAS, KEPT_QUOTA, USER_QUOTAS } from './names.ts'
import type { DailyQuota, DomainQuota, QuotaValues, UserQuota } from './names.ts'
import { findQuotas, lockOwner } from './repository.ts'
import type { StoredQuotas } from './repository.ts'

/** The operations of the journal that change quotas. */
export const QUOTA_OPERATIONS: ReadonlySet<string> = new Set(['domain.update_quotas', 'user.update_quotas'])
const RETRY_MS = 1000
const NOTIFICATIONS = 'notifications_per_day'

/** Returns how much of a quota a domain or a user uses. */
export type QuotaMeter = (ownerKey: number) => Promise<number>

/** `limit` null: no limit; `used` null: not measured. */
export type QuotaUsage = { limit: number | null; used: number | null }

export class Quotas {
  readonly #db: Queryable
  readonly #logger: Logger
  readonly #defaults: QuotaDefaults
  readonly #stopping = new AbortController()
  readonly #meters = new Map<DomainQuota, QuotaMeter>()
  /** Notifications of domains without a limit. */
  readonly #notifications: DayCounts
  readonly #metersOfUsers = new Map<UserQuota, QuotaMeter>()
  #set = new Map<number, StoredQuotas>()
  /** The quotas of domains by id. */
  #byDomainId = new Map<string, QuotaValues<DomainQuota>>()
  /** The keys that are to be loaded; 'all' after the journal could not say which. */
  #stale: Set<number> | 'all' = new Set()
  #loading: Promise<void> | undefined

  constructor({ db, logger, defaults }: { db: Queryable; logger: Logger; defaults: QuotaDefaults }) {
    this.#db = db
    this.#logger = logger
    this.#defaults = defaults
    this.#notifications = new DayCounts({ db, name: NOTIFICATIONS, source: '', logger })
    for (const type of ['client', 'channel', 'group'] as const)
      this.measure(`${type}s`, (domainKey) => sumEntityCounts(db, type, [domainKey], undefined))
    this.measure(KEPT_QUOTA, (domainKey) => keptByDomain(db, domainKey))
    for (const name of DAILY_QUOTAS)
      this.measure(name, async (domainKey) => Math.floor((await usedToday(db, name, [domainKey])).get(domainKey) ?? 0))
  }

  /** Registers how the use of a quota is measured, for `usage`. */
  measure(name: DomainQuota, meter: QuotaMeter): void {
    this.#meters.set(name, meter)
  }

  /** Registers how the use of a quota of users is measured, for `usageOfUser`. */
  measureOfUser(name: UserQuota, meter: QuotaMeter): void {
    this.#metersOfUsers.set(name, meter)
  }

  /** The limits of a domain, and what is used of those that are measured. */
  async usage(domainKey: number): Promise<Record<DomainQuota, QuotaUsage>> {
    await this.#notifications.flush()
    const limitOf = (name: DomainQuota) => this.ofDomain(domainKey, name)
    return await usageOf(domainKey, { names: namesOf(DOMAIN_QUOTAS), meters: this.#meters, limitOf })
  }

  /** The limits of a user, and what is used of those that are measured. */
  async usageOfUser(userKey: number): Promise<Record<UserQuota, QuotaUsage>> {
    const limitOf = (name: UserQuota) => this.ofUser(userKey, name)
    return await usageOf(userKey, { names: namesOf(USER_QUOTAS), meters: this.#metersOfUsers, limitOf })
  }

  /** Reads all quotas. A change that arrives meanwhile is read again afterwards. */
  async load(): Promise<void> {
    this.#stale = 'all'
    await this.settled()
  }

  /** Undefined: no limit. */
  ofDomain(domainKey: number, name: DomainQuota): number | undefined {
    return (
      (this.#set.get(domainKey)?.values as QuotaValues<DomainQuota> | undefined)?.[name] ?? this.#defaults.domain[name]
    )
  }

  /** Returns the limit of a domain by its id. Undefined: no limit. */
  ofDomainId(domainId: string, name: DomainQuota): number | undefined {
    return this.#byDomainId.get(domainId)?.[name] ?? this.#defaults.domain[name]
  }

  /** Undefined: no limit. */
  ofUser(userKey: number, name: UserQuota): number | undefined {
    return (this.#set.get(userKey)?.values as QuotaValues<UserQuota> | undefined)?.[name] ?? this.#defaults.user[name]
  }

  /**
   * Call it in the transaction that adds to the domain, before anything else in it. `count` returns how many there are; it is called only
   * with a limit, while no other transaction adds any. Throws `quota_exceeded` when the added ones exceed the limit.
   */
  async requireRoom(
    tx: Transaction,
    domainKey: number,
    name: DomainQuota,
    added: number,
    count: (tx: Transaction) => Promise<number>,
  ): Promise<void> {
    const limit = this.ofDomain(domainKey, name)
    if (limit === undefined || added === 0) return
    await lockOwner(tx, domainKey)
    requireWithin({ owner: 'domain', noun: DOMAIN_QUOTAS[name].noun, limit, used: await count(tx), added })
  }

  /** Does the same as `requireRoom` for clients, channels or groups, and counts them. */
  async requireEntities(tx: Transaction, domainKey: number, type: EntityFacts['type'], added: number): Promise<void> {
    await this.requireRoom(tx, domainKey, `${type}s`, added, (db) => sumEntityCounts(db, type, [domainKey], undefined))
  }

  /** Does the same as `requireRoom` for a quota of a user. */
  async requireRoomOfUser(
    tx: Transaction,
    userKey: number,
    name: UserQuota,
    added: number,
    count: (tx: Transaction) => Promise<number>,
  ): Promise<void> {
    const limit = this.ofUser(userKey, name)
    if (limit === undefined || added === 0) return
    await lockOwner(tx, userKey)
    requireWithin({ owner: 'user', noun: USER_QUOTAS[name].noun, limit, used: await count(tx), added })
  }

  /**
   * A notification of the domain is about to be sent. Adds it to those of today, of all processes together; false: nothing was added,
   * because it exceeds the limit. Without a limit it costs no statement: all of a domain would wait for the same row.
   */
  async spendNotification({ domainKey, domainId }: { domainKey: number; domainId: string }): Promise<boolean> {
    const limit = this.ofDomain(domainKey, NOTIFICATIONS)
    if (limit === undefined) {
      this.#notifications.add(domainId, 1)
      return true
    }
    // Notifications may be unwritten from before the domain had a limit.
    if (this.#notifications.unwritten(domainId) > 0) await this.#notifications.flush()
    return await addToday(this.#db, { domainKey, name: NOTIFICATIONS, added: 1, limit })
  }

  /** Adds to what the domain has used today, of all processes together. Throws `rate_limited` until the next day beyond the limit. */
  async requireToday(domainKey: number, name: DailyQuota, added = 1): Promise<void> {
    const limit = this.ofDomain(domainKey, name)
    if (!(await addToday(this.#db, { domainKey, name, added, limit }))) throw usedUp(name, limit ?? 0)
  }

  /** A listener of the journal. */
  invalidate(keys: readonly number[], operations: ReadonlySet<string>): void {
    if ([...QUOTA_OPERATIONS].every((operation) => !operations.has(operation))) return
    if (this.#stale !== 'all') for (const key of keys) this.#stale.add(key)
    void this.settled()
  }

  invalidateAll(): void {
    this.#stale = 'all'
    void this.settled()
  }

  /** Resolves when the changes that this process knows of are in force. */
  settled(): Promise<void> {
    this.#loading ??= this.#reload().finally(() => (this.#loading = undefined))
    return this.#loading
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#loading
    await this.#notifications.stop()
  }

  async #reload(): Promise<void> {
    const { signal } = this.#stopping
    while (!signal.aborted && (this.#stale === 'all' || this.#stale.size > 0)) {
      const stale = this.#stale
      this.#stale = new Set()
      try {
        const found = await findQuotas(this.#db, stale === 'all' ? undefined : [...stale])
        if (stale === 'all') this.#set = found
        else {
          for (const key of stale) this.#set.delete(key)
          for (const [key, stored] of found) this.#set.set(key, stored)
        }
        this.#byDomainId = new Map(
          [...this.#set.values()].flatMap(({ domainId, values }) => (domainId === null ? [] : [[domainId, values]])),
        )
      } catch (error) {
        this.#stale = union(stale, this.#stale)
        this.#logger.warn({ err: error }, 'failed to read changed quotas; retrying')
        await sleep(RETRY_MS, signal).catch(() => undefined)
      }
    }
  }
}

/** The daily quota of a domain is used up until midnight. */
export function usedUp(name: DailyQuota, limit: number): ServiceError {
  return new ServiceError(
    'rate_limited',
    `the quota of the domain is ${limit} ${DOMAIN_QUOTAS[name].noun}, and used up until midnight in UTC`,
    { retryAfterSeconds: secondsOfToday(Date.now()) },
  )
}

const namesOf = <N extends string>(rules: Readonly<Record<N, unknown>>) => Object.keys(rules) as N[]

type Measured<N extends string> = {
  names: readonly N[]
  meters: ReadonlyMap<N, QuotaMeter>
  limitOf: (name: N) => number | undefined
}

async function usageOf<N extends string>(
  ownerKey: number,
  { names, meters, limitOf }: Measured<N>,
): Promise<Record<N, QuotaUsage>> {
  const found = await Promise.all(
    names.map(async (name): Promise<[N, QuotaUsage]> => {
      const used = (await meters.get(name)?.(ownerKey)) ?? null
      return [name, { limit: limitOf(name) ?? null, used }]
    }),
  )
  return Object.fromEntries(found) as Record<N, QuotaUsage>
}

function union(one: Set<number> | 'all', other: Set<number> | 'all'): Set<number> | 'all' {
  return one === 'all' || other === 'all' ? 'all' : new Set([...one, ...other])
}

type Room = { owner: string; noun: string; limit: number; used: number; added: number }

/** Throws `quota_exceeded`. */
export function requireWithin({ owner, noun, limit, used, added }: Room): void {
  if (used + added > limit)
    throw new ServiceError(
      'quota_exceeded',
      `the quota of the ${owner} is ${limit} ${noun}; ${used} are used, ${added} more were requested`,
    )
}
