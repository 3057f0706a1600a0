/**
 * Token buckets that several processes share, in addition to those of each process: in Redis, or in the memory of the process that
 * supervises the others of its machine.
 */
import { createHash } from 'node:crypto'
import type { BucketRule } from './token-bucket.ts'

export type NamedBucket = {
  /** May contain user input: a digest of it is stored. */
  name: string
  rule: BucketRule
}

export type SharedLimits = {
  /**
   * Takes one token from each bucket, or none. Resolves to 0 when they were taken, otherwise to the milliseconds until each has
   * one; undefined when there was no answer in time. Never rejects.
   */
  take(buckets: readonly NamedBucket[]): Promise<number | undefined>
  /** Returns the tokens. */
  refund(buckets: readonly NamedBucket[]): void
  close(): void
}

/** Returns the form in which the name of a bucket is stored. */
export function digestOf(name: string): string {
  return createHash('sha256').update(name).digest('base64url')
}
