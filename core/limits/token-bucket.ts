/** A token bucket: a burst, then a rate per minute. Pure; the caller passes the time. */
export type BucketRule = { readonly burst: number; readonly perMinute: number }

export type Bucket = { tokens: number; atMs: number }

const MINUTE_MS = 60_000

export function fullBucket(rule: BucketRule, nowMs: number): Bucket {
  return { tokens: rule.burst, atMs: nowMs }
}

/** Adds the tokens of the time since the last refill. */
export function refill(bucket: Bucket, rule: BucketRule, nowMs: number): void {
  const elapsedMs = Math.max(0, nowMs - bucket.atMs)
  bucket.tokens = Math.min(rule.burst, bucket.tokens + (elapsedMs / MINUTE_MS) * rule.perMinute)
  bucket.atMs = nowMs
}

/** Milliseconds until a token is available; 0 when one is. Refill the bucket first. */
export function waitMs(bucket: Bucket, rule: BucketRule): number {
  return bucket.tokens >= 1 ? 0 : ((1 - bucket.tokens) / rule.perMinute) * MINUTE_MS
}
