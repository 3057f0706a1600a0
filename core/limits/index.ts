export { connectSharedLimits } from './connect.ts'
export type { NamedBucket, SharedLimits } from './redis-buckets.ts'
export { fullBucket, refill, waitMs } from './token-bucket.ts'
export type { Bucket, BucketRule } from './token-bucket.ts'
