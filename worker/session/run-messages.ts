/** Converts between messages about runs and the requests and outcomes of the runner pool, without rules of its own. */
import { create } from '@bufbuild/protobuf'
import type { MessageInitShape } from '@bufbuild/protobuf'
import { FailureReason, RunResultSchema, WireTaskState } from '#proto/index.ts'
import type { Assignment, RunRef, RunResult, StateEntrySchema } from '#proto/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { textOrBytes, wholeCharactersLength } from '#core/bytes/index.ts'
import type { TextOrBytes } from '#core/bytes/index.ts'
import type { Json, StateEntry } from '#guests/wasm/index.ts'
import { clientOf } from './state-bucket.ts'
import { hasOutputInResults } from '../runner/index.ts'
import type { RunOutcome, RunRequest, StateBucket } from '../runner/index.ts'

type Reason = Extract<RunOutcome, { state: 'failed' }>['reason'] | 'fetch_failed' | 'worker_lost'

/** An end with a result: all but `requeue`. */
export type RunEnd = {
  state: 'completed' | 'failed' | 'stopped'
  reason?: Reason
  error?: string
  frames?: readonly string[]
  results?: unknown
  durationMs: number
  /** Absent if its thread was ended: it may have used the processor all the time. */
  cpuMs?: number
  isOutputTruncated?: boolean
  /** What it read and wrote of the state of its task. */
  stateEntries?: readonly StateEntry[]
  /** What it wrote, if it could write. */
  stdout?: TextOrBytes
  stderr?: TextOrBytes
}

const REASONS = {
  timeout: FailureReason.TIMEOUT,
  oom: FailureReason.OOM,
  trap: FailureReason.TRAP,
  guest_error: FailureReason.GUEST_ERROR,
  module_invalid: FailureReason.MODULE_INVALID,
  fetch_failed: FailureReason.FETCH_FAILED,
  no_such_function: FailureReason.NO_SUCH_FUNCTION,
  // Of a run that the worker started by itself, and then was killed.
  worker_lost: FailureReason.WORKER_LOST,
} as const satisfies Record<Reason, FailureReason>

const STATES = {
  completed: WireTaskState.COMPLETED,
  failed: WireTaskState.FAILED,
  stopped: WireTaskState.STOPPED,
} as const

/** Longest error text of the protocol. */
const MAX_ERROR_BYTES = 4_096

/** Identifies an assignment; the fence alone is sufficient, the rest helps to read the spool. */
export function keyOf(run: RunRef): string {
  return `${run.runId}/${run.attempt}/${run.fence}`
}

export type CheckedAssignment = Assignment & {
  run: NonNullable<Assignment['run']>
  module: NonNullable<Assignment['module']>
  limits: NonNullable<Assignment['limits']>
}

/** True if all required fields are present and no limit is zero, which would mean "without limit". */
export function isComplete(assignment: Assignment): assignment is CheckedAssignment {
  const { run, module, limits } = assignment
  if (run === undefined || module === undefined || limits === undefined) return false
  const { timeoutMs, memoryLimitBytes, maxOutputBytes, maxResultBytes } = limits
  return (timeoutMs > 0n || assignment.daemon) && memoryLimitBytes > 0n && maxOutputBytes > 0n && maxResultBytes > 0n
}

/** `componentFolder` is the result of `Components.prepare`. Throws `malformed` if the inputs are not a JSON array. */
export function toRunRequest(
  assignment: CheckedAssignment,
  modulePath: string,
  componentFolder: string | undefined,
): RunRequest {
  const { run, module, limits } = assignment
  return {
    domain: assignment.domainId,
    digest: module.digest,
    modulePath,
    moduleBytes: Number(module.sizeBytes),
    componentFolder,
    timeoutMs: assignment.daemon ? Infinity : Number(limits.timeoutMs),
    call: {
      functionName: assignment.function,
      programName: assignment.taskName,
      inputs: parseInputsJson(assignment.inputsJson),
      args: assignment.cliArgs,
      env: {
        ...assignment.env,
        ...assignment.secrets,
        TASK_ID: assignment.taskId,
        RUN_ID: run.runId,
        ATTEMPT: String(run.attempt),
      },
      stdin: assignment.stdin.length > 0 ? textOrBytes(assignment.stdin) : assignment.triggerJson,
      bytesAsBase64: assignment.bytesAsBase64,
      memoryLimitBytes: Number(limits.memoryLimitBytes),
      maxOutputBytes: Number(limits.maxOutputBytes),
    },
  }
}

