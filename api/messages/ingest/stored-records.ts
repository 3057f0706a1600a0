/**
 * The quota `stored_records` of domains (contract decision 76). The figures are those of the projections, read about once a second for
 * the domains that publish, so that a message costs no query: a domain exceeds its quota by what arrives until they are in force.
 */
import type { Quotas, RefreshedUsage } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { INGEST_METRICS } from './metrics.ts'

/** Messages per second that a full domain takes from publishers that cannot be refused. */
export const FULL_MESSAGES_PER_SECOND = 1

export class StoredRecords {
  readonly #quotas: Pick<Quotas, 'ofDomain'>
  readonly #usage: Pick<RefreshedUsage, 'peek' | 'find'>

  constructor(quotas: Pick<Quotas, 'ofDomain'>, usage: Pick<RefreshedUsage, 'peek' | 'find'>) {
    this.#quotas = quotas
    this.#usage = usage
  }

  /** Whether the domain stores as much as its quota allows. A promise while the figure must be read first. */
  isFull(domainKey: number): boolean | Promise<boolean> {
    const limit = this.#quotas.ofDomain(domainKey, 'stored_records')
    if (limit === undefined) return false
    const used = this.#usage.peek(domainKey)
    if (used !== undefined) return used >= limit
    // Without a figure the database does not answer, and storing decides.
    return this.#usage.find(domainKey).then((found) => found !== undefined && found >= limit)
  }

  /** The same by the figure that is known. */
  isKnownFull(domainKey: number): boolean {
    const limit = this.#quotas.ofDomain(domainKey, 'stored_records')
    return limit !== undefined && (this.#usage.peek(domainKey) ?? 0) >= limit
  }

  refusal(domainKey: number): ServiceError {
    INGEST_METRICS.refusals.add({ reason: 'quota' })
    const limit = this.#quotas.ofDomain(domainKey, 'stored_records') ?? 0
    const used = Math.max(limit, this.#usage.peek(domainKey) ?? 0)
    return new ServiceError('quota_exceeded', `the quota of the domain is ${limit} stored records; ${used} are stored`)
  }
}
