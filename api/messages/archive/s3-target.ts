/** The place of a bucket, and how long requests to it may take. */
import type { Secret } from '#core/config/index.ts'

/** Where the store is, and what is known of it. One for a process. */
export type S3Target = {
  /** `https://host:port`. */
  endpoint: string
  region: string
  /** The bucket is in the path, not in the name of the host. */
  isPathStyle: boolean
  accessKey: Secret
  secretKey: Secret
  /** What the store has refused. */
  lacks: Set<'multipart' | 'batch deletion' | 'listing of uploads'>
  /** Whether the store was seen to honour conditions. */
  hasConditions?: boolean
  retry?: RetryLimits
  /** Size of the pieces of a file. */
  pieceBytes?: number
}

export type RetryLimits = {
  /** For one attempt. */
  attemptMs: number
  /** For an attempt that sends a piece of a file. */
  pieceMs: number
  /** After which no other attempt begins. */
  deadlineMs: number
  pauseMs: number
  /** For all that gives up one file. It must hold up neither the round of a store that has just failed, nor the end of the process. */
  giveUpMs: number
}

/** A piece of 8 MiB takes two minutes at 70 kB/s. The rounds of the archive repeat what fails here. */
export const RETRY_LIMITS: RetryLimits = {
  attemptMs: 30_000,
  pieceMs: 120_000,
  deadlineMs: 120_000,
  pauseMs: 200,
  giveUpMs: 5000,
}
