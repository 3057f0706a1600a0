/**
 * How often somebody may try to log in, so that passwords cannot be guessed and nobody can shut another out. Failures are
 * counted for each pair of account and address, for each address, and for each account over all addresses from which it
 * never logged in. An address from which the account did log in before is never refused for what others do; its own
 * failures only slow it down. Counted in each process, and for all of them together where they share a Redis; without it
 * several nodes allow so many times as much.
 */
import type { LRUCache } from 'lru-cache'
import { createLru } from '#core/lru.ts'
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

export type LoginThrottle = {
  /** Waits its turn, or throws `rate_limited` with the seconds after which it makes sense. */
  admit(attempt: LoginAttempt): Promise<Admission>
  stop(): void
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

export function createLoginThrottle(options: LoginThrottleOptions = {}): LoginThrottle {
  const { rules = RULES, now = monotonicMs, shared, purpose = 'login', tooMany = TOO_MANY } = options
  const nameOf = ([kind, name]: Wanted) => `${purpose} ${kind}\n${name}`
  const buckets: Record<Kind, LRUCache<string, Bucket>> = {
    pair: createLru<string, Bucket>(MAX_BUCKETS),
    address: createLru<string, Bucket>(MAX_BUCKETS),
    account: createLru<string, Bucket>(MAX_BUCKETS),
    known: createLru<string, Bucket>(MAX_BUCKETS),
  }
  /** The end of each queue of a known address, and how many stand in it. */
  const queues = new Map<string, { tail: Promise<void>; length: number }>()
  let waiting = 0
  const stopping = new AbortController()
  const attempts = createAttempts()

  function bucketOf(kind: Kind, name: string): Bucket {
    let bucket = buckets[kind].get(name)
    if (bucket === undefined) {
      bucket = fullBucket(rules[kind], now())
      buckets[kind].set(name, bucket)
    }
    refill(bucket, rules[kind], now())
    return bucket
  }

  const refusal = (retryMs: number) =>
    new ServiceError('rate_limited', tooMany, { retryAfterSeconds: Math.max(1, Math.ceil(retryMs / 1000)) })

  /** Takes one of each, or none: of this process. Gives the way to give back, or after how long there is one of each. */
  function takeHere(wanted: readonly Wanted[]): { giveBack: () => void } | { retryMs: number } {
    const found = wanted.map(([kind, name]) => ({ kind, bucket: bucketOf(kind, name) }))
    const retryMs = Math.max(...found.map(({ kind, bucket }) => waitMs(bucket, rules[kind])))
    if (retryMs > 0) return { retryMs }
    for (const { bucket } of found) bucket.tokens -= 1
    return {
      giveBack: () => {
        for (const { kind, bucket } of found) bucket.tokens = Math.min(rules[kind].burst, bucket.tokens + 1)
      },
    }
  }

  /**
   * Takes one of each, or none: of this process, and of all of them together. Where nothing is left it waits for attempts whose
   * passwords are being looked at here, and for those that ask whether there is something left for them.
   */
  async function take(wanted: readonly Wanted[]): Promise<Admission> {
    const looking = wanted.map(nameOf)
    const asking = looking.map((name) => `asking ${name}`)
    const waitFor = async (names: readonly string[], retryMs: number) => {
      if (!(await attempts.nextEnd(names))) throw refusal(retryMs)
      if (stopping.signal.aborted) throw new ServiceError('unavailable', 'stopping')
    }
    for (;;) {
      const here = takeHere(wanted)
      if ('retryMs' in here) {
        await waitFor([...looking, ...asking], here.retryMs)
        continue
      }
      if (shared === undefined) return admission(looking, here.giveBack)
      const endAsking = attempts.begin(asking)
      const named = wanted.map(([kind, name]) => ({ name: nameOf([kind, name]), rule: rules[kind] }))
      const retryMs = await shared.take(named)
      if (retryMs === undefined || retryMs <= 0) {
        const admitted = admission(looking, () => {
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

  function admission(names: readonly string[], giveBack: () => void): Admission {
    const end = attempts.begin(names)
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
  async function takeKnown(pair: string): Promise<Admission | undefined> {
    if (queues.has(pair) || bucketOf('known', pair).tokens < 1) return undefined
    try {
      return await take([['known', pair]])
    } catch (error) {
      if (kindOf(error) === 'rate_limited') return undefined
      throw error
    }
  }

  async function takeTurn(pair: string): Promise<Admission> {
    const admission = await takeKnown(pair)
    if (admission !== undefined) return admission
    const queue = queues.get(pair)
    const length = queue?.length ?? 0
    if (length >= MAX_PACED_PER_PAIR || waiting >= MAX_PACED) throw refusal(length * rules.paceMs)
    const turn = (queue?.tail ?? Promise.resolve()).then(() => sleep(rules.paceMs, stopping.signal))
    const entry = { tail: turn.catch(() => undefined), length: length + 1 }
    queues.set(pair, entry)
    waiting += 1
    try {
      await turn
    } catch {
      throw new ServiceError('unavailable', 'stopping')
    } finally {
      waiting -= 1
      const last = queues.get(pair)
      if (last !== undefined) {
        last.length -= 1
        if (last.length === 0) queues.delete(pair)
      }
    }
    // What was waited for is paid by the waiting.
    return { release: () => undefined, fail: () => undefined }
  }

  return {
    async admit({ account, address, isKnown }) {
      const pair = `${account}\n${address}`
      if (isKnown) return await takeTurn(pair)
      return await take([
        ['pair', pair],
        ['address', address],
        ['account', account],
      ])
    },
    stop() {
      stopping.abort()
      attempts.stop()
    },
  }
}
