/**
 * The one error class of Skein and the closed list of its kinds. What a kind means on each wire stands in
 * `status.ts` and nowhere else; a kind is added only when a caller would act differently on it.
 */

export const ERROR_KINDS = [
  'malformed',
  'unauthenticated',
  'forbidden',
  'not_found',
  'method_not_allowed',
  'conflict',
  'invalid_state',
  'unprocessable',
  'too_large',
  'unsupported_media_type',
  'rate_limited',
  'unavailable',
  'timeout',
  'internal',
] as const

export type ErrorKind = (typeof ERROR_KINDS)[number]

/** One violated rule of a body, query or pack: where (`/0/v`, `limit`) and what would be accepted. */
export type ErrorDetail = { path: string; message: string }

export type ServiceErrorOptions = {
  details?: ErrorDetail[]
  /** What the log may say beside the message; never sent to a caller. */
  context?: Record<string, unknown>
  cause?: unknown
  /** Seconds after which a repetition makes sense; sent as Retry-After or Max-Age. */
  retryAfterSeconds?: number
}

/**
 * An expected refusal. The message is for the caller: lower case, names the object and the rule, says what would
 * be accepted, and never holds a secret or an internal name.
 */
export class ServiceError extends Error {
  readonly kind: ErrorKind
  readonly details: ErrorDetail[] | undefined
  readonly context: Record<string, unknown> | undefined
  readonly retryAfterSeconds: number | undefined

  constructor(kind: ErrorKind, message: string, options: ServiceErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.name = 'ServiceError'
    this.kind = kind
    this.details = options.details
    this.context = options.context
    this.retryAfterSeconds = options.retryAfterSeconds
  }
}

/** The kind of any thrown value; what is not a ServiceError is a bug and therefore `internal`. */
export function kindOf(error: unknown): ErrorKind {
  return error instanceof ServiceError ? error.kind : 'internal'
}

/** Repeating the same call later can succeed only for these kinds. */
export function isRetryable(error: unknown): boolean {
  const kind = kindOf(error)
  return kind === 'unavailable' || kind === 'timeout' || kind === 'rate_limited'
}

/** The error as it leaves over JSON (contract decision 44): both keys always, details for validation only. */
export function presentError(error: unknown): { error: ErrorKind; message: string; details?: ErrorDetail[] } {
  if (!(error instanceof ServiceError) || error.kind === 'internal') {
    return { error: 'internal', message: 'internal error' }
  }
  return error.details === undefined
    ? { error: error.kind, message: error.message }
    : { error: error.kind, message: error.message, details: error.details }
}
