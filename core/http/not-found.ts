/** Unknown path 404, known path with another method 405 with `Allow` (contract section 12). */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { ServiceError } from '../errors/index.ts'
import { sendError } from './error-handler.ts'

/** Must be called before any route is added: it watches them. Gives what answers a request that no route takes. */
export function registerNotFound(app: FastifyInstance): (request: FastifyRequest, reply: FastifyReply) => FastifyReply {
  const routes: { url: string; methods: string[] }[] = []
  // Made of the routes when the first path is unknown: a start needs none of it.
  let patterns: { pattern: RegExp; methods: string[] }[] | undefined
  app.addHook('onRoute', (route) => {
    routes.push({ url: route.url, methods: [route.method].flat() })
    patterns = undefined
  })
  const answer = (request: FastifyRequest, reply: FastifyReply) => {
    const path = request.url.split('?', 1)[0] ?? '/'
    patterns ??= routes.map(({ url, methods }) => ({ pattern: patternOf(url), methods }))
    const allowed = new Set(patterns.filter((route) => route.pattern.test(path)).flatMap((route) => route.methods))
    // A route that takes the method and found nothing at the path, such as a file, hands over here too.
    if (allowed.size === 0 || allowed.has(request.method))
      return sendError(request, reply, new ServiceError('not_found', 'no such path'))
    void reply.header('Allow', [...allowed].toSorted().join(', '))
    return sendError(
      request,
      reply,
      new ServiceError('method_not_allowed', `the path takes ${[...allowed].toSorted().join(', ')}`),
    )
  }
  app.setNotFoundHandler(answer)
  return answer
}

function patternOf(url: string): RegExp {
  const source = url
    .split('/')
    .map((part) =>
      part.startsWith(':') ? '[^/]+' : part === '*' ? '.*' : part.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'),
    )
    .join('/')
  return new RegExp(`^${source}/?$`)
}
