/**
 * The quotas `cpu_seconds_per_day` and `run_bytes` of domains (contract decisions 76 and 98): what ended runs used and stored is added up in memory
 * and written once a second, so that the end of a run costs no statement. All managers together are counted, each with a delay of some
 * seconds.
 */
import {
  DOMAIN_QUOTAS,
  DayCounts,
  DomainMeter,
  keptByDomains,
  usedTodayByDomains,
  usedUp,
} from '#api/identity/index.ts'
import type { Database, Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { TaskQuotas } from '../access/access.ts'
import type { RunEnding } from '../model/run.ts'

const DAY_MS = 86_400_000

type Name = 'cpu_seconds_per_day' | 'run_bytes'

type Kind = {
  /** What the last figures are about: the figure of a day says nothing about the next one. */
  period: () => number
  read: (db: Queryable, domainIds: readonly string[]) => Promise<ReadonlyMap<string, number>>
  refusal: (limit: number) => ServiceError
}

const KINDS: Readonly<Record<Name, Kind>> = {
  cpu_seconds_per_day: {
    period: () => Math.floor(Date.now() / DAY_MS),
    read: async (db, domainIds) => await usedTodayByDomains(db, 'cpu_seconds_per_day', domainIds),
    refusal: (limit) => usedUp('cpu_seconds_per_day', limit),
  },
  run_bytes: {
    period: () => 0,
    read: keptByDomains,
    refusal: (limit) =>
      new ServiceError(
        'quota_exceeded',
        `the quota of the domain is ${limit} ${DOMAIN_QUOTAS.run_bytes.noun}, and used up: delete tasks, or wait until old runs are removed`,
      ),
  },
}

export type CountedQuotaDeps = {
  name: Name
  database: Database
  quotas: TaskQuotas
  /** The manager that counts. */
  managerId: string
  logger: Logger
}

export class CountedQuota {
  readonly #name: Name
  readonly #quotas: TaskQuotas
  /** The amounts by domain and period. */
  readonly #meter: DomainMeter<string>
  readonly #counts: DayCounts

  /** Starts to write. `stop` writes the rest. */
  constructor({ name, database: { db }, quotas, managerId, logger }: CountedQuotaDeps) {
    this.#name = name
    this.#quotas = quotas
    this.#meter = new DomainMeter({
      limitOf: (key) => quotas.ofDomainId(domainOf(key), name),
      read: async (keys) => {
        const used = await KINDS[name].read(db, keys.map(domainOf))
        return new Map(keys.map((key) => [key, used.get(domainOf(key)) ?? 0]))
      },
      logger,
      // The last figure is a good estimate however old it is.
      maxAgeMs: Infinity,
    })
    this.#counts = new DayCounts({
      db,
      name,
      source: managerId,
      logger,
      onWritten: (domainId, amount) => this.#meter.add(this.#keyOf(domainId), amount),
    })
  }

  /** A run of the domain has used or stored this, in the unit of the quota; negative: something was removed. */
  used(domainId: string, amount: number): void {
    this.#counts.add(domainId, amount)
  }

  /** Returns the error of a start; undefined: the domain has room. */
  refusalOf(domainId: string | null | undefined): ServiceError | undefined {
    if (domainId === null || domainId === undefined) return undefined
    // This comes before the key is made, because most domains have no limit and each start asks.
    const limit = this.#quotas.ofDomainId(domainId, this.#name)
    if (limit === undefined) return undefined
    const used = (this.#meter.used(this.#keyOf(domainId)) ?? 0) + this.#counts.unwritten(domainId)
    return used >= limit ? KINDS[this.#name].refusal(limit) : undefined
  }

  async stop(): Promise<void> {
    await this.#counts.stop()
  }

  #keyOf(domainId: string): string {
    return `${domainId} ${KINDS[this.#name].period()}`
  }
}

const domainOf = (key: string) => key.slice(0, key.indexOf(' '))

/** The quotas that a start of a run of a domain must have room in. */
export type CountedQuotas = {
  cpu: Pick<CountedQuota, 'used' | 'refusalOf'>
  bytes: Pick<CountedQuota, 'used' | 'refusalOf'>
}

/** The error of a start in the domain; undefined: both have room. */
export const refusalOf = (
  { cpu, bytes }: CountedQuotas,
  domainId: string | null | undefined,
): ServiceError | undefined => cpu.refusalOf(domainId) ?? bytes.refusalOf(domainId)

/** A run of the domain has ended, or an attempt of it. */
export function countRun(
  { cpu, bytes }: CountedQuotas,
  domainId: string | null,
  { cpuMs, results, staged }: RunEnding,
): void {
  if (domainId === null) return
  cpu.used(domainId, (cpuMs ?? 0) / 1000)
  bytes.used(domainId, staged?.sizeBytes ?? (results === null ? 0 : Buffer.byteLength(results)))
}
