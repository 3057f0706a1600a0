/** Responses to requests that never reach the router, including bytes that are not HTTP: the error body on the bare connection. */
import { randomUUID } from 'node:crypto'
import { STATUS_CODES } from 'node:http'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { PROTOCOL_STATUS, ServiceError, presentError } from '#core/errors/index.ts'
import { RESPONSE_HEADERS } from '../answers/security-headers.ts'
import { endWhenRead, linger } from './linger.ts'

/** Codes of Node's HTTP parser and server. */
const REFUSALS: Readonly<Record<string, () => ServiceError>> = {
  HPE_HEADER_OVERFLOW: () => new ServiceError('too_large', 'the headers are too large'),
  HPE_CHUNK_EXTENSIONS_OVERFLOW: () => new ServiceError('too_large', 'the chunk extensions are too large'),
  ERR_HTTP_REQUEST_TIMEOUT: () => new ServiceError('malformed', 'the request did not arrive in time'),
}

/** Handles `clientError`: responds when the connection is writable and no response has begun, and closes it. */
export function respondToUnreadable(error: NodeJS.ErrnoException, socket: Socket, isAnswering: boolean): void {
  if (error.code === 'ECONNRESET' || !socket.writable || isAnswering) {
    socket.destroy()
    return
  }
  writeErrorResponse(socket, REFUSALS[error.code ?? '']?.() ?? new ServiceError('malformed', 'invalid HTTP request'))
}

/** Writes an error as the last response of a connection, without a response object. */
export function writeErrorResponse(socket: Duplex, refusal: ServiceError): void {
  const status = PROTOCOL_STATUS[refusal.kind].http
  const body = JSON.stringify(presentError(refusal))
  socket.write(
    [
      `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
      'Content-Type: application/json',
      `Content-Length: ${Buffer.byteLength(body)}`,
      'Connection: close',
      `X-Request-Id: ${randomUUID()}`,
      ...Object.entries(RESPONSE_HEADERS).map(([name, value]) => `${name}: ${value}`),
      '',
      body,
    ].join('\r\n'),
  )
  linger(socket as Socket)
}

const HOST = 'host'

/** RFC 9112 section 3.2: an HTTP/1.1 request has exactly one Host header. Proxies interpret two of them differently. */
export function hostFault({ rawHeaders, httpVersion }: IncomingMessage): ServiceError | undefined {
  let hosts = 0
  // Names and values alternate.
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] as string
    if (name.length === HOST.length && name.toLowerCase() === HOST) hosts += 1
  }
  if (hosts > 1) return new ServiceError('malformed', `the request must have one Host header, not ${hosts}`)
  if (hosts === 0 && httpVersion === '1.1') return new ServiceError('malformed', 'the request must have a Host header')
  return undefined
}

export function refuse(request: IncomingMessage, response: ServerResponse, refusal: ServiceError): void {
  const body = JSON.stringify(presentError(refusal))
  response.writeHead(PROTOCOL_STATUS[refusal.kind].http, {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    Connection: 'close',
    'X-Request-Id': randomUUID(),
    ...RESPONSE_HEADERS,
  })
  response.write(body)
  void endWhenRead(request, response)
}
