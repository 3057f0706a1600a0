/** The state of one runner in the pool: its threads and their runs, its modules, its domain. */
import type { PendingRun, RunOutcome } from './run-request.ts'
import type { RunnerProcess } from './runner-process.ts'

export type GuestThread = {
  index: number
  /** False while it starts: at first, and after it was ended. */
  isReady: boolean
  /** The first run is active, the others are queued in the thread. */
  runs: PendingRun[]
  /** The time when the first run began, on the monotonic clock: when it became the first. */
  headSinceMs: number
  isRecalling: boolean
  /** Present while the thread is being ended: the run that caused it, its outcome, and the deadline. */
  killing: { run: PendingRun; outcome: RunOutcome; deadlineMs: number } | undefined
}

export type LoadedModule = {
  bytes: number
  domain: string
  digest: string
  state: 'loading' | 'ready'
  loadDeadlineMs: number
  lastUsedMs: number
}

export type Runner = {
  index: number
  process: RunnerProcess
  state: 'starting' | 'ready' | 'dying'
  /** The first domain that it served; it never serves another. Undefined: the spare, which is unused. */
  domain: string | undefined
  /** It runs a module that must run alone. */
  isAlone: boolean
  threads: GuestThread[]
  modules: Map<string, LoadedModule>
  idleSinceMs: number
  startedMs: number
  /** Its first thread is running. */
  hasStarted: boolean
  /** Why it was killed; undefined if it was not. */
  killCause: string | undefined
  isOverMemory: boolean
  /** Modules and runs since its start. */
  sentModules: number
  sentRuns: number
}

export function heldRuns(runner: Runner): PendingRun[] {
  return runner.threads.flatMap((thread) => thread.runs)
}

export function countHeld(runner: Runner): number {
  let count = 0
  for (const thread of runner.threads) count += thread.runs.length
  return count
}

/** The active runs of the runner: the first run of each thread. */
export function runsUnderWay(runner: Runner): PendingRun[] {
  return runner.threads.flatMap((thread) => thread.runs.slice(0, 1))
}

/** Modules that the runner has loaded or refused and runs that have ended in it, in number: what may have left memory behind. */
export function servedBy(runner: Runner): number {
  const loading = [...runner.modules.values()].filter(({ state }) => state === 'loading')
  return runner.sentModules - loading.length + runner.sentRuns - heldRuns(runner).length
}

export function isHoldingRuns(runner: Runner): boolean {
  return runner.threads.some((thread) => thread.runs.length > 0)
}

/** It holds no runs and loads no module that a run waits for. */
export function isIdle(runner: Runner): boolean {
  const isLoading = [...runner.modules.values()].some(({ state }) => state === 'loading')
  return runner.state === 'ready' && countHeld(runner) === 0 && !isLoading
}

/** A process usually starts in a fraction of a second. */
const SLOW_START_MS = 2_000

export function isStartSlow({ hasStarted, state, startedMs }: Runner, nowMs: number): boolean {
  return !hasStarted && state !== 'dying' && nowMs - startedMs > SLOW_START_MS
}

/** A run that is active for longer is not short, independent of earlier ones: no run waits behind it. */
export const SHORT_CALL_MS = 5

/**
 * The thread for one more run: for short calls the fullest one below `depth`, because runs that are sent together cost
 * less; else an idle one. Undefined if there is none.
 */
export function findThread(runner: Runner, depth: number, nowMs: number): GuestThread | undefined {
  let best: GuestThread | undefined
  for (const thread of runner.threads) {
    if (!thread.isReady || thread.isRecalling || thread.killing !== undefined || thread.runs.length >= depth) continue
    if (thread.runs.length > 0 && nowMs - thread.headSinceMs > SHORT_CALL_MS) continue
    if (best === undefined || thread.runs.length > best.runs.length) best = thread
  }
  return best
}
