/** How long the calls of a module take lately: short ones may wait behind each other, others get a lane of their own. */
import { SHORT_CALL_MS } from './runner.ts'

/** Weight of the latest call in the mean. */
const WEIGHT = 0.2
/** Modules remembered; the one called longest ago is forgotten first. */
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

  /** A module that was never called is not short. */
  isShort(moduleKey: string): boolean {
    return (this.#meanMs.get(moduleKey) ?? Infinity) < SHORT_CALL_MS
  }
}
