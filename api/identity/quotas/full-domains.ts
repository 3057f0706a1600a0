/**
 * Domains that have as much of a quota as they may. The figures are read about once a second for the domains that were asked about, and no
 * caller waits for one: a domain exceeds its quota by what is added until they are known.
 */
import type { DomainQuota } from './names.ts'
import type { Quotas } from './quotas.ts'
import type { RefreshedUsage } from './refreshed-usage.ts'

/** Domains that are remembered as full; without one of them, its next addition is judged again. */
const MAX_FULL = 10_000

export class FullDomains {
  readonly #quotas: Pick<Quotas, 'ofDomain'>
  readonly #name: DomainQuota
  readonly #usage: Pick<RefreshedUsage, 'peek'>
  readonly #full = new Set<number>()

  constructor(quotas: Pick<Quotas, 'ofDomain'>, name: DomainQuota, usage: Pick<RefreshedUsage, 'peek'>) {
    this.#quotas = quotas
    this.#name = name
    this.#usage = usage
  }

  /** False while the figure is not known yet. */
  has(domainKey: number): boolean {
    const limit = this.#quotas.ofDomain(domainKey, this.#name)
    const used = limit === undefined ? undefined : this.#usage.peek(domainKey)
    // A full one stays full while nothing newer is known.
    const isFull = limit !== undefined && (used === undefined ? this.#full.has(domainKey) : used >= limit)
    if (!isFull) this.#full.delete(domainKey)
    else if (this.#full.size < MAX_FULL) this.#full.add(domainKey)
    return isFull
  }

  /** Those of which `has` was true, and still is. */
  known(): number[] {
    return [...this.#full].filter((domainKey) => this.has(domainKey))
  }
}
