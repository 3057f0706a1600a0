/** What becomes of the runs of a lane: which is under way, and what happens to all of them when the lane or its first run ends. */
import { monotonicMs } from '#core/time.ts'
import type { PendingRun, RunOutcome } from './run-request.ts'
import { isHoldingRuns } from './runner.ts'
import type { Lane, Runner } from './runner.ts'

/** A thread that does not end within this takes its runner with it. */
const KILL_LANE_DEADLINE_MS = 250

export class LaneRuns {
  readonly #onReturned: (runs: PendingRun[]) => void

  /** `onReturned`: runs that were handed over and have not begun; they go first. */
  constructor(onReturned: (runs: PendingRun[]) => void) {
    this.#onReturned = onReturned
  }

  /** The first run of the lane is under way from now on. */
  beginHead(lane: Lane): void {
    lane.headSinceMs = monotonicMs()
    const [head] = lane.runs
    if (head !== undefined && !head.hasEnded) head.request.onStarted?.()
  }

  /** The engine ended the thread by itself: its heap was full with what the guest made it allocate. */
  lose(runner: Runner, lane: Lane, error: string): void {
    lane.isReady = false
    lane.isRecalling = false
    const [head] = lane.runs
    const durationMs = monotonicMs() - lane.headSinceMs
    lane.runs.shift()
    head?.end({ state: 'failed', reason: 'oom', error: `the guest's thread ended: ${error}`, durationMs })
    this.takeBack(lane, () => true)
    this.settle(runner)
  }

  /** Ends the thread under its first run, which then ends as `outcome`; the others are returned at once. */
  kill(runner: Runner, lane: Lane, outcome: RunOutcome): void {
    const [run] = lane.runs
    if (run === undefined || lane.killing !== undefined) return
    lane.isReady = false
    lane.killing = { run, outcome, deadlineMs: monotonicMs() + KILL_LANE_DEADLINE_MS }
    runner.process.send({ type: 'kill_lane', lane: lane.index })
    this.takeBack(lane, (other) => other !== run)
  }

  /** The thread is gone. */
  endKilled(lane: Lane): void {
    if (lane.killing === undefined) return
    const { run, outcome } = lane.killing
    lane.killing = undefined
    lane.isRecalling = false
    lane.runs = []
    run.end(outcome)
  }

  /** Asks for what the thread has not begun. */
  recall(runner: Runner, lane: Lane): void {
    if (lane.isRecalling || lane.killing !== undefined) return
    lane.isRecalling = true
    runner.process.send({ type: 'recall', lane: lane.index })
  }

  takeBack(lane: Lane, isTaken: (run: PendingRun) => boolean): void {
    const taken = lane.runs.filter(isTaken)
    if (taken.length === 0) return
    const head = lane.runs[0]
    lane.runs = lane.runs.filter((run) => !taken.includes(run))
    if (lane.runs[0] !== head) this.beginHead(lane)
    this.#onReturned(taken)
  }

  /** A runner that holds nothing is idle from now on. */
  settle(runner: Runner): void {
    if (isHoldingRuns(runner)) return
    runner.isAlone = false
    runner.idleSinceMs = monotonicMs()
  }
}
