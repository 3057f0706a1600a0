/** 404 for an unknown path; 405 with `Allow` for a known path with another method (contract section 12). */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { ServiceError } from '#core/errors/index.ts'
import { sendError } from './error-handler.ts'

/** Call it before any route is added, because it observes them. Returns the handler for requests without a route. */
export function registerNotFound(app: FastifyInstance): (request: FastifyRequest, reply: FastifyReply) => FastifyReply {
  const routes: { url: string; methods: string[] }[] = []
  // Built at the first unknown path, because a start does not need it.
  let patterns: { pattern: RegExp; methods: string[] }[] | undefined
  app.addHook('onRoute', (route) => {
    routes.push({ url: route.url, methods: [route.method].flat() })
    patterns = undefined
  })
  const answer = (request: FastifyRequest, reply: FastifyReply) => {
    const path = request.url.split('?', 1)[0] ?? '/'
    patterns ??= routes.map(({ url, methods }) => ({ pattern: patternOf(url), methods }))
    const allowed = new Set(patterns.filter((route) => route.pattern.test(path)).flatMap((route) => route.methods))
    // A route that matches the path but found nothing, such as a file, calls this handler too.
    if (allowed.size === 0 || allowed.has(request.method))
      return sendError(request, reply, new ServiceError('not_found', 'no such path'))
    void reply.header('Allow', [...allowed].toSorted().join(', '))
    return sendError(
      request,
      reply,
      new ServiceError('method_not_allowed', `the path accepts ${[...allowed].toSorted().join(', ')}`),
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
