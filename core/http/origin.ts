/**
 * Rules for browsers (contract decisions 42 and 49): pages of listed origins may call the API. A page of any other origin may not
 * change anything, independent of the content type, because a browser sends such requests without a preflight.
 */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { ServiceError } from '../errors/index.ts'
import { RESPONSE_HEADERS } from './security-headers.ts'

const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])
/** How long a browser may cache the response to a preflight. */
const PREFLIGHT_AGE_SECONDS = 600

/** True when the request comes from a page of another, unlisted origin. */
export function isForeignOrigin(request: Pick<FastifyRequest, 'headers'>, allowed: readonly string[]): boolean {
  const { origin, host } = request.headers
  if (origin === undefined) return false
  if (allowed.includes(origin)) return false
  return !URL.canParse(origin) || host === undefined || new URL(origin).host !== host
}

/** Headers of every response. */
function originHeaders(allowed: readonly string[]): Record<string, string> {
  return {
    ...RESPONSE_HEADERS,
    'Access-Control-Expose-Headers': 'Location',
    ...(allowed.length > 0 ? { Vary: 'Origin' } : {}),
  }
}

export function registerOriginRules(app: FastifyInstance, allowed: readonly string[]): void {
  const always = originHeaders(allowed)
  app.addHook('onRequest', (request, reply, done) => {
    void reply.headers(always)
    const { origin } = request.headers
    if (origin !== undefined) {
      if (isForeignOrigin(request, allowed)) {
        if (SAFE_METHODS.has(request.method)) return done()
        return done(new ServiceError('forbidden', 'requests from pages of this origin are not allowed'))
      }
      void reply.header('Access-Control-Allow-Origin', origin)
    }
    if (request.method === 'OPTIONS' && request.headers['access-control-request-method'] !== undefined) {
      void reply
        .header('Access-Control-Allow-Methods', 'GET, POST, PUT, PATCH, DELETE')
        .header('Access-Control-Allow-Headers', 'Authorization, Content-Type, Idempotency-Key, Last-Event-ID')
        .header('Access-Control-Max-Age', String(PREFLIGHT_AGE_SECONDS))
        .code(204)
        .send()
      return
    }
    done()
  })
}
