/**
 * Runs that are repeated after a pause shorter than the interval of the sweeps. A sweep would place all that are due at the same time, and runs
 * that met a conflict of their state would meet again. If this process ends before, a sweep finds them.
 */
import type { RunHandle } from '../model/run.ts'

export type DelayedRun = Pick<RunHandle, 'key' | 'needs'>

export class DelayedRuns {
  readonly #onDue: (runs: DelayedRun[]) => void
  readonly #timers = new Set<NodeJS.Timeout>()

  constructor(onDue: (runs: DelayedRun[]) => void) {
    this.#onDue = onDue
  }

  add({ key, needs }: DelayedRun, delayMs: number): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer)
      this.#onDue([{ key, needs }])
    }, delayMs)
    this.#timers.add(timer)
  }

  close(): void {
    for (const timer of this.#timers) clearTimeout(timer)
    this.#timers.clear()
  }
}
