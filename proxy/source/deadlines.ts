/** Work that several askers share ends by its own deadline or with the proxy, never because one of them went away. */
import { ServiceError } from '#core/errors/index.ts'

export class SharedDeadlines {
  readonly #deadlineMs: number
  readonly #closing = new AbortController()

  /** The whole of one answer or one pull, waiting and repetitions included. */
  constructor(deadlineMs: number) {
    this.#deadlineMs = deadlineMs
  }

  get isClosed(): boolean {
    return this.#closing.signal.aborted
  }

  signalFor(what: string): AbortSignal {
    const late = new AbortController()
    const message = `${what} was not there within ${this.#deadlineMs} ms`
    const timer = setTimeout(() => late.abort(new ServiceError('timeout', message)), this.#deadlineMs)
    timer.unref()
    return AbortSignal.any([this.#closing.signal, late.signal])
  }

  /** Ends all of it. */
  close(): void {
    this.#closing.abort(new ServiceError('unavailable', 'the proxy is stopping'))
  }
}
