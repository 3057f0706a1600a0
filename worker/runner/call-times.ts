/** Recent duration of a module's calls: short calls can queue behind each other, others get a thread of their own. */
import { THREAD_QUEUE_RUNS } from './messages.ts'

/** Longest wait of a run behind other runs of its module. */
const MAX_WAIT_MS = 1

/** Weight of the latest call in the mean. */
const WEIGHT = 0.2
/** Limit of cached modules; the least recently called one is removed first. */
const MAX_MODULES = 10_000

export class CallTimes {
  readonly #meanMs = new Map<string, number>()

  record(moduleKey: string, durationMs: number): void {
    const mean = this.#meanMs.get(moduleKey) ?? durationMs
    this.#meanMs.delete(moduleKey)
    this.#meanMs.set(moduleKey, mean + WEIGHT * (durationMs - mean))
    for (const oldest of this.#meanMs.keys()) {
      if (this.#meanMs.size <= MAX_MODULES) break
      this.#meanMs.delete(oldest)
    }
  }

  /** How many runs of the module a thread can hold; 1 for a module that was never called. */
  threadQueueRuns(moduleKey: string): number {
    const meanMs = this.#meanMs.get(moduleKey) ?? Infinity
    return Math.max(1, Math.min(THREAD_QUEUE_RUNS, Math.floor(MAX_WAIT_MS / meanMs)))
  }
}
