/** Shared token buckets in the memory of one process, which answers for all processes of its machine. */
import { BoundedCache } from '../bounded-cache.ts'
import { monotonicMs } from '../time.ts'
import { digestOf } from './shared-limits.ts'
import type { NamedBucket, SharedLimits } from './shared-limits.ts'
import { fullBucket, refill, waitMs } from './token-bucket.ts'
import type { Bucket } from './token-bucket.ts'

/** Some hundred bytes each. The least recently used one is removed and is full when it is used again. */
const MAX_BUCKETS = 100_000

export function createMemoryLimits(now: () => number = monotonicMs): SharedLimits {
  const buckets = new BoundedCache<string, Bucket>({ maxEntries: MAX_BUCKETS })

  function bucketOf({ name, rule }: NamedBucket): Bucket {
    // Names may contain user input of any length.
    const key = digestOf(name)
    const bucket = buckets.get(key) ?? fullBucket(rule, now())
    buckets.set(key, bucket)
    refill(bucket, rule, now())
    return bucket
  }

  return {
    take(named) {
      const found = named.map((one) => ({ rule: one.rule, bucket: bucketOf(one) }))
      const longestMs = Math.max(0, ...found.map(({ rule, bucket }) => waitMs(bucket, rule)))
      if (longestMs > 0) return Promise.resolve(Math.ceil(longestMs))
      for (const { bucket } of found) bucket.tokens -= 1
      return Promise.resolve(0)
    },
    refund(named) {
      for (const one of named) {
        const bucket = bucketOf(one)
        bucket.tokens = Math.min(one.rule.burst, bucket.tokens + 1)
      }
    },
    close() {
      buckets.clear()
    },
  }
}
