/** Outcomes of calls, for core modules and components. */
import type { TextOrBytes } from '#core/bytes/index.ts'
import type { Json, JsonNumber, StateEntry } from '../wasm/index.ts'
import { guestFrames } from './guest-frames.ts'

export type FailureReason = 'timeout' | 'oom' | 'trap' | 'guest_error' | 'module_invalid' | 'no_such_function'

/** The results of a command. */
export type CommandResults = { exit_code: number; stdout: TextOrBytes; stderr: TextOrBytes }
/** The returned values of a core function, the results of a command, or the returned value of a component's function. */
export type RunResults = JsonNumber[] | CommandResults | Json

/** The outcome of a call. stdout and stderr are present if the module could write them. */
export type CallOutcome = {
  stdout?: TextOrBytes
  stderr?: TextOrBytes
  isOutputTruncated?: boolean
} & (
  | { state: 'completed'; results: RunResults }
  /** `frames`: the innermost first; present after a trap. */
  | { state: 'failed'; reason: FailureReason; error: string; frames?: string[]; results?: RunResults }
)

/** An outcome, how much memory of the instances must be collected, and what the call read and wrote of its state. */
export type CallReport = { outcome: CallOutcome; memoryBytes: number; stateEntries?: StateEntry[] }

/** Limit of a guest's error text. */
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

/** A memory of the guest at the end of the call, and its limit. */
export type GuestMemory = { bytes: number; limitBytes: number }

/**
 * The share from which on a memory counts as exhausted: guests allocate in pieces, and the rest can be smaller than the next piece. Engines
 * do not report a refused `memory.grow`.
 */
const AT_LIMIT_SHARE = 7 / 8

/** Empty while no memory is exhausted; else the end of a sentence about it. */
function describeLimit(memories: readonly GuestMemory[]): string {
  const full = memories.find(({ bytes, limitBytes }) => bytes >= limitBytes * AT_LIMIT_SHARE)
  return full === undefined ? '' : `, with its memory at ${full.bytes} of at most ${full.limitBytes} bytes`
}

/** A guest that exited with a code. A code other than 0 with an exhausted memory counts as out of memory. */
export function explainExit(
  functionName: string,
  results: CommandResults,
  memories: readonly GuestMemory[],
  lastLines: string,
): CallOutcome {
  if (results.exit_code === 0) return { state: 'completed', results }
  const limit = describeLimit(memories)
  const error = `${functionName} exited with code ${results.exit_code}${limit}`
  const isOutOfMemory = limit !== '' || saysOutOfMemory(lastLines)
  return { ...withLastLines(failed(isOutOfMemory ? 'oom' : 'guest_error', error), lastLines), results }
}

/** A call that threw; `lastLines`: the end of the guest's error output. */
export function explainFailure(error: unknown, memories: readonly GuestMemory[], lastLines: string): CallOutcome {
  const explained = explainThrown(error, memories)
  const frames = guestFrames(error)
  const isOutOfMemory = explained.reason === 'trap' && saysOutOfMemory(lastLines)
  return {
    ...withLastLines(explained, lastLines),
    ...(isOutOfMemory ? { reason: 'oom' } : {}),
    ...(frames.length === 0 ? {} : { frames }),
  }
}

type Failed = ReturnType<typeof failed>

function withLastLines(outcome: Failed, lastLines: string): Failed {
  return lastLines === '' ? outcome : { ...outcome, error: `${outcome.error}\n${lastLines}` }
}

/**
 * Runtimes that were refused memory say so and end: Go, Rust, C and C++ libraries, Python and JavaScript. Engines do not
 * report a refused `memory.grow`.
 */
const OUT_OF_MEMORY =
  /out of memory|cannot allocate memory|memory allocation of \d+ bytes failed|bad_alloc|MemoryError/i

function saysOutOfMemory(lastLines: string): boolean {
  return OUT_OF_MEMORY.test(lastLines)
}

function explainThrown(error: unknown, memories: readonly GuestMemory[]): Failed {
  const message = error instanceof Error ? error.message : String(error)
  if (error instanceof WebAssembly.LinkError || error instanceof WebAssembly.CompileError) {
    return failed('module_invalid', message)
  }
  if (error instanceof WebAssembly.Exception) {
    return failed('guest_error', 'the guest threw an exception that it did not catch')
  }
  if (error instanceof RangeError) {
    // A stack overflow in compiled code is a RangeError of the engine; so is a failed allocation of memory.
    if (message.includes('call stack')) return failed('trap', 'call stack exhausted')
    if (message.includes('allocat')) return failed('oom', message)
  }
  return failed('trap', message + describeLimit(memories))
}
