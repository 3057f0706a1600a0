/** What an error of the driver means. Constraint names decide, never texts. */
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

/** SQLSTATE classes and codes that say that the server is away, full or going down, or has ended our session. */
const AWAY_CLASSES = new Set(['08', '53', '58'])
const AWAY_CODES = new Set(['57P01', '57P02', '57P03', '57P04', '57P05', '25006', '25P03', '25P04'])
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
/** A Unix socket that is missing or not ours to open; on a file the same codes mean something else. */
const CONNECT_CODES = new Set(['ENOENT', 'EACCES'])

function codeOf(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null || !('code' in error)) return undefined
  return typeof error.code === 'string' ? error.code : undefined
}

/** The name of the violated constraint, or undefined when the error is no violation. */
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

/** PostgreSQL asks for the transaction to be repeated as a whole. */
export function isRepeatable(error: unknown): boolean {
  const code = codeOf(error)
  return code === SERIALIZATION_FAILURE || code === DEADLOCK_DETECTED
}

/** The statement was not tried, because one before it in the transaction failed. */
export function isConsequence(error: unknown): boolean {
  return codeOf(error) === IN_FAILED_TRANSACTION
}

/** The data of the statement are refused (classes 22 and 23): repeating it unchanged cannot help. */
export function isRefusedData(error: unknown): boolean {
  const code = codeOf(error)
  return code !== undefined && code.length === 5 && (code.startsWith('22') || code.startsWith('23'))
}

/** The server cannot be reached or cannot serve now. */
export function isDatabaseAway(error: unknown): boolean {
  const code = codeOf(error)
  if (code === undefined) {
    // pg's own sentences for a connection that ended under a query or a pool that found none in time
    return (
      error instanceof Error &&
      /^(Connection terminated|timeout expired|timeout exceeded when trying to connect|Client has encountered a connection error|Client was closed|Cannot use a pool after calling end)/.test(
        error.message,
      )
    )
  }
  if (CONNECT_CODES.has(code)) return (error as { syscall?: unknown }).syscall === 'connect'
  return AWAY_CODES.has(code) || SOCKET_CODES.has(code) || (code.length === 5 && AWAY_CLASSES.has(code.slice(0, 2)))
}

/** PostgreSQL itself answered with this error and goes on serving: the transaction is rolled back, or the statement was not run. */
export function isAnswered(error: unknown): boolean {
  return codeOf(error)?.length === 5 && !isDatabaseAway(error)
}

/** Seconds after which a caller may try again when the database is away. */
export const DATABASE_AWAY_RETRY_SECONDS = 2
/** The same after deadlocks: whoever was in the way is done by then. */
const CONTENTION_RETRY_SECONDS = 1

/** A driver error as a ServiceError where its meaning is the same everywhere; anything else as it is. */
export function translateDatabaseError(error: unknown): unknown {
  if (error instanceof ServiceError) return error
  if (isDatabaseAway(error)) {
    return new ServiceError('unavailable', 'the database is not available', {
      cause: error,
      retryAfterSeconds: DATABASE_AWAY_RETRY_SECONDS,
    })
  }
  const code = codeOf(error)
  if (code === QUERY_CANCELED || code === LOCK_NOT_AVAILABLE)
    return new ServiceError('timeout', 'the database did not answer in time', { cause: error })
  if (isRepeatable(error)) {
    return new ServiceError('unavailable', 'too many changes of the same data at once, try again', {
      cause: error,
      retryAfterSeconds: CONTENTION_RETRY_SECONDS,
    })
  }
  return error
}

/** The connection is gone, could not be made, or gave no answer in time. Deadlocks that do not end count as well. */
export function isOutage(error: unknown): boolean {
  const translated = translateDatabaseError(error)
  return translated instanceof ServiceError && (translated.kind === 'unavailable' || translated.kind === 'timeout')
}

/**
 * Turns the violation of a named constraint into the error that the table names; everything else is rethrown as
 * `translateDatabaseError` sees it. Repositories wrap their writes in it.
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
