/**
 * Keeps the embedded server running: one that dies is started again on the same socket with the same password, so that
 * the pools of `pg` find it by simply connecting again. One that keeps dying is given up.
 */
import { ServiceError } from '../../errors/index.ts'
import { monotonicMs, sleep } from '../../time.ts'
import type { PostmasterExit } from './postmaster.ts'
import { startEmbeddedPostgres } from './start.ts'
import type { EmbeddedConnection, EmbeddedOptions, EmbeddedPostgres } from './start.ts'

export type SuperviseOptions = EmbeddedOptions & {
  /** The server ended unasked; it is being started again. */
  onExit?: (exit: PostmasterExit) => void
  /** It takes connections again. */
  onRestart?: (server: { pid: number; downMs: number }) => void
  /** It ended `maxFailures` times within `windowMs`, or cannot be started: the program should end, naming the error. */
  onGiveUp: (error: ServiceError) => void
  maxFailures?: number
  windowMs?: number
}

export type SupervisedPostgres = {
  connection: EmbeddedConnection
  dataDir: string
  notices: string[]
  /** Of the server that runs now, or ran last. */
  readonly pid: number
  readonly isUp: boolean
  /** Ends the supervision and the server, also one that is just being started. Twice is once. */
  stop(deadlineMs?: number): Promise<void>
}

const MAX_FAILURES = 5
const WINDOW_MS = 600_000
const FIRST_PAUSE_MS = 50
const MAX_PAUSE_MS = 5000

/** Throws as `startEmbeddedPostgres` does when the first start fails; later failures go to `onGiveUp`. */
export async function superviseEmbeddedPostgres(options: SuperviseOptions): Promise<SupervisedPostgres> {
  const stopping = new AbortController()
  let server = await startEmbeddedPostgres(options)
  let isUp = true
  const watching = watch()

  async function watch(): Promise<void> {
    const failures = new FailureWindow(options.maxFailures ?? MAX_FAILURES, options.windowMs ?? WINDOW_MS)
    for (;;) {
      const exit = await server.exited
      isUp = false
      if (stopping.signal.aborted) return
      const downSince = monotonicMs()
      options.onExit?.(exit)
      const reason = exit.signal === null ? `with exit code ${exit.code}` : `by ${exit.signal}`
      failures.add(new ServiceError('unavailable', `the embedded PostgreSQL ended ${reason}`))
      const next = await restart(failures)
      if (next === undefined) return
      server = next
      isUp = true
      options.onRestart?.({ pid: server.pid, downMs: monotonicMs() - downSince })
    }
  }

  async function restart(failures: FailureWindow): Promise<EmbeddedPostgres | undefined> {
    while (!stopping.signal.aborted) {
      if (failures.isExhausted()) {
        options.onGiveUp(failures.summary())
        return undefined
      }
      try {
        await sleep(failures.pauseMs(), stopping.signal)
        const next = await startEmbeddedPostgres({ ...options, signal: stopping.signal })
        if (!stopping.signal.aborted) return next
        await next.stop()
      } catch (error) {
        if (stopping.signal.aborted) return undefined
        failures.add(error)
      }
    }
    return undefined
  }

  return {
    connection: server.connection,
    dataDir: server.dataDir,
    notices: server.notices,
    get pid() {
      return server.pid
    },
    get isUp() {
      return isUp
    },
    async stop(deadlineMs) {
      stopping.abort(new ServiceError('unavailable', 'the embedded PostgreSQL is stopping'))
      // A start that is under way ends at the signal; what it had started is stopped by then.
      if (!isUp) await watching
      await server.stop(deadlineMs)
      await watching
    },
  }
}

/** The failures of the last while: how many are too many, and how long to wait after the latest. */
class FailureWindow {
  readonly #max: number
  readonly #windowMs: number
  #times: number[] = []
  #last: unknown

  constructor(max: number, windowMs: number) {
    this.#max = max
    this.#windowMs = windowMs
  }

  add(error: unknown): void {
    const now = monotonicMs()
    this.#times = this.#times.filter((time) => now - time < this.#windowMs)
    this.#times.push(now)
    this.#last = error
  }

  isExhausted(): boolean {
    return this.#times.length >= this.#max
  }

  /** Nearly nothing after the first failure (somebody killed it), doubling with each further one. */
  pauseMs(): number {
    return Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.#times.length - 1))
  }

  summary(): ServiceError {
    const last = this.#last instanceof Error ? this.#last.message : String(this.#last)
    return new ServiceError(
      'unavailable',
      `the embedded PostgreSQL failed ${this.#times.length} times within ${this.#windowMs / 60_000} minutes, lastly: ${last}`,
      { cause: this.#last },
    )
  }
}
