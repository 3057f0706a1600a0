/** Converts thrown values to the error body of the contract. Route handlers do not catch errors themselves. */
import { STATUS_CODES } from 'node:http'
import type { FastifyBaseLogger, FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { translateDatabaseError } from '#core/database/index.ts'
import { PROTOCOL_STATUS, ServiceError, presentError } from '#core/errors/index.ts'
import type { ErrorKind } from '#core/errors/index.ts'
import { tooLarge } from '../requests/whole-body.ts'
import { RESPONSE_HEADERS } from './security-headers.ts'

/** The kinds of Fastify's own errors, by code. */
const FRAMEWORK_KINDS: Readonly<Record<string, ErrorKind>> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: 'unsupported_media_type',
  FST_ERR_CTP_BODY_TOO_LARGE: 'too_large',
  FST_ERR_CTP_EMPTY_JSON_BODY: 'malformed',
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: 'malformed',
  FST_ERR_BAD_URL: 'malformed',
  FST_ERR_MAX_PARAM_LENGTH: 'malformed',
  FST_REQ_FILE_TOO_LARGE: 'too_large',
  FST_FILES_LIMIT: 'malformed',
  FST_FIELDS_LIMIT: 'malformed',
  FST_PARTS_LIMIT: 'malformed',
  FST_INVALID_MULTIPART_CONTENT_TYPE: 'unsupported_media_type',
  FST_NO_FORM_DATA: 'malformed',
}

/** Replaces messages that repeat the URL, which may contain a secret. */
const FRAMEWORK_MESSAGES: Readonly<Record<string, string>> = {
  FST_ERR_BAD_URL: 'invalid path: a percent sign must be followed by two hexadecimal digits that encode UTF-8',
  FST_ERR_MAX_PARAM_LENGTH: 'a segment of the path is too long',
}

/** Converts any thrown value to a ServiceError; unknown ones become `internal` and keep their cause for the log. */
export function toServiceError(error: unknown): ServiceError {
  if (error instanceof ServiceError) return error
  const { code, message, statusCode } = (error ?? {}) as Partial<FastifyError>
  const kind = code === undefined ? undefined : FRAMEWORK_KINDS[code]
  if (kind !== undefined)
    return new ServiceError(kind, FRAMEWORK_MESSAGES[code ?? ''] ?? lowerFirst(message ?? 'invalid request'), {
      cause: error,
    })
  // Parsers of the platform (URL decoding, an aborted body) give a 4xx status without a code of their own.
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500) {
    const known = (Object.keys(PROTOCOL_STATUS) as ErrorKind[]).find(
      (name) => PROTOCOL_STATUS[name].http === statusCode,
    )
    return new ServiceError(
      known ?? 'malformed',
      lowerFirst(message ?? STATUS_CODES[statusCode] ?? 'invalid request'),
      { cause: error },
    )
  }
  // This is checked last, because a body that the caller aborted looks like a broken database connection.
  const translated = translateDatabaseError(error)
  return translated instanceof ServiceError
    ? translated
    : new ServiceError('internal', 'internal error', { cause: error })
}

function lowerFirst(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1)
}

type PresentedError = ReturnType<typeof presentError> & { request_id?: string }
type ErrorAnswer = { status: number; headers: Record<string, string>; body: PresentedError }

/** The response for a thrown value. Logs internal errors. */
function answerOf(thrown: unknown, requestId: string, log: Pick<FastifyBaseLogger, 'error' | 'info'>): ErrorAnswer {
  const error = toServiceError(thrown)
  const status = PROTOCOL_STATUS[error.kind].http
  if (error.kind === 'internal') log.error({ err: error.cause ?? error }, 'internal error')
  else log.info({ kind: error.kind, ...error.context }, error.message)
  const headers: Record<string, string> = {}
  // RFC 9110 section 11.6.1
  if (status === 401) headers['WWW-Authenticate'] = 'Bearer'
  if (error.retryAfterSeconds !== undefined) headers['Retry-After'] = String(error.retryAfterSeconds)
  else if (status === 503 || status === 429) headers['Retry-After'] = '1'
  const body = presentError(error)
  return { status, headers, body: error.kind === 'internal' ? { ...body, request_id: requestId } : body }
}

/** Sends the error; hooks and the 404 handler use it too. `present` makes another body of that of the contract. */
export function sendError(
  request: FastifyRequest,
  reply: FastifyReply,
  thrown: unknown,
  present: (body: PresentedError, status: number) => object = (body) => body,
): FastifyReply {
  const error = isTooLarge(thrown) ? tooLarge(request.routeOptions.bodyLimit) : thrown
  const { status, headers, body } = answerOf(error, request.id, request.log)
  // A request that the router rejects passes no hook.
  return reply
    .headers({ 'X-Request-Id': request.id, ...RESPONSE_HEADERS, ...headers })
    .code(status)
    .type('application/json')
    .serializer(JSON.stringify)
    .send(present(body, status))
}

function isTooLarge(error: unknown): boolean {
  return (error as Partial<FastifyError> | null)?.code === 'FST_ERR_CTP_BODY_TOO_LARGE'
}

/** Errors of the routes that are registered on this scope, in the form of another specification. */
export function presentErrorsWith(
  scope: FastifyInstance,
  present: (error: { kind: ErrorKind; message: string; status: number }) => object,
): void {
  scope.setErrorHandler((thrown, request, reply) =>
    sendError(request, reply, thrown, ({ error: kind, message }, status) => present({ kind, message, status })),
  )
}

export function registerErrorHandler(app: FastifyInstance): void {
  app.setErrorHandler((error, request, reply) => sendError(request, reply, error))
}
