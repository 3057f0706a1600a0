/**
 * HEAD is GET without a body (RFC 9110 section 9.3.2): the route of GET answers it, and Node leaves the body out. A route of its
 * own for each would be a third of all routes, which take a quarter of a start to register.
 */
import type { IncomingMessage } from 'node:http'
import type { FastifyInstance } from 'fastify'
import { ServiceError } from '../errors/index.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The answer of GET does not end, so that HEAD would open what nobody reads. */
    refusesHead?: boolean
  }
}

const asked = new WeakSet<IncomingMessage>()

/** Fastify's `rewriteUrl`, the one place before a route is looked up: the address stays as it is. */
export function routeHeadAsGet(request: IncomingMessage): string {
  if (request.method === 'HEAD') {
    asked.add(request)
    request.method = 'GET'
  }
  return request.url ?? '/'
}

/** Must be registered before other hooks of requests: from here on the request is what was asked. */
export function registerHead(app: FastifyInstance): void {
  app.addHook('onRequest', (request, reply, done) => {
    if (!asked.delete(request.raw)) return done()
    request.raw.method = 'HEAD'
    if (request.routeOptions.config.refusesHead !== true) return done()
    void reply.header('Allow', 'GET')
    done(new ServiceError('method_not_allowed', 'the path takes GET'))
  })
}

/** What a route takes, as `Allow` names it. */
export function methodsTaken({ method, config }: { method: string | string[]; config?: { refusesHead?: boolean } }) {
  const methods = [method].flat()
  return methods.includes('GET') && config?.refusesHead !== true ? [...methods, 'HEAD'] : methods
}
