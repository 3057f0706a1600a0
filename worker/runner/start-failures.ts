/** Failing starts of runner processes: the backoff of the next start, and when all queued runs are rejected. */

/** Consecutive failures before all queued runs are rejected. */
const MAX_FAILURES = 3
const BACKOFF_MS = 500
const MAX_DOUBLINGS = 5

export class StartFailures {
  #count = 0
  #nextStartMs = 0

  get count(): number {
    return this.#count
  }

  /** True if the limit is exceeded. */
  get areTooMany(): boolean {
    return this.#count >= MAX_FAILURES
  }

  mayStart(nowMs: number): boolean {
    return nowMs >= this.#nextStartMs
  }

  /** Records a failure; returns the backoff in milliseconds. */
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
