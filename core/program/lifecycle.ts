/**
 * The life of a program: parts start in order and stop in reverse, each within a deadline. SIGTERM and SIGINT ask for
 * a stop, a second signal ends the process at once. Exit codes: 0 stopped as asked, 1 failed, 2 wrong usage.
 */
import { EXIT_FAILED, EXIT_WRONG_USAGE, ServiceError } from '../errors/index.ts'
import type { Logger } from '../logging/index.ts'
import { monotonicMs, withDeadline } from '../time.ts'

/** How long all parts together may take to stop before the process ends anyway. */
export const STOP_DEADLINE_MS = 20_000

export type Started<T> = { value: T; stop: () => Promise<void> }

export type Lifecycle = {
  /** Aborted as soon as a stop begins; background loops listen to it. */
  readonly signal: AbortSignal
  /** Starts a part and remembers how to stop it. Rejects when a stop was asked for meanwhile. */
  start<T>(name: string, begin: () => Promise<Started<T>>): Promise<T>
  /** A part died and the program cannot go on: stops everything and exits with 1. */
  fail(error: unknown): void
  /** Stops everything in reverse order; a second call waits for the first. */
  stop(): Promise<void>
  /** Resolves when the program has stopped: with the exit code, and with the error that it stopped for. */
  readonly ended: Promise<{ exitCode: number; failure: unknown }>
}

export function createLifecycle(logger: Logger, stopDeadlineMs: number = STOP_DEADLINE_MS): Lifecycle {
  const parts: { name: string; stop: () => Promise<void> }[] = []
  const abort = new AbortController()
  const { promise: ended, resolve: end } = Promise.withResolvers<{ exitCode: number; failure: unknown }>()
  let exitCode = 0
  let failure: unknown
  let stopping: Promise<void> | undefined
  /** Starts that run, so that a stop takes back what they bring up. */
  const starting = new Set<Promise<unknown>>()

  async function stopAll(): Promise<void> {
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
    end({ exitCode, failure })
  }

  const life: Lifecycle = {
    signal: abort.signal,
    ended,
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
        logger.fatal({ err: error }, sentenceOf(error))
      } else {
        // Whatever ends because of the stop is no failure.
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

/** The one line that a failing program prints. A socket that was refused under several addresses has its reasons inside. */
export function sentenceOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  if (error.message === '' && error instanceof AggregateError) return error.errors.map(sentenceOf).join('; ')
  return error.message === '' ? error.name : error.message
}

/** Thrown by the argument parser of a program; printed with exit code 2. */
export class UsageError extends Error {}

/**
 * Whoever read the output is gone (`npm start | head`): the lines are lost, the work is not. Told as a failure it would be
 * logged, and the line fail again.
 */
function onOutputError(life: Lifecycle) {
  return (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') life.fail(error)
  }
}

/**
 * Runs a program until it is told to stop, and ends the process with the right exit code. What the body throws before
 * the program is up is printed as one line on stderr.
 */
export async function runUntilStopped(logger: Logger, body: (life: Lifecycle) => Promise<void>): Promise<never> {
  const life = createLifecycle(logger)
  let signals = 0
  const onSignal = (name: NodeJS.Signals) => {
    signals += 1
    if (signals > 1) process.exit(EXIT_FAILED)
    logger.info({ signal: name }, 'stopping; the same signal again ends the process at once')
    void life.stop()
  }
  for (const stream of [process.stdout, process.stderr]) stream.on('error', onOutputError(life))
  process.on('SIGTERM', onSignal)
  process.on('SIGINT', onSignal)
  process.on('unhandledRejection', (error) => life.fail(error))
  process.on('uncaughtException', (error) => life.fail(error))
  try {
    // A stop must not wait for a start that hangs: what it was starting is taken back or abandoned by then.
    await Promise.race([body(life), life.ended])
  } catch (error) {
    if (!life.signal.aborted) {
      printFailure(error)
      if (!(error instanceof ServiceError) && !(error instanceof UsageError))
        logger.error({ err: error }, 'failed to start')
      await life.stop()
      process.exit(error instanceof UsageError ? EXIT_WRONG_USAGE : EXIT_FAILED)
    }
  }
  const { exitCode, failure } = await life.ended
  if (failure !== undefined) printFailure(failure)
  process.exit(exitCode)
}

function printFailure(error: unknown): void {
  process.stderr.write(`${sentenceOf(error)}\n`)
}
