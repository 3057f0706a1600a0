/** The runs of a thread: the active one, and the handling of all when the thread or its first run ends. */
import { monotonicMs } from '#core/time.ts'
import type { PendingRun, RunOutcome } from './run-request.ts'
import { isHoldingRuns } from './runner.ts'
import type { GuestThread, Runner } from './runner.ts'

/** If a thread does not end within this, its runner is killed. */
const END_THREAD_DEADLINE_MS = 250

export class GuestThreadRuns {
  readonly #onReturned: (runs: PendingRun[]) => void

  /** `onReturned`: assigned runs that have not begun; they are placed first. */
  constructor(onReturned: (runs: PendingRun[]) => void) {
    this.#onReturned = onReturned
  }

  /** The first run of the thread becomes active. */
  beginHead(thread: GuestThread): void {
    thread.headSinceMs = monotonicMs()
    const [head] = thread.runs
    if (head !== undefined && !head.hasEnded) head.request.onStarted?.()
  }

  /** The engine ended the thread: its heap was full with allocations of the guest. */
  lose(runner: Runner, thread: GuestThread, error: string): void {
    thread.isReady = false
    thread.isRecalling = false
    const [head] = thread.runs
    const durationMs = monotonicMs() - thread.headSinceMs
    thread.runs.shift()
    head?.end({ state: 'failed', reason: 'oom', error: `the guest's thread exited: ${error}`, durationMs })
    this.takeBack(thread, () => true)
    this.settle(runner)
  }

  /** Ends the thread with its first run, which ends as `outcome`; the others are returned at once. */
  kill(runner: Runner, thread: GuestThread, outcome: RunOutcome): void {
    const [run] = thread.runs
    if (run === undefined || thread.killing !== undefined) return
    thread.isReady = false
    thread.killing = { run, outcome, deadlineMs: monotonicMs() + END_THREAD_DEADLINE_MS }
    runner.process.send({ type: 'end_thread', thread: thread.index })
    this.takeBack(thread, (other) => other !== run)
  }

  /** The thread has exited. */
  endKilled(thread: GuestThread): void {
    if (thread.killing === undefined) return
    const { run, outcome } = thread.killing
    thread.killing = undefined
    thread.isRecalling = false
    thread.runs = []
    run.end(outcome)
  }

  /** Recalls runs that the thread has not begun. */
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

  /** A runner without runs is idle from now on. */
  settle(runner: Runner): void {
    if (isHoldingRuns(runner)) return
    runner.isAlone = false
    runner.idleSinceMs = monotonicMs()
  }
}
