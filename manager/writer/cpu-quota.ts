/**
 * The quota `cpu_seconds_per_day` of domains (contract decision 76): what ended runs used is added up in memory and written once a second,
 * so that the end of a run costs no statement. All managers together are counted, each with a delay of some seconds.
 */
import { RefreshedUsage, addOfDomains, usedTodayByDomains } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sleep } from '#core/time.ts'
import type { TaskQuotas } from '../access/access.ts'

const QUOTA = 'cpu_seconds_per_day'
const WRITE_INTERVAL_MS = 1000
const DAY_MS = 86_400_000

export type CpuQuotaDeps = {
  database: Database
  quotas: TaskQuotas
  /** The manager that counts. */
  managerId: string
  logger: Logger
}

export class CpuQuota {
  readonly #deps: CpuQuotaDeps
  readonly #usage: RefreshedUsage<string>
  readonly #stopping = new AbortController()
  readonly #running: Promise<void>
  /** Milliseconds that are not written yet, by domain. */
  #unwritten = new Map<string, number>()
  /** Days of UTC since the epoch of the figures. */
  readonly #days = new Map<string, number>()

  /** Starts to write. `stop` writes the rest. */
  constructor(deps: CpuQuotaDeps) {
    this.#deps = deps
    const read = async (domainIds: readonly string[]) => {
      const day = today()
      const found = await usedTodayByDomains(deps.database.db, QUOTA, domainIds)
      for (const id of domainIds) this.#days.set(id, day)
      return found
    }
    // The last figure of the day is a lower bound however old it is.
    this.#usage = new RefreshedUsage({
      read,
      logger: deps.logger,
      maxAgeMs: Infinity,
      onEvicted: (id) => void this.#days.delete(id),
    })
    this.#running = this.#loop()
  }

  /** A run of the domain has ended. */
  used(domainId: string, cpuMs: number): void {
    if (cpuMs > 0) this.#unwritten.set(domainId, (this.#unwritten.get(domainId) ?? 0) + cpuMs)
  }

  /** Undefined: no limit. */
  limitOf(domainId: string | null | undefined): number | undefined {
    return domainId === null || domainId === undefined ? undefined : this.#deps.quotas.ofDomainId(domainId, QUOTA)
  }

  /** Whether runs of the domain have used the processor as long as they may today. */
  isUsedUp(domainId: string | null | undefined): boolean {
    const limit = this.limitOf(domainId)
    if (limit === undefined || domainId === null || domainId === undefined) return false
    const known = this.#usage.peek(domainId) ?? 0
    const ofToday = this.#days.get(domainId) === today() ? known : 0
    return ofToday + (this.#unwritten.get(domainId) ?? 0) / 1000 >= limit
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#running
    await this.#write()
  }

  async #loop(): Promise<void> {
    const { signal } = this.#stopping
    while (!signal.aborted) {
      await sleep(WRITE_INTERVAL_MS, signal).catch(() => undefined)
      await this.#write()
    }
  }

  async #write(): Promise<void> {
    const { database, managerId, logger } = this.#deps
    if (this.#unwritten.size === 0) return
    const used = this.#unwritten
    this.#unwritten = new Map()
    try {
      const added = [...used].map(([domainId, cpuMs]) => ({ domainId, added: cpuMs / 1000 }))
      await addOfDomains(database.db, { name: QUOTA, source: managerId, added })
      for (const { domainId, added: seconds } of added) this.#usage.add(domainId, seconds)
    } catch (error) {
      for (const [domainId, cpuMs] of used) this.used(domainId, cpuMs)
      logger.warn({ err: error }, 'failed to store the processor time of runs; retrying')
    }
  }
}

const today = () => Math.floor(Date.now() / DAY_MS)
