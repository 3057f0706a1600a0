/** One runner as the pool books it: its threads with what they hold, its modules, its domain. Decides nothing. */
import type { PendingRun, RunOutcome } from './run-request.ts'
import type { RunnerProcess } from './runner-process.ts'

export type GuestThread = {
  index: number
  /** False until it runs: at first, and after it was ended. */
  isReady: boolean
  /** The first one is under way, the others wait in the thread. */
  runs: PendingRun[]
  /** When the first one began, on the monotonic clock: when it became the first. */
  headSinceMs: number
  isRecalling: boolean
  /** While it is being ended: the run that it is ended for, how that run ends, and the deadline. */
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
  /** The first domain that it served; it never serves another. Undefined: the spare, which has served nobody. */
  domain: string | undefined
  /** It holds a module that must run alone. */
  isAlone: boolean
  threads: GuestThread[]
  modules: Map<string, LoadedModule>
  idleSinceMs: number
  startDeadlineMs: number
  /** Its first thread runs. */
  hasStarted: boolean
  /** Why we killed it; undefined while we have not. */
  killCause: string | undefined
  isOverMemory: boolean
  /** Modules and runs that it was given since it started. */
  givenModules: number
  givenRuns: number
}

export function heldRuns(runner: Runner): PendingRun[] {
  return runner.threads.flatMap((thread) => thread.runs)
}

export function countHeld(runner: Runner): number {
  let count = 0
  for (const thread of runner.threads) count += thread.runs.length
  return count
}

/** What is under way in the runner: the first run of each thread. */
export function runsUnderWay(runner: Runner): PendingRun[] {
  return runner.threads.flatMap((thread) => thread.runs.slice(0, 1))
}

export function isHoldingRuns(runner: Runner): boolean {
  return runner.threads.some((thread) => thread.runs.length > 0)
}

/** A run that is under way for so long is not short, whatever those before it were: nothing goes or stays behind it. */
export const SHORT_CALL_MS = 5

/**
 * The thread for one more run: where calls are short the fullest one below `depth`, because runs that travel together cost
 * less, else an idle one. Undefined when there is none.
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
