/**
 * The usage of a daily quota by domains. It is added up in memory and written once a second, so that a counted event costs no statement of
 * its own. A process that is killed loses the count of its last second.
 */
import type { Queryable } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { addOfDomains } from './days.ts'
import type { CountedQuota } from './names.ts'

const WRITE_INTERVAL_MS = 1000

export type DayCountsOptions = {
  db: Queryable
  name: CountedQuota
  /** The process that counts, so that processes that count do not wait for each other. Empty: all processes together. */
  source: string
  logger: Logger
  /** Called after an amount of a domain was written. */
  onWritten?: (domainId: string, amount: number) => void
}

export class DayCounts {
  readonly #options: DayCountsOptions
  /** Amounts by domain that no write has begun with. */
  #unwritten = new Map<string, number>()
  #writing: Promise<void> = Promise.resolve()
  #timer: NodeJS.Timeout | undefined
  #isStopped = false

  constructor(options: DayCountsOptions) {
    this.#options = options
  }

  /** A negative amount: something of it was removed. */
  add(domainId: string, amount: number): void {
    if (amount === 0) return
    this.#unwritten.set(domainId, this.unwritten(domainId) + amount)
    if (!this.#isStopped) this.#timer ??= setTimeout(() => void this.flush(), WRITE_INTERVAL_MS)
  }

  /** Returns the amount that was added since the last write began. */
  unwritten(domainId: string): number {
    return this.#unwritten.get(domainId) ?? 0
  }

  /** Resolves when everything that was added is written, or the database has refused it: then it is written later. */
  flush(): Promise<void> {
    this.#writing = this.#writing.then(() => this.#write())
    return this.#writing
  }

  /** Writes the rest. */
  async stop(): Promise<void> {
    this.#isStopped = true
    await this.flush()
  }

  /** Never rejects. */
  async #write(): Promise<void> {
    const { db, name, source, logger, onWritten } = this.#options
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (this.#unwritten.size === 0) return
    const amounts = this.#unwritten
    this.#unwritten = new Map()
    try {
      const added = [...amounts].map(([domainId, amount]) => ({ domainId, added: amount }))
      await addOfDomains(db, { name, source, added })
      for (const [domainId, amount] of amounts) onWritten?.(domainId, amount)
    } catch (error) {
      for (const [domainId, amount] of amounts) this.add(domainId, amount)
      logger.warn({ err: error, quota: name }, 'failed to store what domains used today; retrying')
    }
  }
}
