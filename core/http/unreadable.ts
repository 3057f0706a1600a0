/** The answers to what never reaches the router: the error body too, for bytes that are no request on the bare connection. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { PROTOCOL_STATUS, ServiceError, presentError } from '../errors/index.ts'
import { STATUS_CODES } from '../node-http.ts'
import { linger } from './linger.ts'

/** Codes of Node's HTTP parser and server. */
const REFUSALS: Readonly<Record<string, () => ServiceError>> = {
  HPE_HEADER_OVERFLOW: () => new ServiceError('too_large', 'the headers are too large'),
  HPE_CHUNK_EXTENSIONS_OVERFLOW: () => new ServiceError('too_large', 'the chunk extensions are too large'),
  ERR_HTTP_REQUEST_TIMEOUT: () => new ServiceError('malformed', 'the request did not arrive in time'),
}

/** Listener of `clientError`: answers where the connection still takes it and no answer has begun, and closes it. */
export function answerUnreadable(error: NodeJS.ErrnoException, socket: Duplex): void {
  const { _httpMessage: response } = socket as Duplex & { _httpMessage?: { headersSent: boolean } | null }
  if (error.code === 'ECONNRESET' || !socket.writable || response?.headersSent === true) {
    socket.destroy()
    return
  }
  const refusal = REFUSALS[error.code ?? '']?.() ?? new ServiceError('malformed', 'the request is not valid HTTP')
  const status = PROTOCOL_STATUS[refusal.kind].http
  const body = JSON.stringify(presentError(refusal))
  socket.write(
    [
      `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
      'Content-Type: application/json',
      `Content-Length: ${Buffer.byteLength(body)}`,
      'Connection: close',
      '',
      body,
    ].join('\r\n'),
  )
  linger(socket as Socket)
}

/** RFC 9112 section 3.2: a request of HTTP/1.1 without a host is refused. */
export function lacksHost({ headers, httpVersion }: IncomingMessage): boolean {
  return headers.host === undefined && httpVersion === '1.1'
}

export function refuse(response: ServerResponse, refusal: ServiceError): void {
  const body = JSON.stringify(presentError(refusal))
  response.writeHead(PROTOCOL_STATUS[refusal.kind].http, {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    Connection: 'close',
  })
  response.end(body)
}
