/**
 * Requests that another process of this machine answers. A process that shares its ports passes them on over a socket that only our
 * own processes can open. There the caller counts as the peer, so that rules about addresses apply as if they had connected directly.
 */
import { request as httpRequest } from 'node:http'
import type { IncomingMessage } from 'node:http'
import { pipeline } from 'node:stream/promises'
import type { FastifyReply, FastifyRequest, HTTPMethods } from 'fastify'
import { ServiceError } from '#core/errors/index.ts'
import type { RoutePlugin } from '../app.ts'
import { peerAddressOf, setPeerAddress } from '../callers/caller-address.ts'
import { describeDocument } from '../openapi/openapi.ts'

/** Routes that another process answers. */
export type ForwardedRoutes = {
  /** Path of its private socket. */
  readonly socketPath: string
  /** Each with its pattern, as the router takes it. */
  readonly routes: readonly { readonly method: string; readonly url: string }[]
  /** Its OpenAPI document, which becomes a part of ours. */
  readonly document: object
}

/** Names the caller on the private socket. It is removed from requests of callers. */
const PEER_HEADER = 'skein-peer'
const REQUEST_ID_HEADER = 'x-request-id'
/** Headers of one hop (RFC 9110 section 7.6.1), and headers that are replaced. */
const HOP_HEADERS = ['connection', 'keep-alive']
const NOT_REQUESTED = new Set([...HOP_HEADERS, 'upgrade', 'expect', PEER_HEADER])
const NOT_ANSWERED = new Set([...HOP_HEADERS, 'transfer-encoding'])

/** Collects the routes that are registered after it. */
export function collectRoutes(): { plugin: RoutePlugin; routes: { method: string; url: string }[] } {
  const routes: { method: string; url: string }[] = []
  return {
    routes,
    plugin: (app) => {
      app.addHook('onRoute', ({ method, url }) => {
        // A route for GET answers HEAD too, here and there.
        for (const one of [method].flat()) if (one !== 'HEAD') routes.push({ method: one, url })
      })
    },
  }
}

/** Registers the routes of the other process. Its answers, errors included, are passed on unchanged. */
export function forwardedRoutes({ socketPath, routes, document }: ForwardedRoutes): RoutePlugin {
  const forward = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const { raw } = request
    const upstream = httpRequest({
      socketPath,
      method: raw.method,
      path: raw.url,
      headers: requestHeaders(raw, request.id),
      agent: false,
    })
    reply.raw.once('close', () => upstream.destroy())
    const answer = await new Promise<IncomingMessage>((resolve, reject) => {
      // An answer may come before the end of the body, which breaks the connection: later errors change nothing.
      upstream.once('response', resolve).on('error', reject)
      if (hasBody(raw)) raw.pipe(upstream)
      else upstream.end()
    }).catch((cause: unknown) => {
      const { code, message } = cause as NodeJS.ErrnoException
      throw new ServiceError('unavailable', 'the process that answers this path is restarting', {
        cause,
        context: { reason: code ?? message },
      })
    })
    reply.hijack()
    reply.raw.writeHead(answer.statusCode ?? 0, answer.statusMessage, responseHeaders(answer))
    // The caller may close the connection at any time.
    await pipeline(answer, reply.raw).catch(() => undefined)
  }
  return async (app) => {
    describeDocument(app, { alsoServed: document })
    await app.register((scope, _options, done) => {
      scope.removeAllContentTypeParsers()
      // The body is passed on as it comes.
      scope.addContentTypeParser('*', (_request, _payload, parsed) => parsed(null))
      for (const { method, url } of routes) {
        scope.route({
          method: method as HTTPMethods,
          url,
          // The other process authenticates the caller.
          config: { isPublic: true, isForwarded: true },
          schema: { hide: true },
          handler: forward as never,
        })
      }
      done()
    })
  }
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined
}

function requestHeaders(request: IncomingMessage, requestId: string): Record<string, string | string[]> {
  const headers: Record<string, string | string[]> = {}
  for (const [name, values = []] of Object.entries(request.headersDistinct)) {
    const [first, ...others] = values
    if (first !== undefined && !NOT_REQUESTED.has(name)) headers[name] = others.length === 0 ? first : values
  }
  return { ...headers, [REQUEST_ID_HEADER]: requestId, [PEER_HEADER]: peerAddressOf(request.socket) }
}

function responseHeaders({ rawHeaders }: IncomingMessage): string[] {
  return rawHeaders.filter((_, index) => !NOT_ANSWERED.has((rawHeaders[index - (index % 2)] ?? '').toLowerCase()))
}

/** Makes the caller that the other process names the peer of a request that arrives on the private socket. */
export function adoptPeer(request: IncomingMessage): void {
  const peer = request.headers[PEER_HEADER]
  delete request.headers[PEER_HEADER]
  // A connection carries one request.
  setPeerAddress(request.socket, typeof peer === 'string' ? peer : '')
}
