/** Error bodies of content registries: `{"errors": [{"code", "message"}]}`. */
import type { ServerResponse } from 'node:http'
import { PROTOCOL_STATUS, ServiceError, presentError } from '../errors/index.ts'
import type { ErrorKind } from '../errors/index.ts'

export type MissingCode = 'NAME_UNKNOWN' | 'MANIFEST_UNKNOWN' | 'BLOB_UNKNOWN'

export type RefusalOptions = {
  /** The code for `not_found`. */
  missing: MissingCode
  /** `WWW-Authenticate` of a 401. */
  challenge: string
}

/** All other kinds are `UNAVAILABLE`. */
const CODES: Readonly<Partial<Record<ErrorKind, string>>> = {
  unauthenticated: 'UNAUTHORIZED',
  forbidden: 'DENIED',
  rate_limited: 'TOOMANYREQUESTS',
  malformed: 'MANIFEST_INVALID',
  unprocessable: 'MANIFEST_INVALID',
  too_large: 'UNSUPPORTED',
  method_not_allowed: 'UNSUPPORTED',
}
const DEFAULT_RETRY_AFTER_SECONDS = 1

/** Responds with the error, or closes the connection when a response has begun. */
export function refuseTransfer(response: ServerResponse, error: unknown, { missing, challenge }: RefusalOptions): void {
  if (response.headersSent) return void response.destroy()
  const { kind, retryAfterSeconds = DEFAULT_RETRY_AFTER_SECONDS } =
    error instanceof ServiceError ? error : new ServiceError('internal', 'internal error')
  const code = kind === 'not_found' ? missing : (CODES[kind] ?? 'UNAVAILABLE')
  const status = PROTOCOL_STATUS[kind].http
  const body = JSON.stringify({ errors: [{ code, message: presentError(error).message }] })
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(body)),
    ...(status === 401 ? { 'www-authenticate': challenge } : {}),
    ...(status === 503 || status === 429 ? { 'retry-after': String(Math.ceil(retryAfterSeconds)) } : {}),
  })
  response.end(body)
}

/** The message of an error body; undefined for any other body. */
export function readRefusal(body: Buffer | undefined): string | undefined {
  try {
    const { errors } = JSON.parse(body?.toString('utf8') ?? '') as { errors?: { message?: unknown }[] }
    const message = errors?.[0]?.message
    return typeof message === 'string' ? message : undefined
  } catch {
    return undefined
  }
}
