/**
 * The usage of a quota by domains, for checks that cost no query of their own. It is read from the database about once a second, for all
 * domains that were asked about since, and this process adds the changes that it knows. Nothing is read while nobody asks.
 */
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'

/** Returns what each of the domains uses; a domain that is absent uses nothing. Domains are named by key or by id. */
export type ReadUsage<Domain extends number | string> = (
  domains: readonly Domain[],
) => Promise<ReadonlyMap<Domain, number>>

const REFRESH_MS = 1000
/** A count of many rows is read less often, so that it never takes more than a twentieth of a connection. */
const PAUSE_PER_READ = 20
const MAX_PAUSE_MS = 60_000
/** An older figure says nothing: the next check waits until it is read again. */
const MAX_AGE_MS = 5_000
/** Domains of one read. */
const MAX_DOMAINS_PER_READ = 1000
/** Domains that are remembered, some hundred bytes each. */
const MAX_DOMAINS = 20_000

const pauseAfter = (beganAtMs: number) => Math.min(MAX_PAUSE_MS, (monotonicMs() - beganAtMs) * PAUSE_PER_READ)

type Figure = {
  used: number
  /** Changes by this process since the last read began. */
  changed: number
  /** The part of these changes that came before the running read began. */
  changedBefore: number
  /** The times at which the read began and at which this process last changed something. */
  readAtMs: number
  changedAtMs: number
}

export type RefreshedUsageOptions<Domain extends number | string> = {
  read: ReadUsage<Domain>
  logger: Logger
  /** The age above which a figure is not used; defaults to `MAX_AGE_MS`. */
  maxAgeMs?: number
}

export class RefreshedUsage<Domain extends number | string = number> {
  readonly #options: RefreshedUsageOptions<Domain>
  readonly #figures = new Map<Domain, Figure>()
  readonly #wanted = new Set<Domain>()
  #beingRead: ReadonlySet<Domain> = new Set()
  #reading: Promise<void> | undefined
  #pauseMs = 0
  /** After a failed read, no other read begins before this time. */
  #retryAtMs = 0

  constructor(options: RefreshedUsageOptions<Domain>) {
    this.#options = options
  }

  /** The last known figure; undefined: there is no recent one, see `find`. One that is a second old is read again in the background. */
  peek(domain: Domain): number | undefined {
    const figure = this.#figures.get(domain)
    const ageMs = figure === undefined ? Infinity : monotonicMs() - figure.readAtMs
    if (ageMs > Math.max(REFRESH_MS, this.#pauseMs) && !this.#beingRead.has(domain)) {
      this.#wanted.add(domain)
      void this.#refresh()
    }
    const maxAgeMs = Math.max(this.#options.maxAgeMs ?? MAX_AGE_MS, 2 * this.#pauseMs)
    if (figure === undefined || ageMs > maxAgeMs) return undefined
    return Math.max(0, figure.used + figure.changed)
  }

  /** The last known figure; it is read first if it is not known. Undefined: the database does not answer. */
  async find(domain: Domain): Promise<number | undefined> {
    const known = this.peek(domain)
    if (known !== undefined) return known
    await this.#refresh()
    return this.peek(domain)
  }

  /**
   * Returns the figure for a caller who is refused otherwise. The figure is read again first if it is a second old, or if this process
   * changed it since its read began: that read may have seen the change.
   */
  async findNewer(domain: Domain): Promise<number | undefined> {
    if (this.#isAmbiguous(domain)) {
      // The pause is that of other reads: otherwise callers could demand one read after the other.
      const readAtMs = this.#figures.get(domain)?.readAtMs ?? 0
      const pauseMs = Math.min(REFRESH_MS, readAtMs + this.#pauseMs - monotonicMs())
      if (pauseMs > 0) await sleep(pauseMs)
      if (this.#isAmbiguous(domain)) this.#wanted.add(domain)
    }
    this.peek(domain)
    await this.#refresh()
    return this.peek(domain)
  }

  /** This process changed the figure, and the change is committed. */
  add(domain: Domain, change: number): void {
    const figure = this.#figures.get(domain)
    if (figure === undefined) return
    figure.changed += change
    figure.changedAtMs = monotonicMs()
  }

  /**
   * This process committed that something is gone. The figure stays too high until it is read again, see `findNewer`: taken off here, what a read
   * does not see any more would be gone twice.
   */
  removed(domain: Domain): void {
    this.add(domain, 0)
  }

  #isAmbiguous(domain: Domain): boolean {
    const figure = this.#figures.get(domain)
    return figure !== undefined && figure.changedAtMs >= figure.readAtMs
  }

  /** Resolves when everything that was wanted is read. */
  #refresh(): Promise<void> {
    if (this.#wanted.size > 0 && monotonicMs() >= this.#retryAtMs) this.#reading ??= this.#readWanted()
    return this.#reading ?? Promise.resolve()
  }

  async #readWanted(): Promise<void> {
    while (this.#wanted.size > 0) {
      const domains = [...this.#wanted].slice(0, MAX_DOMAINS_PER_READ)
      for (const key of domains) this.#wanted.delete(key)
      this.#beingRead = new Set(domains)
      const beganAtMs = monotonicMs()
      for (const figure of this.#figuresOf(domains)) figure.changedBefore = figure.changed
      try {
        const used = await this.#options.read(domains)
        for (const key of domains) this.#set(key, used.get(key) ?? 0, beganAtMs)
      } catch (error) {
        this.#options.logger.warn({ err: error }, 'failed to read what domains use of a quota; retrying')
        // The last figures apply for another while.
        for (const figure of this.#figuresOf(domains)) figure.readAtMs = beganAtMs
        // A count that exceeds its deadline would be repeated at once otherwise, for as long as the rows are there.
        this.#retryAtMs = monotonicMs() + Math.max(REFRESH_MS, pauseAfter(beganAtMs))
        break
      }
      this.#pauseMs = pauseAfter(beganAtMs)
    }
    this.#beingRead = new Set()
    this.#reading = undefined
  }

  #figuresOf(domains: readonly Domain[]): Figure[] {
    return domains.flatMap((key) => this.#figures.get(key) ?? [])
  }

  #set(domain: Domain, used: number, readAtMs: number): void {
    const before = this.#figures.get(domain)
    const changed = before === undefined ? 0 : before.changed - before.changedBefore
    this.#figures.delete(domain)
    const [oldest] = this.#figures.keys()
    if (oldest !== undefined && this.#figures.size >= MAX_DOMAINS) this.#figures.delete(oldest)
    const changedAtMs = before?.changedAtMs ?? -Infinity
    this.#figures.set(domain, { used, changed, changedBefore: 0, readAtMs, changedAtMs })
  }
}
