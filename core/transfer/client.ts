/**
 * HTTP requests with large responses: every wait has a deadline, redirects are left to the caller, and each client checks
 * addresses and TLS for every request (`fetch` resolves names itself and does not allow choosing a certificate).
 */
import { Agent as HttpAgent, request as httpRequest } from 'node:http'
import type { ClientRequest, IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import type { RequestOptions } from 'node:https'
import type { SecureContext } from 'node:tls'
import { ServiceError } from '../errors/index.ts'
import { countPassing } from '../passing-buffers.ts'
import { formatDurationMs } from '../time.ts'

export type TransferLimits = {
  /** Milliseconds from the start of a request, name and TLS included, to the last byte of the response's headers. */
  headersMs: number
  /** Milliseconds without data in the middle of a body. */
  stallMs: number
}

export type TransferResponse = { url: URL; status: number; headers: IncomingHttpHeaders; body: IncomingMessage }

/** A body that can be read again, so that a request can be repeated. Without a size it is sent in chunks. */
export type RequestBody = { sizeBytes: number | undefined; read(): AsyncIterable<Uint8Array> }
export type Method = 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE'

/** Options of a request's connection; the rest is Node's default. */
export type Dial = Pick<RequestOptions, 'lookup' | 'servername' | 'checkServerIdentity'> & {
  secureContext?: SecureContext
}

export type TransferOptions = {
  userAgent: string
  limits: TransferLimits
  /** Sockets to one host at a time; further requests wait. */
  maxSocketsPerHost?: number
  /** Throws when the address may not be reached. */
  dial?: (url: URL) => Dial
}

const MAX_SOCKETS_PER_HOST = 16
/** A discarded body up to this size is read, so that the connection can be reused; a longer one closes it. */
const MAX_DISCARDED_BYTES = 64 * 1024
const DISCARD_DEADLINE_MS = 5_000

export class TransferClient {
  readonly #options: TransferOptions
  readonly #plain: HttpAgent
  readonly #secure: HttpsAgent

  constructor(options: TransferOptions) {
    this.#options = options
    const { limits, maxSocketsPerHost = MAX_SOCKETS_PER_HOST } = options
    const agent = { keepAlive: true, maxSockets: maxSocketsPerHost, timeout: limits.stallMs }
    this.#plain = new HttpAgent(agent)
    // A resumed session would skip the check of the certificate.
    this.#secure = new HttpsAgent({ ...agent, maxCachedSessions: 0 })
  }

  /** Sends a GET. */
  async get(url: URL, headers: Record<string, string>, signal: AbortSignal): Promise<TransferResponse> {
    return await this.send('GET', url, headers, signal)
  }

  /**
   * Sends one request. Throws the errors of `dial`, and `timeout` and `unavailable` when there is no response. The caller reads the
   * body with `readBody` or `chunksOf`, or calls `discard`.
   */
  async send(
    method: Method,
    url: URL,
    headers: Record<string, string>,
    signal: AbortSignal,
    body?: RequestBody,
  ): Promise<TransferResponse> {
    signal.throwIfAborted()
    const { userAgent, limits, dial } = this.#options
    const isPlain = url.protocol === 'http:'
    const options = {
      method,
      agent: isPlain ? this.#plain : this.#secure,
      // Identity: a compressed body would match neither the known size nor the digest.
      headers: { ...headers, ...sizeHeader(body), 'accept-encoding': 'identity', 'user-agent': userAgent },
      signal,
      ...dial?.(url),
    }
    return await new Promise<TransferResponse>((resolve, reject) => {
      const request = isPlain ? httpRequest(url, options) : httpsRequest(url, options)
      const timer = armHeadersDeadline(request, url, limits.headersMs)
      // Upload progress extends the deadline: the response comes after the whole upload.
      let hasAnswer = false
      const onSent = () => void (hasAnswer || timer.refresh())
      request.on('response', (answer) => {
        hasAnswer = true
        clearTimeout(timer)
        // The reader of the body receives its errors; without a listener, an error before that would end the process.
        answer.on('error', () => undefined)
        resolve({ url, status: answer.statusCode ?? 0, headers: answer.headers, body: answer })
      })
      request.on('error', (error) => {
        clearTimeout(timer)
        reject(signal.aborted ? (signal.reason as Error) : asUnavailable(error, url))
      })
      if (body === undefined) request.end()
      else sendBody(request, body, onSent).catch((error: unknown) => request.destroy(error as Error))
    })
  }

  /** The body in pieces; throws `timeout` when it stalls for `stallMs` and `unavailable` when it breaks off. */
  async *chunksOf({ body, url }: TransferResponse, stallMs = this.#options.limits.stallMs): AsyncGenerator<Buffer> {
    const iterator = body[Symbol.asyncIterator]() as AsyncIterator<Buffer>
    try {
      for (;;) {
        const next = await nextWithin(iterator, stallMs, url)
        if (next.done === true) return
        yield next.value
      }
    } finally {
      body.destroy()
    }
  }

  /** The whole body; undefined when it is longer than the limit. */
  async readBody(answer: TransferResponse, maxBytes: number): Promise<Buffer | undefined> {
    if (Number(answer.headers['content-length'] ?? 0) > maxBytes) {
      discard(answer)
      return undefined
    }
    const pieces: Buffer[] = []
    let sizeBytes = 0
    for await (const piece of this.chunksOf(answer)) {
      sizeBytes += piece.length
      if (sizeBytes > maxBytes) return undefined
      pieces.push(piece)
    }
    return Buffer.concat(pieces)
  }

  close(): void {
    this.#plain.destroy()
    this.#secure.destroy()
  }
}

function sizeHeader(body: RequestBody | undefined): Record<string, string> {
  return body?.sizeBytes === undefined ? {} : { 'content-length': String(body.sizeBytes) }
}

/** Respects backpressure. */
async function sendBody(request: ClientRequest, body: RequestBody, onSent: () => void): Promise<void> {
  const closed = new Promise<void>((resolve) => request.once('close', resolve))
  for await (const piece of body.read()) {
    if (request.destroyed) return
    onSent()
    countPassing(piece.length)
    // If the peer takes nothing, the deadline of the headers destroys the request.
    if (!request.write(piece)) {
      await Promise.race([new Promise<void>((resolve) => request.once('drain', resolve)), closed])
    }
  }
  request.end()
}

/** Discards the body of a response. */
export function discard({ body, headers }: TransferResponse): void {
  if (!(Number(headers['content-length'] ?? Number.NaN) <= MAX_DISCARDED_BYTES)) return void body.destroy()
  const timer = setTimeout(() => body.destroy(), DISCARD_DEADLINE_MS)
  body.once('close', () => clearTimeout(timer))
  body.resume()
}

function armHeadersDeadline(request: ClientRequest, url: URL, headersMs: number): NodeJS.Timeout {
  return setTimeout(() => {
    request.destroy(new ServiceError('timeout', `${url.host} did not answer within ${formatDurationMs(headersMs)}`))
  }, headersMs)
}

async function nextWithin(iterator: AsyncIterator<Buffer>, stallMs: number, url: URL): Promise<IteratorResult<Buffer>> {
  const { promise: stalled, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(
    () => reject(new ServiceError('timeout', `${url.host} sent nothing for ${formatDurationMs(stallMs)}`)),
    stallMs,
  )
  try {
    return await Promise.race([iterator.next(), stalled])
  } catch (error) {
    throw asUnavailable(error, url)
  } finally {
    clearTimeout(timer)
  }
}

function asUnavailable(error: unknown, url: URL): ServiceError {
  if (error instanceof ServiceError) return error
  const code = errorCodeOf(error) ?? 'no response'
  return new ServiceError('unavailable', `${url.host} cannot be reached (${code})`, { cause: error })
}

/** The code of a system or TLS error, of this error or of its cause. */
export function errorCodeOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined
  const code = 'code' in error && typeof error.code === 'string' ? error.code : undefined
  return code ?? errorCodeOf(error.cause)
}
