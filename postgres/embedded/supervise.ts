/**
 * Supervises the embedded server: restarts it on the same socket with the same password, so that the pools of `pg` only need to
 * reconnect. After too many failures it gives up.
 */
import { ServiceError } from '#core/errors/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import type { PostmasterExit } from './postmaster.ts'
import { startEmbeddedPostgres } from './start.ts'
import type { EmbeddedConnection, EmbeddedOptions, EmbeddedPostgres } from './start.ts'

export type SuperviseOptions = EmbeddedOptions & {
  /** The server ended unexpectedly; it is being restarted. */
  onExit?: (exit: PostmasterExit) => void
  /** The server accepts connections again. */
  onRestart?: (server: { pid: number; downMs: number }) => void
  /** The server ended `maxFailures` times within `windowMs`, or cannot be started: the program should exit with the error. */
  onGiveUp: (error: ServiceError) => void
  maxFailures?: number
  windowMs?: number
}

export type SupervisedPostgres = {
  connection: EmbeddedConnection
  dataDir: string
  notices: string[]
  /** The process id of the current server, or of the last one. */
  readonly pid: number
  readonly isUp: boolean
  /** Stops the supervision and the server, also during a start. Idempotent. */
  stop(deadlineMs?: number): Promise<void>
}

const MAX_FAILURES = 5
const WINDOW_MS = 600_000
const FIRST_PAUSE_MS = 50
const MAX_PAUSE_MS = 5000

/** Throws like `startEmbeddedPostgres` when the first start fails; later failures go to `onGiveUp`. */
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
      // A running start ends at the signal, and its server is stopped by then.
      if (!isUp) await watching
      await server.stop(deadlineMs)
      await watching
    },
  }
}

/** Recent failures: decides when to give up and how long to pause after the latest. */
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

  /** Almost none after the first failure (the server may have been killed), doubling with each further one. */
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
