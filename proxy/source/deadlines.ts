/** Deadlines of shared work: it ends by its own deadline or with the proxy, not when one of its callers leaves. */
import { ServiceError } from '#core/errors/index.ts'

export class SharedDeadlines {
  readonly #deadlineMs: number
  readonly #closing = new AbortController()

  /** The time of a whole request or pull, including waiting and retries. */
  constructor(deadlineMs: number) {
    this.#deadlineMs = deadlineMs
  }

  get isClosed(): boolean {
    return this.#closing.signal.aborted
  }

  signalFor(what: string): AbortSignal {
    const late = new AbortController()
    const message = `${what} did not complete within ${this.#deadlineMs} ms`
    const timer = setTimeout(() => late.abort(new ServiceError('timeout', message)), this.#deadlineMs)
    timer.unref()
    return AbortSignal.any([this.#closing.signal, late.signal])
  }

  /** Aborts all work. */
  close(): void {
    this.#closing.abort(new ServiceError('unavailable', 'the proxy is shutting down'))
  }
}
