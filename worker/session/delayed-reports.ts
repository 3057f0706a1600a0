/** Reports about runs that are delayed for a moment, because the next report often makes them redundant. */
import type { RunRef } from '#proto/index.ts'
import { monotonicMs } from '#core/time.ts'
import { keyOf } from './run-messages.ts'

export class DelayedReports {
  readonly #delayMs: number
  readonly #onDue: () => void
  /** Oldest first. */
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

  /** Another report made it redundant. */
  drop(run: RunRef): void {
    this.#waiting.delete(keyOf(run))
  }

  /** Removes and returns the reports that are due. */
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

  /** A timer without due reports is not cancelled: the next run needs one anyway. */
  #arm(delayMs: number): NodeJS.Timeout {
    return setTimeout(() => {
      this.#timer = undefined
      // Ends that have arrived meanwhile are read first: a process that was delayed reads them late.
      setImmediate(() => {
        if (this.#waiting.size > 0) this.#onDue()
      })
    }, Math.ceil(delayMs))
  }
}
