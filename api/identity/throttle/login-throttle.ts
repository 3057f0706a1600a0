/**
 * How often somebody may try to log in, so that passwords cannot be guessed and nobody can shut another out. Failures are
 * counted for each pair of account and address, for each address, and for each account over all addresses from which it
 * never logged in. An address from which the account did log in before is never refused for what others do; its own
 * failures only slow it down. Counted in each process, and for all of them together where they share a Redis; without it
 * several nodes allow so many times as much.
 */
import { LRUCache } from 'lru-cache'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { fullBucket, refill, waitMs } from '#core/limits/index.ts'
import type { Bucket, BucketRule, SharedLimits } from '#core/limits/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import { createAttempts } from './attempts.ts'

export type LoginAttempt = {
  /** Whom the login names: a user's id, or the text where there is no such user. */
  account: string
  address: string
  /** The account logged in from this address before. */
  isKnown: boolean
}

/** One of the two is called, when the password was looked at; what is called later does nothing. */
export type Admission = {
  /** Gives back what the attempt took: the password was right, or nobody looked at it. */
  release(): void
  /** What it took is the price of a wrong password. */
  fail(): void
}

export type ThrottleRules = {
  pair: BucketRule
  address: BucketRule
  account: BucketRule
  known: BucketRule
  /** An account's own address that failed too often has its attempts looked at one after the other, with this between them. */
  paceMs: number
}

export const RULES: ThrottleRules = {
  pair: { burst: 10, perMinute: 2 },
  address: { burst: 100, perMinute: 60 },
  account: { burst: 50, perMinute: 6 },
  known: { burst: 20, perMinute: 6 },
  paceMs: 1000,
}
/** Buckets of each kind that are kept, some hundred bytes each; the one not used for longest is forgotten. */
const MAX_BUCKETS = 50_000
/** Attempts of one pair that wait for their turn. */
const MAX_PACED_PER_PAIR = 20
/** Attempts that wait at once, of all pairs: each holds a connection. */
const MAX_PACED = 1000

const TOO_MANY = 'too many failed logins: try again later'

export type LoginThrottleOptions = {
  /** What is tried; attempts of another purpose are counted apart. */
  purpose?: string
  /** What is said to somebody who tried too often. */
  tooMany?: string
  rules?: ThrottleRules
  now?: () => number
  /** Of all nodes together. */
  shared?: SharedLimits | undefined
}

type Kind = 'pair' | 'address' | 'account' | 'known'
type Wanted = readonly [Kind, string]

