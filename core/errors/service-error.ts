/**
 * The one error class of Skein and the closed list of its kinds. `status.ts` maps each kind to every protocol. A kind is added
 * only when a caller would handle it differently.
 */

export const ERROR_KINDS = [
  'malformed',
  'unauthenticated',
  'forbidden',
  'not_found',
  'gone',
  'method_not_allowed',
  'conflict',
  'invalid_state',
  'precondition_failed',
  'unprocessable',
  'too_large',
  'unsupported_media_type',
  'quota_exceeded',
  'rate_limited',
  'unavailable',
  'timeout',
  'internal',
] as const

export type ErrorKind = (typeof ERROR_KINDS)[number]

/** One violated rule of a body, query or pack: the path (`/0/v`, `limit`) and what is accepted. */
export type ErrorDetail = { path: string; message: string }

export type ServiceErrorOptions = {
  details?: ErrorDetail[]
  /** Additional fields for the log; never sent to a caller. */
  context?: Record<string, unknown>
  cause?: unknown
  /** Seconds after which the request may be repeated; sent as Retry-After or Max-Age. */
  retryAfterSeconds?: number
  /** With `precondition_failed`: what the caller would have changed, as it is now. */
  current?: object
}

/**
 * An expected error. The message is for the caller: lower case, names the object and the rule, says what is accepted, and never
 * contains a secret or an internal name.
 */
export class ServiceError extends Error {
  readonly kind: ErrorKind
  readonly details: ErrorDetail[] | undefined
  readonly context: Record<string, unknown> | undefined
  readonly retryAfterSeconds: number | undefined
  readonly current: object | undefined

  constructor(kind: ErrorKind, message: string, options: ServiceErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.name = 'ServiceError'
    this.kind = kind
    this.details = options.details
    this.context = options.context
    this.retryAfterSeconds = options.retryAfterSeconds
    this.current = options.current
  }
}

/** The kind of any thrown value; a value that is not a ServiceError is a bug and therefore `internal`. */
export function kindOf(error: unknown): ErrorKind {
  return error instanceof ServiceError ? error.kind : 'internal'
}

/** Repeating the same request later can succeed only for these kinds. */
export function isRetryable(error: unknown): boolean {
  const kind = kindOf(error)
  return kind === 'unavailable' || kind === 'timeout' || kind === 'rate_limited'
}

/**
 * The error as JSON (contract decision 44): always `error` and `message`, `details` where fields of the request are at fault, `current` where
 * the caller's version is not the present one.
 */
export function presentError(error: unknown): {
  error: ErrorKind
  message: string
  details?: ErrorDetail[]
  current?: object
} {
  if (!(error instanceof ServiceError) || error.kind === 'internal') {
    return { error: 'internal', message: 'internal error' }
  }
  return {
    error: error.kind,
    message: error.message,
    ...(error.details === undefined ? {} : { details: error.details }),
    ...(error.current === undefined ? {} : { current: error.current }),
  }
}
