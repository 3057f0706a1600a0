/** Unknown path 404, known path with another method 405 with `Allow` (contract section 12). */
import type { FastifyInstance } from 'fastify'
import { ServiceError } from '../errors/index.ts'
import { sendError } from './error-handler.ts'

/** Must be called before any route is added: it watches them. */
export function registerNotFound(app: FastifyInstance): void {
  const routes: { pattern: RegExp; methods: string[] }[] = []
  app.addHook('onRoute', (route) => {
    const source = route.url
      .split('/')
      .map((part) =>
        part.startsWith(':') ? '[^/]+' : part === '*' ? '.*' : part.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'),
      )
      .join('/')
    routes.push({ pattern: new RegExp(`^${source}/?$`), methods: [route.method].flat() })
  })
  app.setNotFoundHandler((request, reply) => {
    const path = request.url.split('?', 1)[0] ?? '/'
    const allowed = new Set(routes.filter((route) => route.pattern.test(path)).flatMap((route) => route.methods))
    // A route that takes the method and found nothing at the path, such as a file, hands over here too.
    if (allowed.size === 0 || allowed.has(request.method))
      return sendError(request, reply, new ServiceError('not_found', 'no such path'))
    void reply.header('Allow', [...allowed].toSorted().join(', '))
    return sendError(
      request,
      reply,
      new ServiceError('method_not_allowed', `the path takes ${[...allowed].toSorted().join(', ')}`),
    )
  })
}
