/**
 * The quota `stored_records` of domains (contract decision 76). The figures are those of the projections, read about once a second for
 * the domains that publish, so that a message costs no query: a domain exceeds its quota by what arrives until they are in force.
 */
import type { DomainMeter } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { INGEST_METRICS } from './metrics.ts'

/** Messages per second that a full domain takes from publishers that cannot be refused. */
export const FULL_MESSAGES_PER_SECOND = 1

export class StoredRecords {
  readonly #meter: Pick<DomainMeter, 'isFull' | 'limitOf' | 'ready' | 'used'>

  constructor(meter: Pick<DomainMeter, 'isFull' | 'limitOf' | 'ready' | 'used'>) {
    this.#meter = meter
  }

  /** Whether the domain stores as much as its quota allows. A promise while the figure must be read first. */
  isFull(domainKey: number): boolean | Promise<boolean> {
    const isFull = this.#meter.isFull(domainKey)
    if (isFull !== undefined) return isFull
    // If there is no figure after this, the database does not answer, and storing decides.
    return Promise.resolve(this.#meter.ready(domainKey)).then(() => this.#meter.isFull(domainKey) === true)
  }

  /** Whether the domain stores as much as its quota allows, by the figure that is known. */
  isKnownFull(domainKey: number): boolean {
    const limit = this.#meter.limitOf(domainKey)
    return limit !== undefined && (this.#meter.used(domainKey) ?? 0) >= limit
  }

  refusal(domainKey: number): ServiceError {
    INGEST_METRICS.refusals.add({ reason: 'quota' })
    const limit = this.#meter.limitOf(domainKey) ?? 0
    const used = Math.max(limit, this.#meter.used(domainKey) ?? 0)
    return new ServiceError('quota_exceeded', `the quota of the domain is ${limit} stored records; ${used} are stored`)
  }
}
