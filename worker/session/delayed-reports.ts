/** Reports about runs that wait a moment, because what comes next says the same: most runs are over by then. */
import type { RunRef } from '#proto/index.ts'
import { monotonicMs } from '#core/time.ts'
import { keyOf } from './run-messages.ts'

export class DelayedReports {
  readonly #delayMs: number
  readonly #onDue: () => void
  /** The oldest first. */
  readonly #waiting = new Map<string, { run: RunRef; dueMs: number }>()
  #timer: NodeJS.Timeout | undefined

  constructor(delayMs: number, onDue: () => void) {
    this.#delayMs = delayMs
    this.#onDue = onDue
  }

  add(run: RunRef): void {
    this.#waiting.set(keyOf(run), { run, dueMs: monotonicMs() + this.#delayMs })
    this.#timer ??= this.#arm(this.#delayMs)
  }

  /** Something else has said it. */
  drop(run: RunRef): void {
    this.#waiting.delete(keyOf(run))
  }

  /** What has waited long enough; it waits no more. */
  takeDue(): RunRef[] {
    const nowMs = monotonicMs()
    const due: RunRef[] = []
    for (const [key, { run, dueMs }] of this.#waiting) {
      if (dueMs > nowMs) {
        this.#timer ??= this.#arm(dueMs - nowMs)
        break
      }
      this.#waiting.delete(key)
      due.push(run)
    }
    return due
  }

  clear(): void {
    this.#waiting.clear()
    clearTimeout(this.#timer)
    this.#timer = undefined
  }

  /** A timer that finds nothing is not worth ending: the next run needs one anyway. */
  #arm(delayMs: number): NodeJS.Timeout {
    return setTimeout(() => {
      this.#timer = undefined
      // Ends that have arrived meanwhile are read before this is said: a process that was held up reads them late.
      setImmediate(() => {
        if (this.#waiting.size > 0) this.#onDue()
      })
    }, Math.ceil(delayMs))
  }
}
