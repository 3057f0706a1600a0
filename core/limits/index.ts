export { connectSharedLimits } from './connect.ts'
export type { NamedBucket, SharedLimits } from './shared.ts'
export { fullBucket, refill, waitMs } from './token-bucket.ts'
export type { Bucket, BucketRule } from './token-bucket.ts'
