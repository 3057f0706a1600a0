/**
 * The quota `cpu_seconds_per_day` of domains (contract decision 76): what ended runs used is added up in memory and written once a second,
 * so that the end of a run costs no statement. All managers together are counted, each with a delay of some seconds.
 */
import { DayCounts, RefreshedUsage, usedTodayByDomains } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { TaskQuotas } from '../access/access.ts'

const QUOTA = 'cpu_seconds_per_day'
const DAY_MS = 86_400_000

export type CpuQuotaDeps = {
  database: Database
  quotas: TaskQuotas
  /** The manager that counts. */
  managerId: string
  logger: Logger
}

export class CpuQuota {
  readonly #quotas: TaskQuotas
  /** Of domains and days, so that the figure of a day says nothing about the next one. */
  readonly #usage: RefreshedUsage<string>
  readonly #counts: DayCounts

  /** Starts to write. `stop` writes the rest. */
  constructor({ database: { db }, quotas, managerId, logger }: CpuQuotaDeps) {
    this.#quotas = quotas
    this.#usage = new RefreshedUsage({
      read: async (ofToday) => {
        const used = await usedTodayByDomains(db, QUOTA, ofToday.map(domainOf))
        return new Map(ofToday.map((name) => [name, used.get(domainOf(name)) ?? 0]))
      },
      logger,
      // The last figure of the day is a lower bound however old it is.
      maxAgeMs: Infinity,
    })
    this.#counts = new DayCounts({
      db,
      name: QUOTA,
      source: managerId,
      logger,
      onWritten: (domainId, seconds) => this.#usage.add(ofToday(domainId), seconds),
    })
  }

  /** A run of the domain has ended. */
  used(domainId: string, cpuMs: number): void {
    this.#counts.add(domainId, cpuMs / 1000)
  }

  /** Undefined: no limit. */
  limitOf(domainId: string | null | undefined): number | undefined {
    return domainId === null || domainId === undefined ? undefined : this.#quotas.ofDomainId(domainId, QUOTA)
  }

  /** Whether runs of the domain have used the processor as long as they may today. */
  isUsedUp(domainId: string | null | undefined): boolean {
    const limit = this.limitOf(domainId)
    if (limit === undefined || domainId === null || domainId === undefined) return false
    return (this.#usage.peek(ofToday(domainId)) ?? 0) + this.#counts.unwritten(domainId) >= limit
  }

  async stop(): Promise<void> {
    await this.#counts.stop()
  }
}

/** Names the domain on the present day of UTC. */
const ofToday = (domainId: string) => `${domainId} ${Math.floor(Date.now() / DAY_MS)}`
const domainOf = (name: string) => name.slice(0, name.indexOf(' '))
