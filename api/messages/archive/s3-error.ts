/** Errors of object stores, and what they mean. Nothing that a store says is repeated, except its code. */

export type S3Operation =
  | 'PutObject'
  | 'GetObject'
  | 'HeadObject'
  | 'HeadBucket'
  | 'DeleteObject'
  | 'DeleteObjects'
  | 'ListObjectsV2'
  | 'CreateMultipartUpload'
  | 'UploadPart'
  | 'CompleteMultipartUpload'
  | 'AbortMultipartUpload'
  | 'ListMultipartUploads'

/** The code of an answer that was not read to its end. */
export const TOO_LONG = 'the answer is too long'

/** `status` 0: there was no answer. */
export class S3Error extends Error {
  readonly operation: S3Operation
  readonly status: number
  readonly code: string
  readonly isRepeated: boolean

  constructor(
    {
      operation,
      status,
      code,
      isRepeated,
    }: { operation: S3Operation; status: number; code: string; isRepeated: boolean },
    options?: ErrorOptions,
  ) {
    const what =
      status === 0 ? `did not answer ${operation}: ${code}` : `refused ${operation}: ${status} ${code}`.trimEnd()
    super(`the object store ${what}`, options)
    this.operation = operation
    this.status = status
    this.code = code
    this.isRepeated = isRepeated
  }
}

const PASSING_STATUSES = new Set([408, 425, 429, 500, 502, 503, 504])
const PASSING_CODES = new Set([
  'RequestTimeout',
  'InternalError',
  'SlowDown',
  'ServiceUnavailable',
  'ConditionalRequestConflict',
  'OperationAborted',
  // The body did not arrive as it was sent.
  'XAmzContentSHA256Mismatch',
  'BadDigest',
  'IncompleteBody',
])

/** Whether the same request may succeed later. A completion may fail with a status of success. */
export const isPassing = ({ status, code }: S3Error): boolean =>
  code !== TOO_LONG && (status === 0 || PASSING_STATUSES.has(status) || PASSING_CODES.has(code))

const REFUSALS = new Set(['NotImplemented', 'MethodNotAllowed', 'InvalidRequest', 'UnsupportedOperation'])

/** The store does not have what was asked for. */
export const isUnsupported = (error: unknown): boolean =>
  error instanceof S3Error &&
  (error.status === 405 || error.status === 501 || (error.status === 400 && REFUSALS.has(error.code)))

const FULL = new Set(['QuotaExceeded', 'XMinioStorageFull', 'InsufficientStorage', 'EntityTooLargeForQuota'])
const KEYS = new Set(['AccessDenied', 'InvalidAccessKeyId', 'SignatureDoesNotMatch', 'Forbidden'])
const ELSEWHERE = new Set([
  'PermanentRedirect',
  'TemporaryRedirect',
  'AuthorizationHeaderMalformed',
  'IllegalLocationConstraintException',
])

/** What is wrong with the store, in words for users; undefined: it is no error of an object store. */
export function s3Failure(error: unknown): string | undefined {
  const found = s3ErrorIn(error)
  if (found === undefined) return undefined
  const { status, code } = found
  const facts = status === 0 ? code : [status, code, found.operation].filter((fact) => fact !== '').join(' ')
  return `${reasonOf(status, code)} (${facts})`
}

function reasonOf(status: number, code: string): string {
  if (code === TOO_LONG) return 'it does not answer as an object store does'
  if (status === 0) return 'it does not answer'
  if (status === 507 || FULL.has(code)) return 'it is full'
  if (code === 'RequestTimeTooSkewed') return 'its clock and that of this machine differ'
  if (code === 'NoSuchBucket') return 'the bucket does not exist'
  if (ELSEWHERE.has(code) || (status >= 300 && status < 400)) return 'the bucket is in another region, or elsewhere'
  if (status === 401 || status === 403 || KEYS.has(code)) return 'it refuses the keys'
  if (PASSING_STATUSES.has(status)) return 'it is overloaded or fails'
  return 'it refuses a request'
}

/** Whether every request fails now, after a long time or with nothing to gain. */
export function isS3Exhausted(error: unknown): boolean {
  const found = s3ErrorIn(error)
  if (found === undefined) return false
  const { status, code } = found
  return status === 0 || status === 507 || FULL.has(code) || PASSING_STATUSES.has(status) || code === 'NoSuchBucket'
}

function s3ErrorIn(error: unknown): S3Error | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) if (cause instanceof S3Error) return cause
  return undefined
}
