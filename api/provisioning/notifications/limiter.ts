/** A token bucket for each name, in this process and over all nodes that share a Redis. */
import { BoundedCache } from '#core/bounded-cache.ts'
import { fullBucket, refill, waitMs } from '#core/limits/index.ts'
import type { Bucket, BucketRule, SharedLimits } from '#core/limits/index.ts'
import { monotonicMs } from '#core/time.ts'

/** Maximum number of buckets. The least recently used one is removed. */
const MAX_NAMES = 10_000

export type Limiter = {
  /** Takes a token. Returns 0, or the milliseconds until there is one. */
  take(name: string): Promise<number>
}

export function createLimiter(kind: string, rule: BucketRule, shared: SharedLimits | undefined): Limiter {
  const buckets = new BoundedCache<string, Bucket>({ maxEntries: MAX_NAMES })
  return {
    async take(name) {
      const nowMs = monotonicMs()
      const bucket = buckets.get(name) ?? fullBucket(rule, nowMs)
      buckets.set(name, bucket)
      refill(bucket, rule, nowMs)
      const localMs = waitMs(bucket, rule)
      if (localMs > 0) return localMs
      bucket.tokens -= 1
      return (await shared?.take([{ name: `${kind} ${name}`, rule }])) ?? 0
    },
  }
}
