/**
 * One HTTP exchange over node:http, because `fetch` can neither skip certificate verification nor report upload progress,
 * and takes 30 ms to load.
 */
import { createReadStream } from 'node:fs'
import { Agent as HttpAgent, request as httpRequest } from 'node:http'
import type { ClientRequest, IncomingMessage } from 'node:http'
import { CommandError, InterruptedError } from './failures.ts'

/** A larger answer is not held in memory. */
const MAX_RESPONSE_BYTES = 256 * 1024 * 1024
const MAX_ERROR_BYTES = 64 * 1024

export type FileBody = {
  path: string
  /** Bytes around the file: the parts of a multipart form. */
  before: Buffer
  after: Buffer
  sizeBytes: number
}

export type Outgoing = {
  method: string
  url: string
  headers: Record<string, string>
  body: string | Buffer | FileBody | undefined
  /** The server must send something within this time. */
  deadlineMs: number
  isInsecure: boolean
  signal: AbortSignal
  onSent?: ((bytes: number) => void) | undefined
}

export type Incoming = { status: number; headers: IncomingMessage['headers']; text: string }

const agent = new HttpAgent({ keepAlive: true })

const REDIRECTS = new Set([301, 302, 303, 307, 308])

/**
 * Sends and waits for the head of the answer; the caller reads the body. A redirect is an error: the token must not go to
 * an address that the user did not name.
 */
export async function startRequest(outgoing: Outgoing): Promise<IncomingMessage> {
  const url = new URL(outgoing.url)
  const isTls = url.protocol === 'https:'
  const send = isTls ? (await import('node:https')).request : httpRequest
  if (outgoing.signal.aborted) throw new InterruptedError('interrupted')
  return await new Promise((resolve, reject) => {
    const request = send(url, {
      method: outgoing.method,
      headers: { ...outgoing.headers, ...lengthOf(outgoing.body) },
      signal: outgoing.signal,
      ...(isTls ? { rejectUnauthorized: !outgoing.isInsecure } : { agent }),
    })
    request.setTimeout(outgoing.deadlineMs, () => {
      request.destroy(
        new CommandError(
          `no answer from ${url.origin} within ${outgoing.deadlineMs / 1000} s`,
          'the request may have succeeded: check before you repeat it',
        ),
      )
    })
    request.once('response', (response) => {
      if (!REDIRECTS.has(response.statusCode ?? 0)) return resolve(response)
      response.destroy()
      reject(
        new CommandError(
          `${url.origin} redirects to ${response.headers.location ?? 'another address'}: redirects are not followed`,
          'use the other address if you trust it: --url, SKEIN_URL',
        ),
      )
    })
    request.once('error', (error) => reject(explain(error, url, outgoing.signal)))
    writeBody(request, outgoing, reject)
  })
}

/** The whole exchange. */
export async function sendRequest(outgoing: Outgoing): Promise<Incoming> {
  const response = await startRequest(outgoing)
  const chunks: Buffer[] = []
  let bytes = 0
  const most = (response.statusCode ?? 0) < 400 ? MAX_RESPONSE_BYTES : MAX_ERROR_BYTES
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      bytes += chunk.length
      if (bytes > most) throw new CommandError('the answer is too large', 'use smaller pages: --limit, --offset')
      chunks.push(chunk)
    }
  } catch (error) {
    throw explain(error, new URL(outgoing.url), outgoing.signal)
  }
  return { status: response.statusCode ?? 0, headers: response.headers, text: Buffer.concat(chunks).toString('utf8') }
}

const isWhole = (body: string | Buffer | FileBody): body is string | Buffer =>
  typeof body === 'string' || Buffer.isBuffer(body)

function lengthOf(body: Outgoing['body']): Record<string, string> {
  if (body === undefined) return {}
  const bytes = isWhole(body) ? Buffer.byteLength(body) : body.before.length + body.sizeBytes + body.after.length
  return { 'Content-Length': String(bytes) }
}

function writeBody(request: ClientRequest, { body, onSent }: Outgoing, reject: (error: unknown) => void): void {
  if (body === undefined || isWhole(body)) {
    request.end(body)
    return
  }
  let sent = 0
  request.write(body.before)
  const file = createReadStream(body.path, { end: Math.max(body.sizeBytes - 1, 0) })
  file.on('data', (chunk) => {
    sent += chunk.length
    onSent?.(sent)
  })
  file.once('error', (error) => {
    request.destroy()
    reject(new CommandError(`cannot read ${body.path}: ${error.message}`))
  })
  file.once('end', () => request.end(body.after))
  // A server can refuse while the file is still being sent: its answer takes precedence over the broken pipe.
  request.once('response', () => file.destroy())
  file.pipe(request, { end: false })
}

const CERTIFICATE_CODES = new Set([
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_GET_ISSUER_CERT',
  'CERT_HAS_EXPIRED',
  'ERR_TLS_CERT_ALTNAME_INVALID',
])

/** Explains a failure below HTTP, with a remedy. */
function explain(error: unknown, url: URL, signal: AbortSignal): Error {
  if (signal.aborted) return new InterruptedError('interrupted')
  if (error instanceof CommandError) return error
  const { code = '', message } = error as NodeJS.ErrnoException
  const inner = error instanceof AggregateError ? (error.errors[0] as NodeJS.ErrnoException | undefined) : undefined
  switch (code === '' ? (inner?.code ?? '') : code) {
    case 'ECONNREFUSED':
      return new CommandError(
        `connection refused by ${url.origin}`,
        'start Skein with "skein up", or set its address: SKEIN_URL, --url, skein login --url URL',
        { cause: error },
      )
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return new CommandError(`unknown host ${url.hostname}`, 'check the address: skein doctor', {
        cause: error,
      })
    case 'ETIMEDOUT':
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
      return new CommandError(`cannot reach ${url.origin}`, 'check network and address: skein doctor', {
        cause: error,
      })
    case 'ECONNRESET':
    case 'EPIPE':
      return new CommandError(
        `${url.origin} closed the connection`,
        'the request may have succeeded: check before you repeat it',
        { cause: error },
      )
    case 'EPROTO':
    case 'ERR_SSL_WRONG_VERSION_NUMBER':
      return new CommandError(`${url.origin} does not speak TLS`, 'use an address that begins with http://', {
        cause: error,
      })
    default:
      return CERTIFICATE_CODES.has(code)
        ? new CommandError(
            `the certificate of ${url.origin} is not trusted (${code})`,
            'name its authority with NODE_EXTRA_CA_CERTS=ca.pem, or accept any certificate with --insecure',
            { cause: error },
          )
        : new CommandError(`${url.origin}: ${message}`, undefined, { cause: error })
  }
}
