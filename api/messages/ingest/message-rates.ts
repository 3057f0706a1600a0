/**
 * The quotas `messages_per_second`, `message_bytes_per_second` and `stored_records` of domains (contract decision 76). A message of a limited domain waits
 * for its turn, in the order of arrival: over MQTT and WebSocket for as long as it takes, while its connection is not read. Tokens are
 * taken in chunks of a tenth of a second from buckets that all processes share, so that a message costs no call. A domain that stores as
 * much as its quota allows takes in nothing more, except one message a second from publishers that cannot be refused.
 */
import type { DomainQuota, Quotas } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { createMemoryLimits } from '#core/limits/index.ts'
import type { NamedBucket, SharedLimits } from '#core/limits/index.ts'
import { sleep } from '#core/time.ts'
import { INGEST_METRICS } from './metrics.ts'
import { FULL_MESSAGES_PER_SECOND } from './stored-records.ts'
import type { StoredRecords } from './stored-records.ts'

/**
 * The tokens of one second are divided into this number of chunks, and a process takes one chunk at a time. A bucket holds the chunks of
 * one second.
 */
const CHUNKS_PER_SECOND = 10
/** The longest wait of a message whose publisher can be refused. */
const MAX_WAIT_MS = 1000
/** Messages of a domain that wait in a process so; above it they are refused at once. */
const MAX_WAITING = 1000
/** A changed quota is in force for waiting messages within this time. */
const RECHECK_MS = 1000
const MAX_RETRY_SECONDS = 60
/** Domains that are remembered, some hundred bytes each. */
const MAX_DOMAINS = 20_000

type Rate = Extract<DomainQuota, 'messages_per_second' | 'message_bytes_per_second'>
type Waiter = { bytes: number; isGone: boolean; resolve: () => void }

/** The tokens that this process has taken of one rate of a domain. A message larger than a chunk leaves a debt. */
class RateLimiter {
  readonly perSecond: number
  readonly chunk: number
  readonly bucket: NamedBucket
  left = 0

  constructor(rate: Rate, domainKey: number, perSecond: number) {
    this.perSecond = perSecond
    this.chunk = Math.ceil(perSecond / CHUNKS_PER_SECOND)
    const perMinute = (perSecond / this.chunk) * 60
    this.bucket = { name: `${rate} ${domainKey}`, rule: { burst: Math.max(1, Math.round(perMinute / 60)), perMinute } }
  }
}

export class MessageRates {
  readonly #quotas: Pick<Quotas, 'ofDomain'>
  readonly #limits: SharedLimits | undefined
  readonly #stored: StoredRecords | undefined
  /** Used alone, and while the shared ones do not answer. */
  #own: SharedLimits | undefined
  readonly #domains = new Map<number, DomainRates>()
  readonly #stopping = new AbortController()

  constructor({
    quotas,
    limits,
    stored,
  }: {
    quotas: Pick<Quotas, 'ofDomain'>
    limits: SharedLimits | undefined
    stored?: StoredRecords | undefined
  }) {
    this.#quotas = quotas
    this.#limits = limits
    this.#stored = stored
  }

  /**
   * Admits a message over MQTT or WebSocket: resolves when the message may be stored; undefined: now. Rejects with `quota_exceeded` only if
   * the publisher can be told; otherwise its messages are taken slowly.
   */
  admit(domainKey: number, bytes: number, canRefuse = false): Promise<void> | undefined {
    const isFull = this.#stored?.isFull(domainKey) ?? false
    if (isFull === false) return this.#limitedOf(domainKey)?.admit(bytes)
    return this.#unlessFull(domainKey, canRefuse ? isFull : false, () => this.#limitedOf(domainKey)?.admit(bytes))
  }

  /**
   * Admits a message over any other protocol: waits for up to a second, then rejects with `rate_limited`; or rejects with `quota_exceeded`.
   */
  require(domainKey: number, bytes: number): Promise<void> | undefined {
    const isFull = this.#stored?.isFull(domainKey) ?? false
    if (isFull === false) return this.#limitedOf(domainKey)?.require(bytes)
    return this.#unlessFull(domainKey, isFull, () => this.#limitedOf(domainKey)?.require(bytes))
  }