export class LoginThrottle {
  readonly #rules: ThrottleRules
  readonly #now: () => number
  readonly #shared: SharedLimits | undefined
  readonly #purpose: string
  readonly #tooMany: string
  readonly #buckets: Readonly<Record<Kind, LRUCache<string, Bucket>>> = {
    pair: new LRUCache({ max: MAX_BUCKETS }),
    address: new LRUCache({ max: MAX_BUCKETS }),
    account: new LRUCache({ max: MAX_BUCKETS }),
    known: new LRUCache({ max: MAX_BUCKETS }),
  }
  /** The end of each queue of a known address, and how many stand in it. */
  readonly #queues = new Map<string, { tail: Promise<void>; length: number }>()
  #waiting = 0
  readonly #stopping = new AbortController()
  readonly #attempts = createAttempts()

  constructor({
    rules = RULES,
    now = monotonicMs,
    shared,
    purpose = 'login',
    tooMany = TOO_MANY,
  }: LoginThrottleOptions = {}) {
    this.#rules = rules
    this.#now = now
    this.#shared = shared
    this.#purpose = purpose
    this.#tooMany = tooMany
  }

  /** Waits its turn, or throws `rate_limited` with the seconds after which it makes sense. */
  async admit({ account, address, isKnown }: LoginAttempt): Promise<Admission> {
    const pair = `${account}\n${address}`
    if (isKnown) return await this.#takeTurn(pair)
    return await this.#take([
      ['pair', pair],
      ['address', address],
      ['account', account],
    ])
  }

  stop(): void {
    this.#stopping.abort()
    this.#attempts.stop()
  }

  #nameOf([kind, name]: Wanted): string {
    return `${this.#purpose} ${kind}\n${name}`
  }

  #refusal(retryMs: number): ServiceError {
    return new ServiceError('rate_limited', this.#tooMany, {
      retryAfterSeconds: Math.max(1, Math.ceil(retryMs / 1000)),
    })
  }

  #bucketOf(kind: Kind, name: string): Bucket {
    let bucket = this.#buckets[kind].get(name)
    if (bucket === undefined) {
      bucket = fullBucket(this.#rules[kind], this.#now())
      this.#buckets[kind].set(name, bucket)
    }
    refill(bucket, this.#rules[kind], this.#now())
    return bucket
  }

  /** Takes one of each, or none: of this process. Gives the way to give back, or after how long there is one of each. */
  #takeHere(wanted: readonly Wanted[]): { giveBack: () => void } | { retryMs: number } {
    const found = wanted.map(([kind, name]) => ({ kind, bucket: this.#bucketOf(kind, name) }))
    const retryMs = Math.max(...found.map(({ kind, bucket }) => waitMs(bucket, this.#rules[kind])))
    if (retryMs > 0) return { retryMs }
    for (const { bucket } of found) bucket.tokens -= 1
    return {
      giveBack: () => {
        for (const { kind, bucket } of found) bucket.tokens = Math.min(this.#rules[kind].burst, bucket.tokens + 1)
      },
    }
  }

  /**
   * Takes one of each, or none: of this process, and of all of them together. Where nothing is left it waits for attempts whose
   * passwords are being looked at here, and for those that ask whether there is something left for them.
   */
  async #take(wanted: readonly Wanted[]): Promise<Admission> {
    const looking = wanted.map((one) => this.#nameOf(one))
    const asking = looking.map((name) => `asking ${name}`)
    const waitFor = async (names: readonly string[], retryMs: number) => {
      if (!(await this.#attempts.nextEnd(names))) throw this.#refusal(retryMs)
      if (this.#stopping.signal.aborted) throw new ServiceError('unavailable', 'stopping')
    }
    for (;;) {
      const here = this.#takeHere(wanted)
      if ('retryMs' in here) {
        await waitFor([...looking, ...asking], here.retryMs)
        continue
      }
      const shared = this.#shared
      if (shared === undefined) return this.#admission(looking, here.giveBack)
      const endAsking = this.#attempts.begin(asking)
      const named = wanted.map(([kind, name]) => ({ name: this.#nameOf([kind, name]), rule: this.#rules[kind] }))
      const retryMs = await shared.take(named)
      if (retryMs === undefined || retryMs <= 0) {
        const admitted = this.#admission(looking, () => {
          here.giveBack()
          // Where nobody could be asked, what is counted here has to do.
          if (retryMs !== undefined) shared.giveBack(named)
        })
        endAsking()
        return admitted
      }
      here.giveBack()
      const waited = waitFor(looking, retryMs)
      endAsking()
      await waited
    }
  }

  #admission(names: readonly string[], giveBack: () => void): Admission {
    const end = this.#attempts.begin(names)
    let isSettled = false
    const settle = (isRight: boolean) => {
      if (isSettled) return
      isSettled = true
      if (isRight) giveBack()
      end()
    }
    return { release: () => settle(true), fail: () => settle(false) }
  }

  /** Without waiting while there is one left; undefined: wait. */
  async #takeKnown(pair: string): Promise<Admission | undefined> {
    if (this.#queues.has(pair) || this.#bucketOf('known', pair).tokens < 1) return undefined
    try {
      return await this.#take([['known', pair]])
    } catch (error) {
      if (kindOf(error) === 'rate_limited') return undefined
      throw error
    }
  }

  async #takeTurn(pair: string): Promise<Admission> {
    const admission = await this.#takeKnown(pair)
    if (admission !== undefined) return admission
    const queue = this.#queues.get(pair)
    const length = queue?.length ?? 0
    if (length >= MAX_PACED_PER_PAIR || this.#waiting >= MAX_PACED) throw this.#refusal(length * this.#rules.paceMs)
    const turn = (queue?.tail ?? Promise.resolve()).then(() => sleep(this.#rules.paceMs, this.#stopping.signal))
    const entry = { tail: turn.catch(() => undefined), length: length + 1 }
    this.#queues.set(pair, entry)
    this.#waiting += 1
    try {
      await turn
    } catch {
      throw new ServiceError('unavailable', 'stopping')
    } finally {
      this.#waiting -= 1
      const last = this.#queues.get(pair)
      if (last !== undefined) {
        last.length -= 1
        if (last.length === 0) this.#queues.delete(pair)
      }
    }
    // What was waited for is paid by the waiting.
    return { release: () => undefined, fail: () => undefined }
  }
}
