/** What becomes of the runs of a thread: which is under way, and what happens to all of them when the thread or its first run ends. */
import { monotonicMs } from '#core/time.ts'
import type { PendingRun, RunOutcome } from './run-request.ts'
import { isHoldingRuns } from './runner.ts'
import type { GuestThread, Runner } from './runner.ts'

/** A thread that does not end within this takes its runner with it. */
const END_THREAD_DEADLINE_MS = 250

export class GuestThreadRuns {
  readonly #onReturned: (runs: PendingRun[]) => void

  /** `onReturned`: runs that were handed over and have not begun; they go first. */
  constructor(onReturned: (runs: PendingRun[]) => void) {
    this.#onReturned = onReturned
  }

  /** The first run of the thread is under way from now on. */
  beginHead(thread: GuestThread): void {
    thread.headSinceMs = monotonicMs()
    const [head] = thread.runs
    if (head !== undefined && !head.hasEnded) head.request.onStarted?.()
  }

  /** The engine ended the thread by itself: its heap was full with what the guest made it allocate. */
  lose(runner: Runner, thread: GuestThread, error: string): void {
    thread.isReady = false
    thread.isRecalling = false
    const [head] = thread.runs
    const durationMs = monotonicMs() - thread.headSinceMs
    thread.runs.shift()
    head?.end({ state: 'failed', reason: 'oom', error: `the guest's thread ended: ${error}`, durationMs })
    this.takeBack(thread, () => true)
    this.settle(runner)
  }

  /** Ends the thread under its first run, which then ends as `outcome`; the others are returned at once. */
  kill(runner: Runner, thread: GuestThread, outcome: RunOutcome): void {
    const [run] = thread.runs
    if (run === undefined || thread.killing !== undefined) return
    thread.isReady = false
    thread.killing = { run, outcome, deadlineMs: monotonicMs() + END_THREAD_DEADLINE_MS }
    runner.process.send({ type: 'end_thread', thread: thread.index })
    this.takeBack(thread, (other) => other !== run)
  }

  /** The thread is gone. */
  endKilled(thread: GuestThread): void {
    if (thread.killing === undefined) return
    const { run, outcome } = thread.killing
    thread.killing = undefined
    thread.isRecalling = false
    thread.runs = []
    run.end(outcome)
  }

  /** Asks for what the thread has not begun. */
  recall(runner: Runner, thread: GuestThread): void {
    if (thread.isRecalling || thread.killing !== undefined) return
    thread.isRecalling = true
    runner.process.send({ type: 'recall', thread: thread.index })
  }

  takeBack(thread: GuestThread, isTaken: (run: PendingRun) => boolean): void {
    const taken = thread.runs.filter(isTaken)
    if (taken.length === 0) return
    const head = thread.runs[0]
    thread.runs = thread.runs.filter((run) => !taken.includes(run))
    if (thread.runs[0] !== head) this.beginHead(thread)
    this.#onReturned(taken)
  }

  /** A runner that holds nothing is idle from now on. */
  settle(runner: Runner): void {
    if (isHoldingRuns(runner)) return
    runner.isAlone = false
    runner.idleSinceMs = monotonicMs()
  }
}
