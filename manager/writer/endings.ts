/** Callers in this process that wait for the end of a run. They are notified once, after the commit. */
import type { EndedRun } from '../model/run.ts'

export class RunEndings {
  readonly #listeners: ((ended: EndedRun) => void)[] = []
  readonly #waiting = new Map<number, Set<(ended: EndedRun) => void>>()
  /** Runs that were awaited at the last call of `takeOverdue`. */
  #seen: ReadonlySet<number> = new Set()

  /** Calls back when the run ends; returns a function that stops waiting. */
  on(runKey: number, callback: (ended: EndedRun) => void): () => void {
    const callbacks = this.#waiting.get(runKey) ?? new Set()
    callbacks.add(callback)
    this.#waiting.set(runKey, callbacks)
    return () => {
      callbacks.delete(callback)
      if (callbacks.size === 0) this.#waiting.delete(runKey)
    }
  }

  /** Calls back for every end that this manager wrote, after its commit. */
  onEvery(callback: (ended: EndedRun) => void): void {
    this.#listeners.push(callback)
  }

  notify(ended: EndedRun): void {
    for (const callback of this.#listeners) callback(ended)
    const callbacks = this.#waiting.get(ended.runKey)
    if (callbacks === undefined) return
    this.#waiting.delete(ended.runKey)
    for (const callback of callbacks) callback(ended)
  }

  isAwaited(runKey: number): boolean {
    return this.#waiting.has(runKey)
  }

  /** Runs that were already awaited at the last call: most ends arrive before a second one. */
  takeOverdue(): number[] {
    const late = [...this.#waiting.keys()].filter((runKey) => this.#seen.has(runKey))
    this.#seen = new Set(this.#waiting.keys())
    return late
  }
}

/** Collects the ends of several runs up to a deadline. */
export class AwaitedEnds {
  readonly #endings: RunEndings
  readonly #ends = new Map<number, EndedRun>()
  readonly #leaving = new Map<number, () => void>()
  #onLast: () => void = () => undefined

  constructor(endings: RunEndings) {
    this.#endings = endings
  }

  add(runKey: number): void {
    const leave = this.#endings.on(runKey, (ended) => {
      this.#ends.set(runKey, ended)
      this.#leaving.delete(runKey)
      if (this.#leaving.size === 0) this.#onLast()
    })
    this.#leaving.set(runKey, leave)
  }

  /**
   * Resolves when all have ended, or at the deadline, with the ends by run key. Must be called once, after the last `add`.
   */
  async within(waitMs: number): Promise<ReadonlyMap<number, EndedRun>> {
    if (this.#leaving.size === 0) return this.#ends
    const { promise, resolve } = Promise.withResolvers<void>()
    const timer = setTimeout(resolve, waitMs)
    this.#onLast = resolve
    await promise
    clearTimeout(timer)
    for (const leave of this.#leaving.values()) leave()
    return this.#ends
  }
}
