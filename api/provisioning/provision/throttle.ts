/** Rate limit of requests without Authorization, for each address (decision 56). */
import { BoundedCache } from '#core/bounded-cache.ts'
import { networkOf } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { fullBucket, refill, waitMs } from '#core/limits/index.ts'
import type { Bucket, BucketRule, SharedLimits } from '#core/limits/index.ts'
import { countRefusal } from '#core/metrics/index.ts'
import { monotonicMs } from '#core/time.ts'

const RULE: BucketRule = { burst: 10, perMinute: 10 }
/** Maximum number of buckets. The least recently used one is removed. */
const MAX_ADDRESSES = 10_000

export type AnonymousThrottle = {
  /** Throws `rate_limited` with the seconds to wait. */
  admit(address: string): Promise<void>
}

export function createAnonymousThrottle(limits: SharedLimits | undefined): AnonymousThrottle {
  const buckets = new BoundedCache<string, Bucket>({ maxEntries: MAX_ADDRESSES })
  return {
    async admit(address) {
      const network = networkOf(address)
      const nowMs = monotonicMs()
      const bucket = buckets.get(network) ?? fullBucket(RULE, nowMs)
      buckets.set(network, bucket)
      refill(bucket, RULE, nowMs)
      const localMs = waitMs(bucket, RULE)
      if (localMs > 0) throw tooMany(localMs)
      bucket.tokens -= 1
      const sharedMs = await limits?.take([{ name: `mapping ${network}`, rule: RULE }])
      if (sharedMs !== undefined && sharedMs > 0) throw tooMany(sharedMs)
    },
  }
}

function tooMany(pauseMs: number): ServiceError {
  countRefusal('anonymous_provisioning')
  return new ServiceError('rate_limited', `requests without Authorization are limited to ${RULE.perMinute} a minute`, {
    retryAfterSeconds: Math.ceil(pauseMs / 1000),
  })
}
