/** Who waits for the end of a run in this process. The end is told after its commit, once. */
import type { RunEnding } from './spec.ts'

export type EndedRun = RunEnding & { runKey: number; runId: string; workerId: string | null }

export class RunEndings {
  readonly #everybody: ((ended: EndedRun) => void)[] = []
  readonly #waiting = new Map<number, Set<(ended: EndedRun) => void>>()

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

  /** Runs that somebody waits for. */
  get awaited(): number[] {
    return [...this.#waiting.keys()]
  }
}
