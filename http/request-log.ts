/**
 * The log of one request, with its id, method and path in each line. The child logger is created with the first line, because most requests
 * write none.
 */
import type { FastifyBaseLogger } from 'fastify'

type Level = 'fatal' | 'error' | 'warn' | 'info' | 'debug' | 'trace'

function write(log: FastifyBaseLogger, level: Level, line: unknown[]): void {
  // pino's methods have overloads that no argument list matches; they use `this`.
  ;(log[level] as (...args: unknown[]) => void).apply(log, line)
}

/** The limit of a path in the log. */
const MAX_PATH_CHARS = 1_000

type RawRequest = { readonly method?: string | undefined; readonly url?: string | undefined }

class RequestLog {
  readonly #parent: FastifyBaseLogger
  readonly #bindings: object
  readonly #request: RawRequest
  #own: FastifyBaseLogger | undefined

  constructor(parent: FastifyBaseLogger, bindings: object, request: RawRequest) {
    this.#parent = parent
    this.#bindings = bindings
    this.#request = request
  }

  get #child(): FastifyBaseLogger {
    this.#own ??= this.#parent.child({ ...this.#bindings, method: this.#request.method, path: pathOf(this.#request) })
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
    // The level `silent` writes nothing.
  }
}

/** Fastify's factory of request logs. */
export function createRequestLog(
  parent: FastifyBaseLogger,
  bindings: object,
  _options: object,
  request: RawRequest,
): FastifyBaseLogger {
  return new RequestLog(parent, bindings, request) as unknown as FastifyBaseLogger
}

/** Returns the path without the query, which may hold credentials. */
function pathOf({ url = '' }: RawRequest): string {
  const end = url.indexOf('?')
  return url.slice(0, Math.min(end < 0 ? url.length : end, MAX_PATH_CHARS))
}
