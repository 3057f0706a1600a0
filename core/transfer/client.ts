/**
 * HTTP requests whose answers may be large: every wait has a deadline, redirects are the caller's, and where a request may go
 * and how its TLS is judged is decided once per client, for each address (`fetch` resolves names on its own, and its TLS
 * cannot be told which certificate to take).
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
  /** Milliseconds of silence in the middle of a body. */
  stallMs: number
}

export type Answer = { url: URL; status: number; headers: IncomingHttpHeaders; body: IncomingMessage }

/** A body that can be given again, so that a request can be repeated. Without a size it is sent in chunks. */
export type RequestBody = { sizeBytes: number | undefined; read(): AsyncIterable<Uint8Array> }
export type Method = 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE'

/** How the connection of a request is made; the rest is Node's default. */
export type Dial = Pick<RequestOptions, 'lookup' | 'servername' | 'checkServerIdentity'> & {
  secureContext?: SecureContext
}

export type TransferOptions = {
  userAgent: string
  limits: TransferLimits
  /** Sockets to one host at a time; more requests wait for one. */
  maxSocketsPerHost?: number
  /** Throws where the address may not be reached. */
  dial?: (url: URL) => Dial
}

const MAX_SOCKETS_PER_HOST = 16
/** A body of this size that nobody wants is read, so that the connection can be used again; a longer one is cut. */
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
    // A resumed session would not be judged again.
    this.#secure = new HttpsAgent({ ...agent, maxCachedSessions: 0 })
  }

  /** `send` of a GET. */
  async get(url: URL, headers: Record<string, string>, signal: AbortSignal): Promise<Answer> {
    return await this.send('GET', url, headers, signal)
  }

  /**
   * Sends one request. Throws what `dial` throws, and `timeout` and `unavailable` when nothing answers. The caller reads the
   * body with `readBody` or `chunksOf`, or gives it to `discard`.
   */
  async send(
    method: Method,
    url: URL,
    headers: Record<string, string>,
    signal: AbortSignal,
    body?: RequestBody,
  ): Promise<Answer> {
    signal.throwIfAborted()
    const { userAgent, limits, dial } = this.#options
    const isPlain = url.protocol === 'http:'
    const options = {
      method,
      agent: isPlain ? this.#plain : this.#secure,
      // Identity: a body compressed on the way would match neither the size nor the digest that are known of it.
      headers: { ...headers, ...sizeHeader(body), 'accept-encoding': 'identity', 'user-agent': userAgent },
      signal,
      ...dial?.(url),
    }
    return await new Promise<Answer>((resolve, reject) => {
      const request = isPlain ? httpRequest(url, options) : httpsRequest(url, options)
      const timer = armHeadersDeadline(request, url, limits.headersMs)
      // What is sent counts as an answer: an upload is answered when all of it is there.
      let hasAnswer = false
      const onSent = () => void (hasAnswer || timer.refresh())
      request.on('response', (answer) => {
        hasAnswer = true
        clearTimeout(timer)
        // The reader of the body hears of its errors; without any listener one in between would end the process.
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
  async *chunksOf({ body, url }: Answer, stallMs = this.#options.limits.stallMs): AsyncGenerator<Buffer> {
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
  async readBody(answer: Answer, maxBytes: number): Promise<Buffer | undefined> {
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

/** As fast as the other side takes it. */
async function sendBody(request: ClientRequest, body: RequestBody, onSent: () => void): Promise<void> {
  const closed = new Promise<void>((resolve) => request.once('close', resolve))
  for await (const piece of body.read()) {
    if (request.destroyed) return
    onSent()
    countPassing(piece.length)
    // Where nothing is taken the deadline of the headers destroys the request.
    if (!request.write(piece)) {
      await Promise.race([new Promise<void>((resolve) => request.once('drain', resolve)), closed])
    }
  }
  request.end()
}

/** Gives a body up that nobody reads. */
export function discard({ body, headers }: Answer): void {
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
  const code = errorCodeOf(error) ?? 'no answer'
  return new ServiceError('unavailable', `${url.host} cannot be reached (${code})`, { cause: error })
}

/** The code of a system or TLS error, of this error or of its cause. */
export function errorCodeOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined
  const code = 'code' in error && typeof error.code === 'string' ? error.code : undefined
  return code ?? errorCodeOf(error.cause)
}
