/**
 * The log of one request, whose lines carry its id. The child logger is made with the first line: most requests write
 * none.
 */
import type { FastifyBaseLogger } from 'fastify'

type Level = 'fatal' | 'error' | 'warn' | 'info' | 'debug' | 'trace'

function write(log: FastifyBaseLogger, level: Level, line: unknown[]): void {
  // pino's methods have overloads that no list of arguments fits; they read `this`.
  ;(log[level] as (...args: unknown[]) => void).apply(log, line)
}

class RequestLog {
  readonly #parent: FastifyBaseLogger
  readonly #bindings: object
  #own: FastifyBaseLogger | undefined

  constructor(parent: FastifyBaseLogger, bindings: object) {
    this.#parent = parent
    this.#bindings = bindings
  }

  get #child(): FastifyBaseLogger {
    this.#own ??= this.#parent.child(this.#bindings as Record<string, unknown>)
    return this.#own
  }

  get level(): string {
    return this.#parent.level
  }

  child(bindings: Record<string, unknown>, options?: Parameters<FastifyBaseLogger['child']>[1]): FastifyBaseLogger {
    return this.#child.child(bindings, options)
  }

  fatal(...line: unknown[]): void {
    write(this.#child, 'fatal', line)
  }

  error(...line: unknown[]): void {
    write(this.#child, 'error', line)
  }

  warn(...line: unknown[]): void {
    write(this.#child, 'warn', line)
  }

  info(...line: unknown[]): void {
    write(this.#child, 'info', line)
  }

  debug(...line: unknown[]): void {
    write(this.#child, 'debug', line)
  }

  trace(...line: unknown[]): void {
    write(this.#child, 'trace', line)
  }

  silent(): void {
    // The level that writes nothing.
  }
}

/** Fastify's factory of request logs. */
export function createRequestLog(parent: FastifyBaseLogger, bindings: object): FastifyBaseLogger {
  return new RequestLog(parent, bindings) as unknown as FastifyBaseLogger
}
