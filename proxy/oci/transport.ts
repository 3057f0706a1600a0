/**
 * One request to a registry, a token realm or the place a redirect names. It does not follow redirects and knows no
 * credentials; it decides only whether the address may be reached, and that the connection goes to the address that was
 * judged (task manager section 6, rule 9). `fetch` cannot promise that: it resolves names on its own.
 */
import type { ClientRequest, IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import { isIP } from 'node:net'
import { ServiceError } from '#core/errors/index.ts'
import { Agent as HttpAgent, request as httpRequest } from '#core/node-http.ts'
import { countPassing } from '#core/passing-buffers.ts'
import { arePublic, judgedLookup } from '#core/public-address.ts'
import { formatDurationMs } from '#core/time.ts'
import { bareHost, isPublicAddress, mayBePlainHttp, mayBePrivate } from './address.ts'
import type { AddressPolicy } from './address.ts'

export type TransportLimits = {
  /** From the start of a request, name and TLS included, to the last byte of the response's headers. */
  headersMs: number
  /** Longest silence in the middle of a body. */
  stallMs: number
}

export type Answer = { url: URL; status: number; headers: IncomingHttpHeaders; body: IncomingMessage }

/** A body that can be given again: a request may be repeated. */
export type RequestBody = { sizeBytes: number; read(): AsyncIterable<Buffer> }
export type Method = 'GET' | 'HEAD' | 'POST' | 'PUT'

export type Transport = {
  /** `send` of a GET. */
  get(url: URL, headers: Record<string, string>, signal: AbortSignal): Promise<Answer>
  /**
   * Sends one request. Throws `forbidden` for an address that the policy refuses, `timeout` and `unavailable` when
   * nothing answers. The caller reads the body with `readBody` or `chunksOf`, or gives it to `discard`.
   */
  send(
    method: Method,
    url: URL,
    headers: Record<string, string>,
    signal: AbortSignal,
    body?: RequestBody,
  ): Promise<Answer>
  /** The body in pieces; throws `timeout` when it stalls and `unavailable` when it breaks off. */
  chunksOf(answer: Answer): AsyncGenerator<Buffer>
  /** The whole body; undefined when it is longer than the limit. */
  readBody(answer: Answer, maxBytes: number): Promise<Buffer | undefined>
  close(): void
}

/** Sockets to one registry at a time; more requests wait in the agent, and the pulls before them are bounded. */
const MAX_SOCKETS_PER_HOST = 16
/** A body of this size that nobody wants is read, so that the connection can be used again; a longer one is cut. */
const MAX_DISCARDED_BYTES = 64 * 1024
const DISCARD_DEADLINE_MS = 5_000

export function createTransport(policy: AddressPolicy, limits: TransportLimits): Transport {
  const agentOptions = { keepAlive: true, maxSockets: MAX_SOCKETS_PER_HOST, timeout: limits.stallMs }
  const agents = { 'http:': new HttpAgent(agentOptions), 'https:': new HttpsAgent(agentOptions) }

  async function* chunksOf(answer: Answer): AsyncGenerator<Buffer> {
    const iterator = answer.body[Symbol.asyncIterator]() as AsyncIterator<Buffer>
    try {
      for (;;) {
        const next = await nextWithin(iterator, limits.stallMs, answer.url)
        if (next.done === true) return
        yield next.value
      }
    } finally {
      answer.body.destroy()
    }
  }

  const send: Transport['send'] = async (method, url, headers, signal, requestBody) => {
    signal.throwIfAborted()
    checkUrl(url, policy)
    const sizeHeader = requestBody === undefined ? {} : { 'content-length': String(requestBody.sizeBytes) }
    return await new Promise<Answer>((resolve, reject) => {
      const begin = url.protocol === 'http:' ? httpRequest : httpsRequest
      const request = begin(url, {
        method,
        agent: url.protocol === 'http:' ? agents['http:'] : agents['https:'],
        // Identity: a body compressed on the way would match neither the size nor the digest of its descriptor.
        headers: { ...headers, ...sizeHeader, 'accept-encoding': 'identity', 'user-agent': 'skein-proxy' },
        lookup: judgedLookup((_name, addresses) =>
          mayBePrivate(url, policy) || arePublic(addresses) ? undefined : notPublic(url),
        ),
        signal,
      })
      const timer = armHeadersDeadline(request, url, limits.headersMs)
      // What is sent counts as an answer: a registry answers an upload when it has all of it.
      let hasAnswer = false
      const onSent = () => void (hasAnswer || timer.refresh())
      request.on('response', (body) => {
        hasAnswer = true
        clearTimeout(timer)
        // Who reads the body hears of its errors; without any listener one in between would end the process.
        body.on('error', () => undefined)
        resolve({ url, status: body.statusCode ?? 0, headers: body.headers, body })
      })
      request.on('error', (error) => {
        clearTimeout(timer)
        reject(signal.aborted ? (signal.reason as Error) : asUnavailable(error, url))
      })
      if (requestBody === undefined) request.end()
      else sendBody(request, requestBody, onSent).catch((error: unknown) => request.destroy(error as Error))
    })
  }

  return {
    chunksOf,
    send,
    get: (url, headers, signal) => send('GET', url, headers, signal),
    async readBody(answer, maxBytes) {
      if (Number(answer.headers['content-length'] ?? 0) > maxBytes) {
        discard(answer)
        return undefined
      }
      const pieces: Buffer[] = []
      let sizeBytes = 0
      for await (const piece of chunksOf(answer)) {
        sizeBytes += piece.length
        if (sizeBytes > maxBytes) return undefined
        pieces.push(piece)
      }
      return Buffer.concat(pieces)
    },
    close() {
      agents['http:'].destroy()
      agents['https:'].destroy()
    },
  }
}

/** As fast as the registry takes it. */
async function sendBody(request: ClientRequest, body: RequestBody, onSent: () => void): Promise<void> {
  const closed = new Promise<void>((resolve) => request.once('close', resolve))
  for await (const piece of body.read()) {
    if (request.destroyed) return
    onSent()
    countPassing(piece.length)
    // A registry that takes nothing is given up by the deadline of the headers, which destroys the request.
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

function checkUrl(url: URL, policy: AddressPolicy): void {
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw new ServiceError('forbidden', `address must be https, not ${url.protocol.slice(0, 20)}`)
  }
  if (url.protocol === 'http:' && !mayBePlainHttp(url, policy)) {
    throw new ServiceError(
      'forbidden',
      `${url.host} is plain HTTP, which is for loopback and for hosts in SKEIN_PROXY_HTTP_HOSTS`,
    )
  }
  // A literal address never reaches the lookup of a connection.
  const host = bareHost(url.hostname)
  if (isIP(host) !== 0 && !mayBePrivate(url, policy) && !isPublicAddress(host)) throw notPublic(url)
}

function notPublic(url: URL): ServiceError {
  return new ServiceError(
    'forbidden',
    `${url.host} is a private, loopback or link-local address, which is for hosts in SKEIN_PROXY_HTTP_HOSTS`,
  )
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
