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

/** `wasRefused`: a `memory.grow` of the guest was refused before. */
export function explainFailure(error: unknown, wasRefused: boolean, memoryLimitBytes: number): CallOutcome {
  const message = error instanceof Error ? error.message : String(error)
  if (error instanceof WebAssembly.LinkError || error instanceof WebAssembly.CompileError) {
    return failed('module_invalid', message)
  }
  if (error instanceof WebAssembly.RuntimeError) {
    // A guest that could not get more memory ends itself with `unreachable`: what failed it is the limit.
    if (wasRefused) return failed('oom', `${message}, after it was refused memory beyond ${memoryLimitBytes} bytes`)
    return failed('trap', message)
  }
  if (error instanceof WebAssembly.Exception) {
    return failed('guest_error', 'the guest threw an exception that it did not catch')
  }
  // A stack that overflows in compiled code is a RangeError of the engine; so is a memory that cannot be allocated.
  if (error instanceof RangeError) {
    return message.includes('call stack') ? failed('trap', 'call stack exhausted') : failed('oom', message)
  }
  return failed('trap', message)
}
