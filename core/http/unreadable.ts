/** The answers to what never reaches the router: the error body too, for bytes that are no request on the bare connection. */
import { randomUUID } from 'node:crypto'
import { STATUS_CODES } from 'node:http'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { PROTOCOL_STATUS, ServiceError, presentError } from '../errors/index.ts'
import { ANSWER_HEADERS } from './security-headers.ts'
import { endWhenRead, linger } from './linger.ts'

/** Codes of Node's HTTP parser and server. */
const REFUSALS: Readonly<Record<string, () => ServiceError>> = {
  HPE_HEADER_OVERFLOW: () => new ServiceError('too_large', 'the headers are too large'),
  HPE_CHUNK_EXTENSIONS_OVERFLOW: () => new ServiceError('too_large', 'the chunk extensions are too large'),
  ERR_HTTP_REQUEST_TIMEOUT: () => new ServiceError('malformed', 'the request did not arrive in time'),
}

/** For `clientError`: answers where the connection still takes it and no answer has begun, and closes it. */
export function answerUnreadable(error: NodeJS.ErrnoException, socket: Socket, isAnswering: boolean): void {
  if (error.code === 'ECONNRESET' || !socket.writable || isAnswering) {
    socket.destroy()
    return
  }
  answerBare(socket, REFUSALS[error.code ?? '']?.() ?? new ServiceError('malformed', 'the request is not valid HTTP'))
}

/** Writes a refusal as the last answer of a connection that no response stands for. */
export function answerBare(socket: Duplex, refusal: ServiceError): void {
  const status = PROTOCOL_STATUS[refusal.kind].http
  const body = JSON.stringify(presentError(refusal))
  socket.write(
    [
      `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
      'Content-Type: application/json',
      `Content-Length: ${Buffer.byteLength(body)}`,
      'Connection: close',
      `X-Request-Id: ${randomUUID()}`,
      ...Object.entries(ANSWER_HEADERS).map(([name, value]) => `${name}: ${value}`),
      '',
      body,
    ].join('\r\n'),
  )
  linger(socket as Socket)
}

const HOST = 'host'

/** RFC 9112 section 3.2: a request of HTTP/1.1 names one host; whatever names two is read by nobody alike. */
export function hostFault({ rawHeaders, httpVersion }: IncomingMessage): ServiceError | undefined {
  let hosts = 0
  // Names and values by turns.
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
    ...ANSWER_HEADERS,
  })
  response.write(body)
  void endWhenRead(request, response)
}
