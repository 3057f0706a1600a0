/** Who waits for the end of a run in this process. The end is told after its commit, once. */
import type { RunEnding } from '../model/run.ts'

export type EndedRun = RunEnding & { runKey: number; runId: string; workerId: string | null }

export class RunEndings {
  readonly #everybody: ((ended: EndedRun) => void)[] = []
  readonly #waiting = new Map<number, Set<(ended: EndedRun) => void>>()
  /** Waited for at the last look. */
  #seen: ReadonlySet<number> = new Set()

  /** Calls back when the run ends; returns the way to stop waiting. */
  on(runKey: number, callback: (ended: EndedRun) => void): () => void {
    const callbacks = this.#waiting.get(runKey) ?? new Set()
    callbacks.add(callback)
    this.#waiting.set(runKey, callbacks)
    return () => {
      callbacks.delete(callback)
      if (callbacks.size === 0) this.#waiting.delete(runKey)
    }
  }

  /** Told of every end that this manager wrote, after its commit. */
  onEvery(callback: (ended: EndedRun) => void): void {
    this.#everybody.push(callback)
  }

  tell(ended: EndedRun): void {
    for (const callback of this.#everybody) callback(ended)
    const callbacks = this.#waiting.get(ended.runKey)
    if (callbacks === undefined) return
    this.#waiting.delete(ended.runKey)
    for (const callback of callbacks) callback(ended)
  }

  isAwaited(runKey: number): boolean {
    return this.#waiting.has(runKey)
  }

  /** Runs that somebody waited for at the last look already: most ends are told before there is a second one. */
  lookForLate(): number[] {
    const late = [...this.#waiting.keys()].filter((runKey) => this.#seen.has(runKey))
    this.#seen = new Set(this.#waiting.keys())
    return late
  }
}

/** The ends of several runs, for whoever waits for all of them up to a deadline. */
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

  /** Those that have come when all have, or at the deadline, by the key of the run. To be called once, after the last `add`. */
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
