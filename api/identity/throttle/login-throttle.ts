/**
 * Limits login attempts, so that passwords cannot be guessed and attackers cannot lock out the owner of an account.
 * Failures are counted for each pair of account and address, for each address, and for each account over all unknown
 * addresses. An address from which the account has logged in before is known: failures from other addresses do not
 * affect it, and its own failures only delay it. Limits apply per process, and to all processes together if they share
 * a Redis. Without Redis, several nodes multiply the limits.
 */
import { BoundedCache } from '#core/bounded-cache.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { fullBucket, refill, waitMs } from '#core/limits/index.ts'
import type { Bucket, BucketRule, SharedLimits } from '#core/limits/index.ts'
import { countRefusal } from '#core/metrics/index.ts'
import type { LimitName } from '#core/metrics/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import { createAttempts } from './attempts.ts'

export type LoginAttempt = {
  /** The id of the user, or the login text when the user does not exist. */
  account: string
  address: string
  /** The account has logged in from this address before. */
  isKnown: boolean
}

/** The caller calls one of these after the verification. Later calls have no effect. */
export type Admission = {
  /** Returns the tokens of the attempt: the password was right, or it was not verified. */
  release(): void
  /** Keeps the tokens of the attempt: the password was wrong. */
  fail(): void
}

export type ThrottleRules = {
  pair: BucketRule
  address: BucketRule
  account: BucketRule
  known: BucketRule
  /** Delay between attempts from a known address after too many failures. */
  paceMs: number
}

/**
 * Rules of guesses that are no logins: the caller's address is never known in advance, so `pair` and `known` are not stricter than
 * `account`, and nothing is delayed.
 */
export function guessRules(account: BucketRule, address: BucketRule): ThrottleRules {
  return { account, pair: account, address, known: account, paceMs: 0 }
}

export const RULES: ThrottleRules = {
  pair: { burst: 10, perMinute: 2 },
  address: { burst: 100, perMinute: 60 },
  account: { burst: 50, perMinute: 6 },
  known: { burst: 20, perMinute: 6 },
  paceMs: 1000,
}
/** Maximum number of buckets of each kind, some hundred bytes each. The least recently used one is removed. */
const MAX_BUCKETS = 50_000
/** Maximum number of queued attempts of one pair. */
const MAX_PACED_PER_PAIR = 20
/** Maximum number of queued attempts of all pairs: each holds a connection. */
const MAX_PACED = 1000

const TOO_MANY = 'too many failed logins: try again later'

export type LoginThrottleOptions = {
  /** Attempts of different purposes are counted separately. */
  purpose?: string
  /** The limit under which refusals are counted. */
  limit?: LimitName
  /** Error message after too many attempts. */
  tooMany?: string
  rules?: ThrottleRules
  now?: () => number
  /** Limits that all nodes share. */
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
  readonly #limit: LimitName
  readonly #buckets: Readonly<Record<Kind, BoundedCache<string, Bucket>>> = {
    pair: new BoundedCache({ maxEntries: MAX_BUCKETS }),
    address: new BoundedCache({ maxEntries: MAX_BUCKETS }),
    account: new BoundedCache({ maxEntries: MAX_BUCKETS }),
    known: new BoundedCache({ maxEntries: MAX_BUCKETS }),
  }
  /** The tail and the length of the queue of each known address. */
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
    limit = 'login',
  }: LoginThrottleOptions = {}) {
    this.#rules = rules
    this.#now = now
    this.#shared = shared
    this.#purpose = purpose
    this.#tooMany = tooMany
    this.#limit = limit
  }

  /**
   * Admits an attempt, possibly after waiting. Throws `rate_limited` with the seconds after which a retry can succeed.
   */
  async admit({ account, address, isKnown }: LoginAttempt): Promise<Admission> {
    const pair = `${account}\n${address}`
    if (isKnown) return await this.#pace(pair)
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
    countRefusal(this.#limit)
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

  /**
   * Takes one token from each bucket of this process, or none. Returns a function that gives them back, or the time
   * until each has a token.
   */
  #takeHere(wanted: readonly Wanted[]): { refund: () => void } | { retryMs: number } {
    const found = wanted.map(([kind, name]) => ({ kind, bucket: this.#bucketOf(kind, name) }))
    const retryMs = Math.max(...found.map(({ kind, bucket }) => waitMs(bucket, this.#rules[kind])))
    if (retryMs > 0) return { retryMs }
    for (const { bucket } of found) bucket.tokens -= 1
    return {
      refund: () => {
        for (const { kind, bucket } of found) bucket.tokens = Math.min(this.#rules[kind].burst, bucket.tokens + 1)
      },
    }
  }

  /**
   * Takes one token from each bucket of this process and from the shared ones, or none. Without tokens it waits for
   * attempts of this process whose passwords are being verified or that are asking the shared buckets.
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
      if (shared === undefined) return this.#admission(looking, here.refund)
      const endAsking = this.#attempts.begin(asking)
      const named = wanted.map(([kind, name]) => ({ name: this.#nameOf([kind, name]), rule: this.#rules[kind] }))
      const retryMs = await shared.take(named)
      if (retryMs === undefined || retryMs <= 0) {
        const admitted = this.#admission(looking, () => {
          here.refund()
          // When the shared buckets were not reachable, only the local ones apply.
          if (retryMs !== undefined) shared.refund(named)
        })
        endAsking()
        return admitted
      }
      here.refund()
      const waited = waitFor(looking, retryMs)
      endAsking()
      await waited
    }
  }

  #admission(names: readonly string[], refund: () => void): Admission {
    const end = this.#attempts.begin(names)
    let isSettled = false
    const settle = (isRight: boolean) => {
      if (isSettled) return
      isSettled = true
      if (isRight) refund()
      end()
    }
    return { release: () => settle(true), fail: () => settle(false) }
  }

  /** Takes a token of a known address without waiting. Undefined when there is none. */
  async #takeKnown(pair: string): Promise<Admission | undefined> {
    if (this.#queues.has(pair) || this.#bucketOf('known', pair).tokens < 1) return undefined
    try {
      return await this.#take([['known', pair]])
    } catch (error) {
      if (kindOf(error) === 'rate_limited') return undefined
      throw error
    }
  }

  async #pace(pair: string): Promise<Admission> {
    const admission = await this.#takeKnown(pair)
    if (admission !== undefined) return admission
    const queue = this.#queues.get(pair)
    const length = queue?.length ?? 0
    if (length >= MAX_PACED_PER_PAIR || this.#waiting >= MAX_PACED) throw this.#refusal(length * this.#rules.paceMs)
    const paced = (queue?.tail ?? Promise.resolve()).then(() => sleep(this.#rules.paceMs, this.#stopping.signal))
    const entry = { tail: paced.catch(() => undefined), length: length + 1 }
    this.#queues.set(pair, entry)
    this.#waiting += 1
    try {
      await paced
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
    // The delay replaces the token.
    return { release: () => undefined, fail: () => undefined }
  }
}
