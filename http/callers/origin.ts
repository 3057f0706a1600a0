/**
 * Rules for browsers (contract decisions 42 and 49): pages of listed origins may call the API. A page of any other origin may not
 * change anything, independent of the content type, because a browser sends such requests without a preflight.
 */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { ServiceError } from '#core/errors/index.ts'
import { RESPONSE_HEADERS } from '../answers/security-headers.ts'

const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])
/** How long a browser may cache the response to a preflight. */
const PREFLIGHT_AGE_SECONDS = 600

type Received = {
  headers: FastifyRequest['headers']
  /** Without it, only `X-Forwarded-Proto` tells that the request came over TLS. */
  socket?: object | undefined
}

/**
 * True when the request comes from a page of another, unlisted origin: of another scheme, host or port. A request without TLS may come
 * from a page of https, because a reverse proxy may have ended TLS. A request over TLS never comes from a page of http, which the
 * network can change.
 */
export function isForeignOrigin(request: Received, allowed: readonly string[]): boolean {
  const { origin, host } = request.headers
  if (origin === undefined || allowed.includes(origin)) return false
  if (host === undefined || !URL.canParse(origin)) return true
  const page = new URL(origin)
  if (page.protocol !== 'https:' && (page.protocol !== 'http:' || isSecure(request))) return true
  const own = `${page.protocol}//${host}`
  return !URL.canParse(own) || new URL(own).origin !== page.origin
}

/** A page of another origin cannot set the header: its preflight is refused. So the header counts from every peer. */
function isSecure({ headers, socket }: Received): boolean {
  const forwarded = String(headers['x-forwarded-proto'] ?? '').split(',', 1)[0]
  return (
    (socket !== undefined && 'encrypted' in socket && socket.encrypted === true) ||
    forwarded?.trim().toLowerCase() === 'https'
  )
}

/** Headers of every response. */
function originHeaders(allowed: readonly string[]): Record<string, string> {
  return {
    ...RESPONSE_HEADERS,
    'Access-Control-Expose-Headers': 'Location',
    ...(allowed.length > 0 ? { Vary: 'Origin' } : {}),
  }
}

/** Applies the rules to a request: an error refuses it; true: it was a preflight and is answered. */
export type OriginRules = (request: FastifyRequest, reply: FastifyReply) => ServiceError | boolean

export function createOriginRules(allowed: readonly string[]): OriginRules {
  const always = originHeaders(allowed)
  return (request, reply) => {
    void reply.headers(always)
    const { origin } = request.headers
    if (origin !== undefined) {
      if (isForeignOrigin(request, allowed)) {
        if (SAFE_METHODS.has(request.method)) return false
        return new ServiceError('forbidden', 'requests from pages of this origin are not allowed')
      }
      void reply.header('Access-Control-Allow-Origin', origin)
    }
    if (request.method !== 'OPTIONS' || request.headers['access-control-request-method'] === undefined) return false
    void reply
      .header('Access-Control-Allow-Methods', 'GET, POST, PUT, PATCH, DELETE')
      .header('Access-Control-Allow-Headers', 'Authorization, Content-Type, Idempotency-Key, Last-Event-ID')
      .header('Access-Control-Max-Age', String(PREFLIGHT_AGE_SECONDS))
      .code(204)
      .send()
    return true
  }
}