function parseInputsJson(text: string): Json[] {
  if (text === '') return []
  const inputs: unknown = JSON.parse(text)
  if (Array.isArray(inputs)) return inputs as Json[]
  throw new ServiceError('malformed', 'inputs must be an array with one value per parameter')
}

/** Room for the mark of a cut output, as JSON. */
const MARK_BYTES = 96

/**
 * The result of a command whose output, as it may be with the largest `max_output_bytes`, does not fit into a result: the longer output is
 * cut. Undefined for a result that is none of a command.
 */
function cutOutput(results: unknown, whole: string, maxBytes: number): string | undefined {
  if (typeof results !== 'object' || results === null || !('exit_code' in results)) return undefined
  const { stdout, stderr } = results as { stdout?: unknown; stderr?: unknown }
  if (typeof stdout !== 'string' || typeof stderr !== 'string') return undefined
  // A character has at least one byte.
  const surplus = Buffer.byteLength(whole) - maxBytes + MARK_BYTES
  const cut = (text: string) =>
    `${text.slice(0, -surplus).toWellFormed()}\n[truncated: a result has at most ${maxBytes} bytes]\n`
  if (Math.max(stdout.length, stderr.length) < surplus) return undefined
  const isStdout = stdout.length >= stderr.length
  return JSON.stringify({ ...results, ...(isStdout ? { stdout: cut(stdout) } : { stderr: cut(stderr) }) })
}

export function toRunResult(assignment: CheckedAssignment, end: RunEnd, prepareMs: number): RunResult {
  const maxBytes = Number(assignment.limits.maxResultBytes)
  const whole = end.results === undefined ? '' : JSON.stringify(end.results)
  const cut = Buffer.byteLength(whole) > maxBytes ? cutOutput(end.results, whole, maxBytes) : undefined
  const resultsJson = cut ?? whole
  const resultBytes = Buffer.byteLength(resultsJson)
  const isTooLarge = resultBytes > maxBytes
  const kept: RunEnd = isTooLarge
    ? {
        state: 'failed',
        reason: 'guest_error',
        error: `the result has ${resultBytes} bytes, at most ${maxBytes} are accepted`,
        durationMs: end.durationMs,
        ...(end.cpuMs === undefined ? {} : { cpuMs: end.cpuMs }),
      }
    : end
  const outputTruncated = cut !== undefined || (kept.isOutputTruncated ?? false)
  return create(RunResultSchema, {
    run: assignment.run,
    state: STATES[kept.state],
    reason: kept.reason === undefined ? FailureReason.UNSPECIFIED : REASONS[kept.reason],
    error: clip((kept.error ?? '').toWellFormed()),
    frames: [...(kept.frames ?? [])],
    resultsJson: isTooLarge ? '' : resultsJson,
    durationMs: kept.durationMs,
    cpuMs: kept.cpuMs ?? kept.durationMs,
    prepareMs,
    outputTruncated,
    outputInResult: resultsJson !== '' && !isTooLarge && !outputTruncated && hasOutputInResults(end),
    stateEntries: toStateEntries(assignment, kept.stateEntries ?? []),
  })
}

function toStateEntries(
  assignment: CheckedAssignment,
  entries: readonly StateEntry[],
): MessageInitShape<typeof StateEntrySchema>[] {
  const clients = new Map<StateBucket, string | undefined>()
  return entries.flatMap(({ bucket, key, version, value }) => {
    const client = clients.getOrInsertComputed(bucket, () => {
      const found = clientOf(assignment, bucket)
      return typeof found === 'string' ? found : undefined
    })
    // A guest cannot write to a bucket that it could not open.
    if (client === undefined) return []
    return [
      {
        client,
        key,
        ...(version === undefined ? {} : { readVersion: BigInt(version) }),
        ...(value === undefined ? {} : value === null ? { deleted: true } : { value: Uint8Array.fromBase64(value) }),
      },
    ]
  })
}

function clip(text: string): string {
  const bytes = Buffer.from(text).subarray(0, MAX_ERROR_BYTES)
  return bytes.toString('utf8', 0, wholeCharactersLength(bytes))
}
