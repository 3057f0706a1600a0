/** How a call ends, for core modules and components alike. */
import type { Json, JsonNumber } from '#core/wasm/index.ts'

export type FailureReason = 'timeout' | 'oom' | 'trap' | 'guest_error' | 'module_invalid' | 'no_such_function'

/** What a command leaves behind. */
export type CommandResults = { exit_code: number; stdout: string; stderr: string }
/** The returned values of a core function, what a command leaves, or the returned value of a component's function. */
export type RunResults = JsonNumber[] | CommandResults | Json

/** How a call ended by itself. stdout and stderr are there when the module could write them. */
export type CallOutcome = {
  stdout?: string
  stderr?: string
  isOutputTruncated?: boolean
} & (
  | { state: 'completed'; results: RunResults }
  | { state: 'failed'; reason: FailureReason; error: string; results?: RunResults }
)

/** An outcome, and how much memory the instances leave to be collected. */
export type CallReport = { outcome: CallOutcome; memoryBytes: number }

/** More of a guest's error text is of no use to a reader. */
const MAX_ERROR_CHARACTERS = 1_000

export function failed(
  reason: FailureReason,
  error: string,
): { state: 'failed'; reason: FailureReason; error: string } {
  return { state: 'failed', reason, error: clip(error) }
}

function clip(text: string): string {
  return text.length > MAX_ERROR_CHARACTERS ? `${text.slice(0, MAX_ERROR_CHARACTERS)}…` : text
}

/** A memory of the guest when the call ended, and the largest size that the run's limit leaves to it. */
export type GuestMemory = { bytes: number; limitBytes: number }

/**
 * From this share of its limit on a memory stands at the limit: guests ask for memory in pieces, and what is left may be less than the next
 * piece. No interface of an engine tells whether a `memory.grow` was refused.
 */
const AT_LIMIT_SHARE = 7 / 8

/** Empty while no memory stands at its limit; else the end of a sentence that says so. */
function describeLimit(memories: readonly GuestMemory[]): string {
  const full = memories.find(({ bytes, limitBytes }) => bytes >= limitBytes * AT_LIMIT_SHARE)
  return full === undefined ? '' : `, with its memory at ${full.bytes} of at most ${full.limitBytes} bytes`
}

/** A guest that ended by itself with an exit code. With one other than 0 while its memory stands at the limit, it failed for memory. */
export function explainExit(
  functionName: string,
  results: CommandResults,
  memories: readonly GuestMemory[],
): CallOutcome {
  if (results.exit_code === 0) return { state: 'completed', results }
  const limit = describeLimit(memories)
  const error = `${functionName} ended with exit code ${results.exit_code}${limit}`
  return { ...failed(limit === '' ? 'guest_error' : 'oom', error), results }
}

export function explainFailure(error: unknown, memories: readonly GuestMemory[]): CallOutcome {
  const message = error instanceof Error ? error.message : String(error)
  if (error instanceof WebAssembly.LinkError || error instanceof WebAssembly.CompileError) {
    return failed('module_invalid', message)
  }
  if (error instanceof WebAssembly.Exception) {
    return failed('guest_error', 'the guest threw an exception that it did not catch')
  }
  if (error instanceof RangeError) {
    // A stack that overflows in compiled code is a RangeError of the engine; so is a memory that cannot be allocated.
    if (message.includes('call stack')) return failed('trap', 'call stack exhausted')
    if (message.includes('allocat')) return failed('oom', message)
  }
  return failed('trap', message + describeLimit(memories))
}
