/** So many of something at once and then so many a minute, for each name: in this process, and over all nodes that share a Redis. */
import { LRUCache } from 'lru-cache'
import { fullBucket, refill, waitMs } from '#core/limits/index.ts'
import type { Bucket, BucketRule, SharedLimits } from '#core/limits/index.ts'
import { monotonicMs } from '#core/time.ts'

/** Names that are remembered; the one that was not heard of for longest is forgotten. */
const MAX_NAMES = 10_000

export type Limiter = {
  /** Milliseconds until there is one for the name; 0: now, and it is taken. */
  take(name: string): Promise<number>
}

export function createLimiter(kind: string, rule: BucketRule, shared: SharedLimits | undefined): Limiter {
  const buckets = new LRUCache<string, Bucket>({ max: MAX_NAMES })
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
