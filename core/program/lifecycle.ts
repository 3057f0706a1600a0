/**
 * The lifecycle of a program: parts start in order and stop in reverse, each within a deadline. SIGTERM and SIGINT stop the
 * program; a second signal, a second or more later, ends the process at once. Exit codes: 0 stopped by a signal, 1 failed, 2 wrong usage.
 */
import { EXIT_FAILED, EXIT_WRONG_USAGE, ServiceError } from '../errors/index.ts'
import type { Logger } from '../logging/index.ts'
import { monotonicMs, sleep, withDeadline } from '../time.ts'

/** The deadline for stopping all parts, after which the process exits. */
export const STOP_DEADLINE_MS = 20_000

/**
 * A signal within this time of the first one is the same request: a terminal sends Ctrl-C to npm too, which passes it on.
 */
const SAME_REQUEST_MS = 1_000

/** The value of a started part, and the function that stops the part. */
export type StartedPart<T> = { value: T; stop: () => Promise<void> }

export type Lifecycle = {
  /** Aborted as soon as parts are stopped; background loops listen to it. */
  readonly signal: AbortSignal
  /** True as soon as a stop is requested, also during the delay of `delayStop`. */
  readonly isStopping: boolean
  /** True until `started` is called. */
  readonly isStarting: boolean
  /** Calls back when the program is up, in the order of registration. */
  onStarted(callback: () => void): void
  /** The program is up: what its checks report from now on is not part of the start. */
  started(): void
  /** Starts a part and registers its `stop`. Rejects when a stop has begun. */
  start<T>(name: string, begin: () => Promise<StartedPart<T>>): Promise<T>
  /**
   * Delays later stops, so that load balancers see that the process is stopping before its parts stop. A failure is not delayed.
   */
  delayStop(delayMs: number): void
  /** A part failed and the program cannot continue: stops everything and exits with 1. */
  fail(error: unknown): void
  /** Stops everything in reverse order; a second call waits for the first. */
  stop(): Promise<void>
  /** Resolves when the program has stopped, with the exit code and the error that stopped it. */
  readonly ended: Promise<{ exitCode: number; failure: unknown }>
}

export function createLifecycle(logger: Logger, stopDeadlineMs: number = STOP_DEADLINE_MS): Lifecycle {
  const parts: { name: string; stop: () => Promise<void> }[] = []
  const abort = new AbortController()
  const { promise: ended, resolve: end } = Promise.withResolvers<{ exitCode: number; failure: unknown }>()
  let exitCode = 0
  let failure: unknown
  let stopping: Promise<void> | undefined
  let stopDelayMs = 0
  let isStarting = true
  const startedCallbacks: (() => void)[] = []
  /** Starts in progress: a stop waits for them and stops what they started. */
  const starting = new Set<Promise<unknown>>()

  async function stopAll(): Promise<void> {
    if (stopDelayMs > 0 && failure === undefined) await sleep(stopDelayMs)
    const deadline = monotonicMs() + stopDeadlineMs
    abort.abort(new ServiceError('unavailable', 'the program is stopping'))
    await withDeadline(Promise.allSettled(starting), stopDeadlineMs, 'the start of a part').catch(() => undefined)
    for (const part of parts.toReversed()) {
      const before = monotonicMs()
      try {
        await withDeadline(part.stop(), Math.max(deadline - before, 1000), `stopping ${part.name}`)
        logger.debug({ part: part.name, ms: Math.round(monotonicMs() - before) }, 'stopped')
      } catch (error) {
        exitCode = EXIT_FAILED
        logger.error({ part: part.name, err: error }, 'failed to stop cleanly')
      }
    }
    // A program that only printed something had nothing to stop.
    if (parts.length > 0) logger.info({ exitCode }, 'stopped')
    end({ exitCode, failure })
  }

  const life: Lifecycle = {
    signal: abort.signal,
    ended,
    get isStopping() {
      return stopping !== undefined
    },
    get isStarting() {
      return isStarting
    },
    onStarted: (callback) => void startedCallbacks.push(callback),
    started() {
      isStarting = false
      for (const callback of startedCallbacks.splice(0)) callback()
    },
    delayStop(delayMs) {
      stopDelayMs = delayMs
    },
    async start(name, begin) {
      abort.signal.throwIfAborted()
      const before = monotonicMs()
      const work = (async () => {
        const { value, stop } = await begin()
        parts.push({ name, stop })
        return value
      })()
      starting.add(work)
      try {
        const value = await work
        logger.debug({ part: name, ms: Math.round(monotonicMs() - before) }, 'started')
        abort.signal.throwIfAborted()
        return value
      } finally {
        starting.delete(work)
      }
    },
    fail(error) {
      if (stopping === undefined) {
        failure = error
        logger.fatal({ err: error }, errorMessageOf(error))
      } else {
        // Errors that the stop causes are not failures.
        if (error === abort.signal.reason) return
        logger.error({ err: error }, 'failed while stopping')
      }
      exitCode = EXIT_FAILED
      void life.stop()
    },
    stop() {
      stopping ??= stopAll()
      return stopping
    },
  }
  return life
}

/** Returns the message of an error in one line. An `AggregateError` without a message returns the messages of its errors. */
export function errorMessageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  if (error.message === '' && error instanceof AggregateError) return error.errors.map(errorMessageOf).join('; ')
  return error.message === '' ? error.name : error.message
}

/** Thrown by the argument parser of a program; printed with exit code 2. */
export class UsageError extends Error {}

/**
 * Ignores EPIPE: the reader closed the output (`npm start | head`). The program continues and its output is lost. A
 * failure would be logged, and that write could fail too.
 */
function onOutputError(life: Lifecycle) {
  return (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') life.fail(error)
  }
}

/**
 * Runs a program until it is stopped, and ends the process with its exit code. An error of `body` before the program is up is
 * printed as one line on stderr.
 */
export async function runUntilStopped(logger: Logger, body: (life: Lifecycle) => Promise<void>): Promise<never> {
  const life = createLifecycle(logger)
  let askedMs: number | undefined
  const onSignal = (name: NodeJS.Signals) => {
    if (askedMs !== undefined) {
      if (monotonicMs() - askedMs > SAME_REQUEST_MS) process.exit(EXIT_FAILED)
      return
    }
    askedMs = monotonicMs()
    logger.info({ signal: name }, 'stopping; the same signal again ends the process at once')
    void life.stop()
  }
  for (const stream of [process.stdout, process.stderr]) stream.on('error', onOutputError(life))
  process.on('SIGTERM', onSignal)
  process.on('SIGINT', onSignal)
  process.on('unhandledRejection', (error) => life.fail(error))
  process.on('uncaughtException', (error) => life.fail(error))
  try {
    // `life.ended` ends the wait when a start hangs. `stopAll` waits for starts only until its deadline.
    await Promise.race([body(life), life.ended])
    if (!life.signal.aborted) life.started()
  } catch (error) {
    if (!life.signal.aborted) {
      if (!(error instanceof ServiceError) && !(error instanceof UsageError))
        logger.error({ err: error }, 'failed to start')
      // The stop writes the warnings that were held; the reason comes after them, and before the parts have stopped.
      const stopped = life.stop()
      printFailure(error)
      await stopped
      process.exit(error instanceof UsageError ? EXIT_WRONG_USAGE : EXIT_FAILED)
    }
  }
  const { exitCode, failure } = await life.ended
  if (failure !== undefined) printFailure(failure)
  process.exit(exitCode)
}

function printFailure(error: unknown): void {
  process.stderr.write(`${errorMessageOf(error)}\n`)
}