  /** Messages that are never delayed, such as results of tasks: they delay the ones after them. */
  count(domainKey: number, bytes: number): void {
    // The trickle of a full domain is for those that wait.
    if (this.#stored?.isKnownFull(domainKey) !== true) this.#limitedOf(domainKey)?.count(bytes)
  }

  /** Waiting messages are admitted. */
  stop(): void {
    this.#stopping.abort()
    this.#own?.close()
  }

  async #unlessFull(
    domainKey: number,
    isFull: boolean | Promise<boolean>,
    admit: () => Promise<void> | undefined,
  ): Promise<void> {
    if ((await isFull) && this.#stored !== undefined) throw this.#stored.refusal(domainKey)
    await admit()
  }

  #limitedOf(domainKey: number): DomainRates | undefined {
    const read = (name: Rate) => {
      const limit = this.#quotas.ofDomain(domainKey, name)
      const isSlowed = name === 'messages_per_second' && this.#stored?.isKnownFull(domainKey) === true
      return isSlowed ? Math.min(limit ?? Infinity, FULL_MESSAGES_PER_SECOND) : limit
    }
    if (read('messages_per_second') === undefined && read('message_bytes_per_second') === undefined) {
      if (this.#domains.size > 0) this.#domains.delete(domainKey)
      return undefined
    }
    let rates = this.#domains.get(domainKey)
    if (rates === undefined) {
      const take = (bucket: NamedBucket) => this.#take(bucket)
      rates = new DomainRates(domainKey, { read, take, signal: this.#stopping.signal })
      const [oldest] = this.#domains.keys()
      if (oldest !== undefined && this.#domains.size >= MAX_DOMAINS) this.#domains.delete(oldest)
      this.#domains.set(domainKey, rates)
    }
    return rates
  }

  async #take(bucket: NamedBucket): Promise<number> {
    const shared = await this.#limits?.take([bucket])
    if (shared !== undefined) return shared
    this.#own ??= createMemoryLimits()
    return (await this.#own.take([bucket])) ?? 0
  }
}

type DomainDeps = {
  read: (rate: Rate) => number | undefined
  /** Milliseconds until there is a chunk; 0: it was taken. */
  take: (bucket: NamedBucket) => Promise<number>
  signal: AbortSignal
}

class DomainRates {
  readonly #domainKey: number
  readonly #deps: DomainDeps
  readonly #limiters = new Map<Rate, RateLimiter>()
  #waiting: Waiter[] = []
  /** The first that waits; those before it are done. */
  #head = 0
  #isFilling = false

  constructor(domainKey: number, deps: DomainDeps) {
    this.#domainKey = domainKey
    this.#deps = deps
  }

  admit(bytes: number): Promise<void> | undefined {
    return this.#takeNow(bytes) ? undefined : this.#wait(bytes).admitted
  }

  require(bytes: number): Promise<void> | undefined {
    if (this.#takeNow(bytes)) return undefined
    if (this.#waits >= MAX_WAITING) return Promise.reject(this.#refusal())
    const { waiter, admitted } = this.#wait(bytes)
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const timer = setTimeout(() => {
      waiter.isGone = true
      reject(this.#refusal())
    }, MAX_WAIT_MS)
    void admitted.then(() => {
      clearTimeout(timer)
      resolve()
    })
    return promise
  }

  count(bytes: number): void {
    this.#refresh()
    this.#spend(bytes)
  }

  get #waits(): number {
    return this.#waiting.length - this.#head
  }

  #takeNow(bytes: number): boolean {
    if (this.#deps.signal.aborted) return true
    this.#refresh()
    if (this.#waits > 0 || this.#isEmpty) return false
    this.#spend(bytes)
    return true
  }

  get #isEmpty(): boolean {
    for (const { left } of this.#limiters.values()) if (left <= 0) return true
    return false
  }

  #spend(bytes: number): void {
    for (const [rate, limiter] of this.#limiters) limiter.left -= rate === 'messages_per_second' ? 1 : bytes
  }

  /** Takes over changed quotas. */
  #refresh(): void {
    for (const rate of ['messages_per_second', 'message_bytes_per_second'] as const) {
      const perSecond = this.#deps.read(rate)
      if (this.#limiters.get(rate)?.perSecond === perSecond) continue
      if (perSecond === undefined) this.#limiters.delete(rate)
      else this.#limiters.set(rate, new RateLimiter(rate, this.#domainKey, perSecond))
    }
  }

  #wait(bytes: number): { waiter: Waiter; admitted: Promise<void> } {
    const { promise, resolve } = Promise.withResolvers<void>()
    const waiter = { bytes, isGone: false, resolve }
    this.#waiting.push(waiter)
    if (!this.#isFilling) void this.#fill()
    return { waiter, admitted: promise }
  }

  /** Runs while anything waits. */
  async #fill(): Promise<void> {
    const { signal, take } = this.#deps
    this.#isFilling = true
    while (this.#waits > 0) {
      this.#refresh()
      const empty = signal.aborted ? [] : [...this.#limiters.values()].filter(({ left }) => left <= 0)
      if (empty.length === 0) {
        this.#serve()
        continue
      }
      const waits = empty.map(async (limiter) => {
        const waitMs = await take(limiter.bucket)
        if (waitMs === 0) limiter.left += limiter.chunk
        return waitMs
      })
      const waitMs = Math.max(...(await Promise.all(waits)))
      if (waitMs > 0) await sleep(Math.min(waitMs, RECHECK_MS), signal).catch(() => undefined)
    }
    this.#waiting = []
    this.#head = 0
    this.#isFilling = false
  }

  #serve(): void {
    while (this.#waits > 0 && (this.#deps.signal.aborted || !this.#isEmpty)) {
      const waiter = this.#waiting[this.#head] as Waiter
      this.#head += 1
      if (waiter.isGone) continue
      this.#spend(waiter.bytes)
      waiter.resolve()
    }
    if (this.#head >= MAX_WAITING) {
      this.#waiting = this.#waiting.slice(this.#head)
      this.#head = 0
    }
  }

  #refusal(): ServiceError {
    INGEST_METRICS.refusals.add({ reason: 'quota' })
    const rates = [...this.#limiters].map(([rate, { perSecond, left }]) =>
      rate === 'messages_per_second'
        ? { text: `${perSecond} messages`, waitSeconds: this.#waits / perSecond }
        : { text: `${perSecond} bytes`, waitSeconds: Math.max(-left, 0) / perSecond },
    )
    const waitSeconds = Math.max(...rates.map((rate) => rate.waitSeconds))
    return new ServiceError(
      'rate_limited',
      `the quota of the domain is ${rates.map(({ text }) => text).join(' and ')} per second`,
      { retryAfterSeconds: Math.min(MAX_RETRY_SECONDS, 1 + Math.floor(waitSeconds)) },
    )
  }
}
