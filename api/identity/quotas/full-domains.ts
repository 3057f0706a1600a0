/**
 * Domains that have as much of a quota as they may. The figures are read about once a second for the domains that were asked about, and no
 * caller waits for one: a domain exceeds its quota by what is added until they are known.
 */
import type { DomainMeter } from './domain-meter.ts'

/** Domains that are remembered as full; without one of them, its next addition is judged again. */
const MAX_FULL = 10_000

export class FullDomains {
  readonly #meter: Pick<DomainMeter, 'isFull'>
  readonly #full = new Set<number>()

  constructor(meter: Pick<DomainMeter, 'isFull'>) {
    this.#meter = meter
  }

  /** False while the figure is not known yet. */
  has(domainKey: number): boolean {
    // A full one stays full while nothing newer is known.
    const isFull = this.#meter.isFull(domainKey) ?? this.#full.has(domainKey)
    if (!isFull) this.#full.delete(domainKey)
    else if (this.#full.size < MAX_FULL) this.#full.add(domainKey)
    return isFull
  }

  /** Returns the domains for which `has` returned true and still does. */
  known(): number[] {
    return [...this.#full].filter((domainKey) => this.has(domainKey))
  }
}
