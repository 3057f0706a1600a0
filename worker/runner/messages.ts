/**
 * Messages between a worker process and its runner processes. Sent as JSON in frames (`frames.ts`), one per turn of the
 * event loop, so that a thousand short runs cost a few system calls. `from-runner.ts` validates messages of a runner,
 * which are untrusted, because it runs guest code.
 */
import type { Call, CallOutcome, CompiledModule, OutputName } from '#guests/calls/index.ts'
import type { GuestCall, GuestReply, StateEntry } from '#guests/wasm/index.ts'
import type { CompiledComponent } from '../runtime/component.ts'

/**
 * `isStreamed`: what it wrote to stdout and stderr was said before. `memoryBytes`: the memory of its instances; one that
 * the module does not export counts as full. `cpuMs`: processor time of the thread. `isOutputInResults`: the results have no `stdout` and
 * `stderr`, which are those of the outcome.
 */
export type EndedCall = {
  outcome: CallOutcome
  durationMs: number
  cpuMs: number
  memoryBytes: number
  isStreamed: boolean
  isOutputInResults?: boolean
  /** What it read and wrote of the state of its task; absent: it wrote nothing. */
  stateEntries?: StateEntry[]
}

/** The data of one call; `sequence` identifies it within the pool. */
export type RunOrder = {
  sequence: number
  /** Digest and memory limit: the key of a compiled module. */
  moduleKey: string
  call: Call
}

export type ModuleOrder = {
  moduleKey: string
  /**
   * The files that follow in frames of `FRAME.module`, in this order: the module, then for a component its transpiled
   * form.
   */
  files: { name: string; bytes: number }[]
  memoryLimitBytes: number
  maxModuleBytes: number
  allowGc: boolean
}

export type ToRunner =
  | { type: 'open_thread'; thread: number }
  /** This is only for a thread that is ready and a module that is loaded. */
  | { type: 'run'; thread: number; order: RunOrder }
  /** Take back what the thread has not begun. */
  | { type: 'recall'; thread: number }
  /** End the thread's thread, whatever it does, and start a new one. */
  | { type: 'end_thread'; thread: number }
  | { type: 'load_module'; module: ModuleOrder }
  | { type: 'drop_module'; moduleKey: string }
  | { type: 'guest_reply'; thread: number; sequence: number; callId: number; reply: GuestReply }

export type FromRunner =
  /** The code is loaded. */
  | { type: 'ready' }
  | { type: 'thread_ready'; thread: number }
  /** The thread is gone; `thread_ready` follows when the new one runs. */
  | { type: 'thread_ended'; thread: number }
  | { type: 'module_ready'; moduleKey: string; refused?: string; reason?: 'module_invalid' | 'oom' }
  | ({ type: 'ended'; thread: number; sequence: number } & EndedCall)
  /** The run under way asks for something and waits; `callId` counts from 1 in each run. */
  | { type: 'guest_call'; thread: number; sequence: number; callId: number; call: GuestCall }
  /** The run under way wrote this, in base64; only runs that take their time say so. */
  | { type: 'output'; thread: number; sequence: number; output: OutputName; data: string }
  | { type: 'recalled'; thread: number; sequences: number[] }
  /** The thread ended without being told to, which the engine does when its own heap is full; a new one starts. */
  | { type: 'thread_lost'; thread: number; error: string }
  /** Resident memory, for platforms where the supervisor cannot read it. */
  | { type: 'resident'; residentBytes: number }

/** Messages of a runner's main thread to one of its threads. */
export type ToGuestThread =
  | { type: 'module'; moduleKey: string; compiled: CompiledModule | CompiledComponent }
  | { type: 'drop_module'; moduleKey: string }
  /** The runs are begun in this order, each in its slot. */
  | { type: 'runs'; runs: { slot: number; order: RunOrder }[] }

export type FromGuestThread =
  | ({ type: 'ended'; slot: number; sequence: number } & EndedCall)
  | { type: 'guest_call'; sequence: number; callId: number; call: GuestCall }
  | { type: 'output'; sequence: number; output: OutputName; data: string }

/** Runs that a thread can hold, including the active one. */
export const THREAD_QUEUE_RUNS = 32

/** States of a thread's slots, in shared memory of the main thread and the thread: they decide the race for a run. */
export const SLOT = { free: 0, queued: 1, begun: 2, recalled: 3 } as const
