/** Between the messages about runs and what the runner pool takes and answers; no rule lives here. */
import { create } from '@bufbuild/protobuf'
import { FailureReason, RunResultSchema, WireTaskState } from '#proto/index.ts'
import type { Assignment, RunRef, RunResult } from '#proto/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Json } from '#core/wasm/index.ts'
import type { RunOutcome, RunRequest } from '../runner/index.ts'

type Reason = Extract<RunOutcome, { state: 'failed' }>['reason'] | 'fetch_failed'

/** An end that is worth a result: everything but `requeue`. */
export type RunEnd = {
  state: 'completed' | 'failed' | 'stopped'
  reason?: Reason
  error?: string
  results?: unknown
  durationMs: number
  isOutputTruncated?: boolean
}

const REASONS = {
  timeout: FailureReason.TIMEOUT,
  oom: FailureReason.OOM,
  trap: FailureReason.TRAP,
  guest_error: FailureReason.GUEST_ERROR,
  module_invalid: FailureReason.MODULE_INVALID,
  fetch_failed: FailureReason.FETCH_FAILED,
  no_such_function: FailureReason.NO_SUCH_FUNCTION,
} as const satisfies Record<Reason, FailureReason>

const STATES = {
  completed: WireTaskState.COMPLETED,
  failed: WireTaskState.FAILED,
  stopped: WireTaskState.STOPPED,
} as const

/** Longest error text of the protocol, in bytes; a character takes at most three of them here. */
const MAX_ERROR_CHARACTERS = 1_300

/** Identifies an assignment; the fence alone would do, the rest is for people who read the spool. */
export function keyOf(run: RunRef): string {
  return `${run.runId}/${run.attempt}/${run.fence}`
}

export type CheckedAssignment = Assignment & {
  run: NonNullable<Assignment['run']>
  module: NonNullable<Assignment['module']>
  limits: NonNullable<Assignment['limits']>
}

/** True when nothing that the worker needs is missing and no limit is zero, which would mean "without limit". */
export function isComplete(assignment: Assignment): assignment is CheckedAssignment {
  const { run, module, limits } = assignment
  if (run === undefined || module === undefined || limits === undefined) return false
  const { timeoutMs, memoryLimitBytes, maxOutputBytes, maxResultBytes } = limits
  return (timeoutMs > 0n || assignment.daemon) && memoryLimitBytes > 0n && maxOutputBytes > 0n && maxResultBytes > 0n
}

/** `componentFolder` as `Components.prepare` answered. Throws `malformed` when the inputs are no JSON array. */
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
      taskName: assignment.taskName,
      inputs: parseInputsJson(assignment.inputsJson),
      args: assignment.cliArgs,
      env: {
        ...assignment.env,
        ...assignment.secrets,
        TASK_ID: assignment.taskId,
        RUN_ID: run.runId,
        ATTEMPT: String(run.attempt),
      },
      stdin: assignment.triggerJson,
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

export function toRunResult(assignment: CheckedAssignment, end: RunEnd, prepareMs: number): RunResult {
  const resultsJson = end.results === undefined ? '' : JSON.stringify(end.results)
  const maxBytes = Number(assignment.limits.maxResultBytes)
  const resultBytes = Buffer.byteLength(resultsJson)
  const isTooLarge = resultBytes > maxBytes
  const kept: RunEnd = isTooLarge
    ? {
        state: 'failed',
        reason: 'guest_error',
        error: `the result has ${resultBytes} bytes, at most ${maxBytes} are accepted`,
        durationMs: end.durationMs,
      }
    : end
  return create(RunResultSchema, {
    run: assignment.run,
    state: STATES[kept.state],
    reason: kept.reason === undefined ? FailureReason.UNSPECIFIED : REASONS[kept.reason],
    error: (kept.error ?? '').slice(0, MAX_ERROR_CHARACTERS).toWellFormed(),
    resultsJson: isTooLarge ? '' : resultsJson,
    durationMs: kept.durationMs,
    prepareMs,
    outputTruncated: kept.isOutputTruncated ?? false,
  })
}
