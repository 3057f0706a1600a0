/** Runner processes that do not start: when the next one is tried, and when everybody who waits is sent away. */

/** Starts that fail in a row before everybody who waits is sent away. */
const MAX_FAILURES = 3
const BACKOFF_MS = 500
const MAX_DOUBLINGS = 5

export class StartFailures {
  #count = 0
  #nextStartMs = 0

  get count(): number {
    return this.#count
  }

  /** True when it was once too often. */
  get areTooMany(): boolean {
    return this.#count >= MAX_FAILURES
  }

  mayStart(nowMs: number): boolean {
    return nowMs >= this.#nextStartMs
  }

  /** Answers how long nothing is started now, in milliseconds. */
  failed(nowMs: number): number {
    this.#count++
    const backoffMs = BACKOFF_MS * 2 ** Math.min(this.#count - 1, MAX_DOUBLINGS)
    this.#nextStartMs = nowMs + backoffMs
    return backoffMs
  }

  succeeded(): void {
    this.#count = 0
  }
}
