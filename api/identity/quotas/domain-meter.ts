/**
 * One counted thing of domains and its limit (docs/decisions/0090): what a domain uses of it is known from memory, so a check costs no statement.
 * Each quota of amounts is a meter with the read that counts it; what follows from a full domain is decided by the room that counts.
 */
import type { RefreshedUsageOptions } from './refreshed-usage.ts'
import { RefreshedUsage } from './refreshed-usage.ts'

export type DomainMeterOptions<Domain extends number | string> = RefreshedUsageOptions<Domain> & {
  /** Undefined: no limit. */
  limitOf: (domain: Domain) => number | undefined
}

export class DomainMeter<Domain extends number | string = number> {
  readonly #usage: RefreshedUsage<Domain>
  /** Undefined: no limit. */
  readonly limitOf: (domain: Domain) => number | undefined

  constructor({ limitOf, ...options }: DomainMeterOptions<Domain>) {
    this.limitOf = limitOf
    this.#usage = new RefreshedUsage(options)
  }

  /** Returns the usage of the domain. Undefined: there is no recent figure, see `ready`. */
  used(domain: Domain): number | undefined {
    return this.#usage.peek(domain)
  }

  /** Resolves when there is a recent figure, or the database does not answer. Undefined: there is no limit, and nothing is read. */
  ready(domain: Domain): Promise<unknown> | undefined {
    return this.limitOf(domain) === undefined ? undefined : this.#usage.find(domain)
  }

  /** Whether the domain has as much as it may; undefined: the figure is not known. */
  isFull(domain: Domain): boolean | undefined {
    const limit = this.limitOf(domain)
    if (limit === undefined) return false
    const used = this.used(domain)
    return used === undefined ? undefined : used >= limit
  }

  /** Call it before a caller is refused. It refreshes the figure as `RefreshedUsage.findNewer` does. */
  async renewed(domain: Domain): Promise<void> {
    await this.#usage.findNewer(domain)
  }

  /** This process committed a change. */
  add(domain: Domain, change: number): void {
    this.#usage.add(domain, change)
  }

  /** This process committed that something is gone: see `RefreshedUsage.removed`. */
  removed(domain: Domain): void {
    this.#usage.removed(domain)
  }
}
