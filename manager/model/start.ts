/** What starts a run, and what comes of it. */
import type { RunInput } from './task-fields.ts'
import type { TriggerMessage } from '#queues/index.ts'

/** What the caller may change for this run alone. */
export type RunOverrides = { inputs?: RunInput[]; cliArgs?: string[]; env?: Record<string, string> }

/** A digest that an image reference stands for now. */
export type ResolvedImage = {
  imageUrl: string
  digest: string
  sizeBytes: number
  reference: string
  /** What people should know about how it was resolved. */
  notes: readonly string[]
}

export type StartRequest = {
  taskId: string
  runId: string
  overrides: RunOverrides
  /** true: start, the task's state follows the run; false: invoke. */
  drivesTask: boolean
  /** Refused where no worker fits, instead of queued. */
  needsWorker?: boolean
  /** The digest of the reference that the task had a moment ago, or why there is none; undefined: it had no reference. */
  image: ResolvedImage | Error | undefined
  /** Idempotency-Key of a start. */
  idempotency: { userKey: number; key: string; bodyDigest: string } | undefined
  /** The message that starts it. */
  trigger?: TriggerMessage | undefined
}

/** `runKey` undefined: the run was started before, under the same key. */
export type StartedRun = { runId: string; runKey: number | undefined; taskKey: number }
