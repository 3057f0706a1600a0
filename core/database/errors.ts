/** Classifies errors of the driver, by constraint names and codes, never by texts. */
import { ServiceError } from '../errors/index.ts'

const UNIQUE_VIOLATION = '23505'
const FOREIGN_KEY_VIOLATION = '23503'
const CHECK_VIOLATION = '23514'
const EXCLUSION_VIOLATION = '23P01'
const SERIALIZATION_FAILURE = '40001'
const DEADLOCK_DETECTED = '40P01'
const QUERY_CANCELED = '57014'
const LOCK_NOT_AVAILABLE = '55P03'
const IN_FAILED_TRANSACTION = '25P02'

/** SQLSTATE classes and codes of a server that is unavailable, full or shutting down, or has ended the session. */
const UNAVAILABLE_CLASSES = new Set(['08', '53', '58'])
const UNAVAILABLE_CODES = new Set(['57P01', '57P02', '57P03', '57P04', '57P05', '25006', '25P03', '25P04'])
/** Errors of the socket and of `pg` itself, which carry no SQLSTATE. */
const SOCKET_CODES = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EAI_AGAIN',
  'ENOTFOUND',
])
/** A Unix socket that is missing or not accessible; on a file the same codes mean something else. */
const CONNECT_CODES = new Set(['ENOENT', 'EACCES'])

function codeOf(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null || !('code' in error)) return undefined
  return typeof error.code === 'string' ? error.code : undefined
}

/** The name of the violated constraint; undefined for any other error. */
export function violatedConstraint(error: unknown): string | undefined {
  const code = codeOf(error)
  if (
    code !== UNIQUE_VIOLATION &&
    code !== FOREIGN_KEY_VIOLATION &&
    code !== CHECK_VIOLATION &&
    code !== EXCLUSION_VIOLATION
  ) {
    return undefined
  }
  const { constraint } = error as { constraint?: unknown }
  return typeof constraint === 'string' ? constraint : undefined
}

/** PostgreSQL requires the whole transaction to be repeated. */
export function isRepeatable(error: unknown): boolean {
  const code = codeOf(error)
  return code === SERIALIZATION_FAILURE || code === DEADLOCK_DETECTED
}

/** The statement was skipped, because an earlier one in the transaction failed. */
export function isConsequence(error: unknown): boolean {
  return codeOf(error) === IN_FAILED_TRANSACTION
}

/** The data of the statement are invalid (classes 22 and 23): repeating it unchanged cannot succeed. */
export function isRefusedData(error: unknown): boolean {
  const code = codeOf(error)
  return code !== undefined && code.length === 5 && (code.startsWith('22') || code.startsWith('23'))
}

/** The statement waited longer for a lock than `lock_timeout` allows, or would have waited with NOWAIT. */
export function isLockRefused(error: unknown): boolean {
  return codeOf(error) === LOCK_NOT_AVAILABLE
}

/** The server is unreachable or cannot serve requests now. */
export function isDatabaseUnavailable(error: unknown): boolean {
  const code = codeOf(error)
  if (code === undefined) {
    // Messages of `pg` itself, without a code: a connection that ended during a query, and a pool that timed out.
    return (
      error instanceof Error &&
      /^(Connection terminated|timeout expired|timeout exceeded when trying to connect|Client has encountered a connection error|Client was closed|Cannot use a pool after calling end)/.test(
        error.message,
      )
    )
  }
  if (CONNECT_CODES.has(code)) return (error as { syscall?: unknown }).syscall === 'connect'
  return (
    UNAVAILABLE_CODES.has(code) ||
    SOCKET_CODES.has(code) ||
    (code.length === 5 && UNAVAILABLE_CLASSES.has(code.slice(0, 2)))
  )
}

/** PostgreSQL answered with this error and continues to serve: the transaction is rolled back, or the statement was not run. */
export function isAnswered(error: unknown): boolean {
  return codeOf(error)?.length === 5 && !isDatabaseUnavailable(error)
}

/** `Retry-After` in seconds while the database is unavailable. */
export const DATABASE_UNAVAILABLE_RETRY_SECONDS = 2
/** `Retry-After` in seconds after repeated deadlocks. */
const CONTENTION_RETRY_SECONDS = 1

/** `Retry-After` in seconds while no synchronous standby answers. */
export const NO_STANDBY_RETRY_SECONDS = 5

/** The refusal of a change while a COMMIT would wait for synchronous standbys that do not answer. */
export function noStandby(): ServiceError {
  return new ServiceError(
    'unavailable',
    'the synchronous standbys of the database do not answer: nothing is stored until one does',
    { retryAfterSeconds: NO_STANDBY_RETRY_SECONDS },
  )
}

/** Converts a driver error to a ServiceError where its meaning does not depend on the statement; returns others unchanged. */
export function translateDatabaseError(error: unknown): unknown {
  if (error instanceof ServiceError) return error
  if (isDatabaseUnavailable(error)) {
    return new ServiceError('unavailable', 'the database is not available', {
      cause: error,
      retryAfterSeconds: DATABASE_UNAVAILABLE_RETRY_SECONDS,
    })
  }
  const code = codeOf(error)
  if (code === QUERY_CANCELED || code === LOCK_NOT_AVAILABLE)
    return new ServiceError('timeout', 'the database did not answer in time', { cause: error })
  if (isRepeatable(error)) {
    return new ServiceError('unavailable', 'too many concurrent changes of the same data; try again', {
      cause: error,
      retryAfterSeconds: CONTENTION_RETRY_SECONDS,
    })
  }
  return error
}

/** The connection is broken, could not be made, or timed out. Repeated deadlocks count too. */
export function isOutage(error: unknown): boolean {
  const translated = translateDatabaseError(error)
  return translated instanceof ServiceError && (translated.kind === 'unavailable' || translated.kind === 'timeout')
}

/**
 * Converts the violation of a named constraint to the error in the table; rethrows other errors through
 * `translateDatabaseError`. Repositories wrap their writes in it.
 */
export async function refusing<T>(
  constraints: Readonly<Record<string, () => ServiceError>>,
  work: Promise<T>,
): Promise<T> {
  try {
    return await work
  } catch (error) {
    const name = violatedConstraint(error)
    const refusal = name === undefined ? undefined : constraints[name]
    throw refusal === undefined ? translateDatabaseError(error) : refusal()
  }
}
