/** Callers in this process that wait for the end of a run. They are notified once, after the commit. */
import type { EndedRun } from '../model/run.ts'

/** By run. */
type Callbacks<T> = Map<number, Set<(value: T) => void>>

function add<T>(waiting: Callbacks<T>, runKey: number, callback: (value: T) => void): () => void {
  const callbacks = waiting.get(runKey) ?? new Set()
  callbacks.add(callback)
  waiting.set(runKey, callbacks)
  return () => {
    callbacks.delete(callback)
    if (callbacks.size === 0 && waiting.get(runKey) === callbacks) waiting.delete(runKey)
  }
}

function call<T>(waiting: Callbacks<T>, runKey: number, value: T): void {
  const callbacks = waiting.get(runKey)
  if (callbacks === undefined) return
  waiting.delete(runKey)
  for (const callback of callbacks) callback(value)
}

export class RunEndings {
  readonly #listeners: ((ended: EndedRun) => void)[] = []
  readonly #waiting: Callbacks<EndedRun> = new Map()
  readonly #waitingForEnd: Callbacks<void> = new Map()
  /** Runs that were awaited at the last call of `takeOverdue`. */
  #seen: ReadonlySet<number> = new Set()

  /** Calls back when the run ends; returns a function that stops waiting. */
  on(runKey: number, callback: (ended: EndedRun) => void): () => void {
    return add(this.#waiting, runKey, callback)
  }

  /** As `on`, without what the run returned: an end that another manager wrote is noticed without reading results. */
  onEnd(runKey: number, callback: () => void): () => void {
    return add(this.#waitingForEnd, runKey, callback)
  }

  /** Calls back for every end that this manager wrote, after its commit. */
  onEvery(callback: (ended: EndedRun) => void): void {
    this.#listeners.push(callback)
  }

  notify(ended: EndedRun): void {
    for (const callback of this.#listeners) callback(ended)
    call(this.#waiting, ended.runKey, ended)
    this.notifyEnd(ended.runKey)
  }

  /** Calls back those alone that do not need what the run returned. */
  notifyEnd(runKey: number): void {
    call(this.#waitingForEnd, runKey, undefined)
  }

  isAwaited(runKey: number): boolean {
    return this.#waiting.has(runKey)
  }

  /**
   * Runs that were already awaited at the last call: most ends arrive before a second one. `ends`: those of which no caller needs what they
   * returned.
   */
  takeOverdue(): { runs: number[]; ends: number[] } {
    const runs = [...this.#waiting.keys()].filter((runKey) => this.#seen.has(runKey))
    const ends = [...this.#waitingForEnd.keys()].filter(
      (runKey) => this.#seen.has(runKey) && !this.#waiting.has(runKey),
    )
    this.#seen = new Set([...this.#waiting.keys(), ...this.#waitingForEnd.keys()])
    return { runs, ends }
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
