/** The request and the result of a start. */
import type { Actor } from '#api/identity/index.ts'
import type { TextOrBytes } from '#core/bytes/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { RunCause } from './cause.ts'
import type { EndedRun } from './run.ts'
import type { RunInput } from './task-fields.ts'
import type { Claims, ContentRef, GivenMessages } from '#queues/index.ts'

/** Fields that the caller can override for this run only. */
export type RunOverrides = {
  inputs?: RunInput[]
  cliArgs?: string[]
  env?: Record<string, string>
  stdin?: TextOrBytes
  /** Lists of `u8` in the result are given as base64. */
  bytes?: 'base64'
}

/** The current digest of an image reference. */
export type ResolvedImage = {
  imageUrl: string
  digest: string
  sizeBytes: number
  reference: string
  /** Warnings from the resolution. */
  notes: readonly string[]
}

/** The task has this reference, and the request has the digest of another one or none. */
export class UnresolvedImage extends ServiceError {
  readonly reference: string

  constructor(reference: string) {
    super('unavailable', 'the task was changed concurrently; try again', { retryAfterSeconds: 1 })
    this.reference = reference
  }
}

export type StartRequest = {
  taskId: string
  runId: string
  overrides: RunOverrides
  /** true: a start, the task's state follows the run; false: an invocation. */
  drivesTask: boolean
  /** Fails if no worker fits, instead of waiting in the queue. */
  needsWorker?: boolean
  /** Its caller waits for its end and learns of the run with it: it can be recorded with its end. */
  isAwaited?: boolean
  /** The digest of the task's reference, or why it could not be resolved; undefined: no reference is known. */
  image: ResolvedImage | Error | undefined
  /** Idempotency-Key of a start or an invocation. */
  idempotency: { userKey: number; key: string; bodyDigest: string } | undefined
  /** The user of a start in the journal; undefined: it is not recorded. */
  recordedFor?: Actor
  /** The time when the writer took it, on the monotonic clock; set by the writer. */
  sinceMs?: number
  cause: RunCause
  /** The message that triggers it. */
  trigger?: GivenMessages | undefined
  /** The places where its messages are stored, in their order; null: the run keeps the message. Absent: the run keeps all of them. */
  contents?: readonly (ContentRef | null)[] | undefined
  /** Its messages are kept until it ends, and no other run may have them. */
  claims?: Claims | undefined
  /** Place of the start in its trace; see `core/tracing`. */
  traceparent?: string | undefined
}

/** `runKey` undefined: a run with the same key exists. `ended`: it was recorded with its end. */
export type StartedRun = {
  runId: string
  runKey: number | undefined
  taskKey: number
  ended?: EndedRun
}
