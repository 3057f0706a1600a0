/** Sends one request of a guest: over a new connection, to a checked address, without following redirects. */
import { request as requestHttp } from 'node:http'
import type { IncomingMessage } from 'node:http'
import { request as requestHttps } from 'node:https'
import type { LookupFunction } from 'node:net'
import { ServiceError } from '#core/errors/index.ts'
import { lookupPublic } from '#core/public-address.ts'
import { MAX_HTTP_HEADER_BYTES, isReservedHttpHeader } from '../runner/index.ts'
import type { HttpHeaders } from '../runner/index.ts'
import type { PermittedRequest } from './permit.ts'

export type SentResponse = { status: number; headers: HttpHeaders; body: Buffer }

export type Sending = {
  headers: HttpHeaders
  body: Uint8Array
  /** The body is not read beyond this. */
  maxResponseBytes: number
  /** Called with each part of the body, before it is known that there is a response. */
  onReceived: (bytes: number) => void
  signal: AbortSignal
  /** Resolves names of hosts that are not private; tests have their own. */
  lookup?: LookupFunction
}

/**
 * Bytes of a response that are not its body, beyond as many as its body has. Interim responses and extensions of chunks have no other end than
 * the time of the request.
 */
const MAX_FRAMING_BYTES = 256 * 1024

const METHODS_WITH_BODY: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH'])

/** Rejects with `too_large` for a larger body, with the error of the connection, and with that of the signal. */
export function sendRequest(
  { url, method, isPrivate }: PermittedRequest,
  { headers, body, maxResponseBytes, onReceived, signal, lookup = lookupPublic }: Sending,
): Promise<SentResponse> {
  return new Promise((resolve, reject) => {
    let hasResponse = false
    let bodyBytes = 0
    const excess = () => {
      const bytes = (sent.socket?.bytesRead ?? 0) - 2 * bodyBytes
      return bytes > MAX_FRAMING_BYTES
        ? new ServiceError('too_large', 'the response has too many bytes that are not its body')
        : undefined
    }
    const endInterim = () => {
      const refusal = excess()
      if (refusal !== undefined) sent.destroy(refusal)
    }
    const countPart = (bytes: number) => {
      bodyBytes += bytes
      onReceived(bytes)
      const refusal = excess()
      if (refusal !== undefined) throw refusal
    }
    const sent = (url.protocol === 'https:' ? requestHttps : requestHttp)(
      url,
      {
        method,
        headers: linesOf(headers, method, body),
        ...(isPrivate ? {} : { lookup }),
        // A new connection: a reused one would bypass the check of its address.
        agent: false,
        // Not as NODE_TLS_REJECT_UNAUTHORIZED says.
        rejectUnauthorized: true,
        insecureHTTPParser: false,
        maxHeaderSize: MAX_HTTP_HEADER_BYTES,
        signal,
      },
      (response) => {
        hasResponse = true
        readBody(response, { maxResponseBytes, onReceived: countPart }).then(
          (received) =>
            resolve({ status: response.statusCode ?? 0, headers: headersOf(response.rawHeaders), body: received }),
          (error: unknown) => {
            sent.destroy()
            reject(error instanceof Error ? error : new Error(String(error)))
          },
        )
      },
    )
    sent.on('error', reject)
    sent.on('continue', endInterim)
    sent.on('information', endInterim)
    // A protocol that was not asked for: Node closes the connection without an error. A body that ends with the connection may still be read.
    sent.on('close', () => {
      if (!hasResponse) reject(new Error('the connection was closed without a response'))
    })
    sent.end(body)
  })
}

/** Values by name in lower case, of which Node writes one line each. */
function linesOf(headers: HttpHeaders, method: string, body: Uint8Array): Record<string, string | string[]> {
  const lines = Object.create(null) as Record<string, string | string[]>
  lines['user-agent'] = 'Skein'
  const seen = new Map<string, string[]>()
  for (const [name, value] of headers) seen.getOrInsertComputed(name.toLowerCase(), () => []).push(value)
  for (const [name, values] of seen) lines[name] = values.length === 1 ? (values[0] ?? '') : values
  if (body.length > 0 || METHODS_WITH_BODY.has(method)) lines['content-length'] = String(body.length)
  return lines
}

async function readBody(
  response: IncomingMessage,
  { maxResponseBytes, onReceived }: Pick<Sending, 'maxResponseBytes' | 'onReceived'>,
): Promise<Buffer> {
  const parts: Buffer[] = []
  let bytes = 0
  for await (const part of response as AsyncIterable<Buffer>) {
    bytes += part.length
    onReceived(part.length)
    if (bytes > maxResponseBytes)
      throw new ServiceError('too_large', `the response has more than the ${maxResponseBytes} bytes that are left`)
    parts.push(part)
  }
  return Buffer.concat(parts)
}

/** Without those of the connection. */
function headersOf(raw: readonly string[]): HttpHeaders {
  const headers: HttpHeaders = []
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const [name = '', value = ''] = raw.slice(at, at + 2)
    if (name.toLowerCase() === 'content-length' || !isReservedHttpHeader(name)) headers.push([name, value])
  }
  return headers
}
