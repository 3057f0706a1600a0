/**
 * What a run is made of. The spec is frozen when the run starts and stored as JSON with it, so that any manager can
 * assign it again, hours later and after the task was edited, without asking anybody.
 */
import type { TaskState } from '#proto/index.ts'
import type { SpecFields } from './task-fields.ts'
import type { AssignedModule } from './module.ts'
import type { TriggerMessage } from '#queues/index.ts'

/** Stored in `runs.spec`; the names are those of the database. */
export type RunSpec = SpecFields & {
  task_id: string
  task_name: string
  domain_id: string | null
  module_bytes: number
  /** The full reference the digest was resolved from; null: uploaded, served by the managers. */
  module_reference: string | null
  /** What people should know about how the reference was resolved. */
  module_notes?: readonly string[]
  /** Where and as whom it publishes and reads; present with the fields that need it. */
  domain_key?: number
  user_key?: number
  /** Sealed secrets in base64; opened for the assignment alone. */
  secrets?: string
  /** What triggered the run. */
  trigger?: TriggerMessage
}

/** The module of a run, as its worker is told of it. */
export function moduleOf({ digest, spec }: Pick<RunHandle, 'digest' | 'spec'>): AssignedModule {
  return { digest, sizeBytes: spec.module_bytes, reference: spec.module_reference }
}

/** One assignment of a run: what a worker says counts under its fence alone. */
export type RunIdentity = { id: string; attempt: number; fence: number }

/** A run as the writer handles it. */
export type RunHandle = {
  key: number
  id: string
  taskKey: number
  drivesTask: boolean
  /** The broadcast that it is a part of. */
  parentId: string | null
  attempt: number
  /** null: not assigned. */
  fence: number | null
  digest: string
  /** Hash of its needs. */
  needs: string
  spec: RunSpec
  state: TaskState
}

/** A run that is assigned to a worker, as the manager that holds the worker's session knows it. */
export type HeldRun = RunHandle & {
  fence: number
  /** When it was sent to its worker, on the monotonic clock; undefined when it was sent twice or by somebody else. */
  sentMs?: number | undefined
  /** The worker was told to stop it. */
  isCancelSent?: true
  /** Number of heartbeats of the session when it was sent; undefined: the worker has said that it has it. */
  unconfirmedSince?: number | undefined
}

export function isAssigned(run: RunHandle): run is HeldRun {
  return run.fence !== null
}

export const FAILURE_REASONS = [
  'timeout',
  'oom',
  'trap',
  'guest_error',
  'worker_lost',
  'module_invalid',
  'fetch_failed',
  'no_such_function',
] as const
export type FailureReason = (typeof FAILURE_REASONS)[number]

/** How a run ended. */
export type RunEnding = {
  /** completed, failed or stopped */
  state: TaskState
  reason: FailureReason | null
  error: string | null
  /** JSON text; null: none, or staged. */
  results: string | null
  staged: { digest: string; sizeBytes: number } | null
  durationMs: number | null
  prepareMs: number | null
  outputTruncated: boolean
}

export const STOPPED_BEFORE_RUNNING = {
  reason: null,
  error: null,
  results: null,
  staged: null,
  durationMs: null,
  prepareMs: null,
  outputTruncated: false,
} as const satisfies Omit<RunEnding, 'state'>
