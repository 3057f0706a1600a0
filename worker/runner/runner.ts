/** One runner as the pool books it: its lanes with what they hold, its modules, its domain. Decides nothing. */
import type { PendingRun, RunOutcome } from './run-request.ts'
import type { RunnerProcess } from './runner-process.ts'

export type Lane = {
  index: number
  /** False until its thread runs: at first, and after a thread was ended. */
  isReady: boolean
  /** The first one is under way, the others wait in the lane's thread. */
  runs: PendingRun[]
  /** When the first one began, on the monotonic clock: when it became the first. */
  headSinceMs: number
  isRecalling: boolean
  /** While its thread is being ended: the run that it is ended for, how that run ends, and when patience ends. */
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
  lanes: Lane[]
  modules: Map<string, LoadedModule>
  idleSinceMs: number
  startDeadlineMs: number
  /** Its first lane runs. */
  hasStarted: boolean
  /** Why we killed it; undefined while we have not. */
  killCause: string | undefined
  isOverMemory: boolean
  /** Modules and runs that it was given since it started. */
  givenModules: number
  givenRuns: number
}

export function heldRuns(runner: Runner): PendingRun[] {
  return runner.lanes.flatMap((lane) => lane.runs)
}

export function countHeld(runner: Runner): number {
  let count = 0
  for (const lane of runner.lanes) count += lane.runs.length
  return count
}

/** What is under way in the runner: the first run of each lane. */
export function runsUnderWay(runner: Runner): PendingRun[] {
  return runner.lanes.flatMap((lane) => lane.runs.slice(0, 1))
}

export function isHoldingRuns(runner: Runner): boolean {
  return runner.lanes.some((lane) => lane.runs.length > 0)
}

/** A run that is under way for so long is not short, whatever those before it were: nothing goes or stays behind it. */
export const SHORT_CALL_MS = 5

/**
 * The lane for one more run: where calls are short the fullest one below `depth`, because runs that travel together cost
 * less, else an idle one. Undefined when there is none.
 */
export function findLane(runner: Runner, depth: number, nowMs: number): Lane | undefined {
  let best: Lane | undefined
  for (const lane of runner.lanes) {
    if (!lane.isReady || lane.isRecalling || lane.killing !== undefined || lane.runs.length >= depth) continue
    if (lane.runs.length > 0 && nowMs - lane.headSinceMs > SHORT_CALL_MS) continue
    if (best === undefined || lane.runs.length > best.runs.length) best = lane
  }
  return best
}
