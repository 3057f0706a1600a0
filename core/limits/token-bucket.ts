/** A token bucket: so many at once, then so many a minute. Pure but for the clock given. */
export type BucketRule = { readonly burst: number; readonly perMinute: number }

export type Bucket = { tokens: number; atMs: number }

const MINUTE_MS = 60_000

export function fullBucket(rule: BucketRule, nowMs: number): Bucket {
  return { tokens: rule.burst, atMs: nowMs }
}

/** Fills up what has come since it was last looked at. */
export function refill(bucket: Bucket, rule: BucketRule, nowMs: number): void {
  const elapsedMs = Math.max(0, nowMs - bucket.atMs)
  bucket.tokens = Math.min(rule.burst, bucket.tokens + (elapsedMs / MINUTE_MS) * rule.perMinute)
  bucket.atMs = nowMs
}

/** Milliseconds until one can be taken; 0: now. The bucket must be refilled first. */
export function waitMs(bucket: Bucket, rule: BucketRule): number {
  return bucket.tokens >= 1 ? 0 : ((1 - bucket.tokens) / rule.perMinute) * MINUTE_MS
}
