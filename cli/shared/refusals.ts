/** Turns an error answer into a failure with the server's message and a remedy. */
import type { ApiRequest, Session } from './command.ts'
import { RefusedError } from './failures.ts'
import type { Incoming } from './http.ts'
import { isRecord, plainText } from './values.ts'

export function refusalOf({ status, text, headers }: Incoming, request: ApiRequest, session: Session): RefusedError {
  let body: unknown
  try {
    body = JSON.parse(text)
  } catch {
    body = undefined
  }
  const record = isRecord(body) ? body : {}
  const details = Array.isArray(record['details'])
    ? record['details']
        .filter(isRecord)
        .map((detail) => ({ path: plainText(detail['path']), message: plainText(detail['message']) }))
    : []
  const message = plainText(record['message'] ?? record['error'], `the server returned ${status}`)
  const more = details
    .filter((detail) => !message.includes(detail.message))
    .map((detail) => `${detail.path} ${detail.message}`)
  const requestId = status >= 500 ? headers['x-request-id'] : undefined
  return new RefusedError(
    status,
    [message, ...more].join('; ') + (requestId === undefined ? '' : ` (request ${String(requestId)})`),
    details,
    hintFor(status, headers, request, session),
  )
}

function hintFor(
  status: number,
  headers: Incoming['headers'],
  request: ApiRequest,
  session: Session,
): string | undefined {
  if (status === 401) return session.hintWhenRefused(request)
  if (status === 403)
    return 'ask an administrator of the domain for a role with this permission, or use another --domain'
  if (status === 429 || status === 503) {
    const after = headers['retry-after']
    return after === undefined ? 'try again in a moment' : `try again in ${after} s`
  }
  if (status === 502 || status === 504) return 'the request may have succeeded: check before you repeat it'
  if (status === 500) return 'the log of the server has details under this request id'
  return undefined
}
