/**
 * The data of a run. The spec is frozen when the run starts and stored as JSON with it, so that any manager can assign it
 * again, hours later and after an edit of the task, without other data.
 */
import type { TextOrBytes } from '#core/bytes/index.ts'
import type { TaskState } from '#proto/index.ts'
import type { SpecFields } from './task-fields.ts'
import type { AssignedModule } from './module.ts'
import type { Claims, GivenMessages, TriggerMessage } from '#queues/index.ts'

/** The spec is stored in `runs.spec`, with the names of the database. */
export type RunSpec = SpecFields & {
  task_id: string
  task_name: string
  domain_id: string | null
  module_bytes: number
  /** The full reference of the digest; null: uploaded, served by the managers. */
  module_reference: string | null
  /** The function that the task calls without naming it, if it is known. */
  called?: string
  /** Warnings from the resolution of the reference. */
  module_notes?: readonly string[]
  /** The domain and user for publishing and reading; present with the fields that need them. */
  domain_key?: number
  user_key?: number
  /** Sealed secrets in base64; opened only for the assignment. */
  secrets?: string
  /** Standard input that the caller gave; a string is text. */
  stdin?: TextOrBytes
  /** The form of lists of `u8` in the result; absent: arrays. */
  bytes?: 'base64'
  /** What triggered the run. */
  trigger?: GivenMessages
  /** Stands for `trigger` if a message is stored apart: `inputs` are then those of the task alone. */
  given?: StoredGiven
  /** Its module uses the state of the task, so what it publishes goes out with its result. */
  uses_state?: true
  /** Its messages are kept until it ends. */
  claims?: Claims
  /** Place of its start in a trace; only while tracing is on. */
  traceparent?: string
}

/** Messages of a run, of which large ones are stored apart, and the parameters of the function that takes them. */
export type StoredGiven = {
  messages: readonly (TriggerMessage | { content_key: number })[]
  is_list: boolean
  /** null: the module was not read yet. */
  params: readonly string[] | null
}

/** Whether a message or a list of messages started it. */
export const isTriggered = ({ trigger, given }: RunSpec): boolean => trigger !== undefined || given !== undefined

/** Whether what its guest publishes is kept until it ends: a run that is repeated must not have published. */
export const holdsPublications = (spec: RunSpec): boolean =>
  isTriggered(spec) || (spec.uses_state === true && spec.daemon !== true)

export const NO_STATE_OF_CLIENT = 'a daemon has no state, and a run has only that of the client whose messages it got'

/** Whether it may use state of this client, empty: of no client. A worker knows the messages of its runs; those in the spec are known here too. */
export function mayHaveStateOf(spec: RunSpec, client: string): boolean {
  if (spec.daemon === true) return false
  if (client === '') return true
  return (
    isTriggered(spec) &&
    (spec.trigger === undefined || [spec.trigger].flat().every(({ publisher }) => publisher === client))
  )
}

/** Whether its end can change messages: it publishes its result, a message started it, or it publishes with its end. */
export const endsWithMessages = (spec: RunSpec): boolean => spec.publish_result !== undefined || holdsPublications(spec)

/** The module of a run, as it is sent to its worker. */
export function moduleOf({ digest, spec }: Pick<RunHandle, 'digest' | 'spec'>): AssignedModule {
  return { digest, sizeBytes: spec.module_bytes, reference: spec.module_reference }
}

/** One assignment of a run: reports of a worker are accepted only under its fence. */
export type RunIdentity = { id: string; attempt: number; fence: number }

/** A run in the writer. */
export type RunHandle = {
  /** 0: it is not in the database yet. */
  key: number
  id: string
  taskKey: number
  drivesTask: boolean
  /** The broadcast run that it belongs to. */
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

/** A run that is assigned to a worker, in the manager that holds the worker's session. */
export type AssignedRun = RunHandle & {
  fence: number
  /** The time when it was sent to its worker, on the monotonic clock; undefined if it was sent twice or by another manager. */
  sentMs?: number | undefined
  /** A stop was sent to the worker. */
  isCancelSent?: true
  /** Number of heartbeats of the session when it was sent; undefined: the worker has confirmed it. */
  unconfirmedSince?: number | undefined
  /** Resolves when the output that was received so far is stored, or dropped; undefined: there is none. */
  logged?: Promise<void>
  /** It was sent before it is in the database; undefined: it is there. */
  unrecorded?: Unrecorded | undefined
}

/** What can be asked of a run that is not in the database yet. */
export type Unrecorded = {
  /** Resolves once it is in the database; undefined: it is no longer the run of this worker. */
  readonly recorded: Promise<RunHandle | undefined>
  /** So many bytes of its output wait in memory until it is recorded. */
  holdOutput(bytes: number): void
}

export function isAssigned(run: RunHandle): run is AssignedRun {
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
  'queue_timeout',
  'state_conflict',
] as const
export type FailureReason = (typeof FAILURE_REASONS)[number]

/** Reason of a run that was refused before it was started, for a step of a workflow: no worker has seen it. */
export const REFUSED = 'refused'

/** The end of a run. */
export type RunEnding = {
  /** completed, failed or stopped */
  state: TaskState
  reason: FailureReason | null
  /** One sentence, then the last lines of stderr. */
  error: string | null
  /** Stack of the guest after a trap. */
  frames: readonly string[]
  /** JSON text; null: none, or staged. */
  results: string | null
  staged: { digest: string; sizeBytes: number } | null
  durationMs: number | null
  prepareMs: number | null
  /** Processor time; absent: none that is known. */
  cpuMs?: number
  outputTruncated: boolean
  /** The results are those of a command and have all of its output; absent: they are not, or its worker is older. */
  isOutputInResult?: true
  /** What a completed run has read and written of the state of its task; absent: it wrote nothing. */
  stateEntries?: readonly StateEntry[]
}

/** A key of the state of the task that a run has read or written. `client` empty: the bucket of the task. */
export type StateEntry = {
  client: string
  key: string
  /** Version that it read, 0 if there was none; undefined: it did not read the key. */
  readVersion: number | undefined
  /** null: deleted; undefined: it did not write the key. */
  value: Uint8Array | null | undefined
}

export type EndedRun = RunEnding & { runKey: number; runId: string; workerId: string | null }

export const STOPPED_BEFORE_RUNNING = {
  reason: null,
  error: null,
  frames: [],
  results: null,
  staged: null,
  durationMs: null,
  prepareMs: null,
  outputTruncated: false,
} as const satisfies Omit<RunEnding, 'state'>
