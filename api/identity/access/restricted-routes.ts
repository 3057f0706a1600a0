/** Restricts credentials on routes, with a hook; see `route-rules.ts`. */
import type { FastifyInstance } from 'fastify'
import type { UserPrincipal } from './principal.ts'
import { requireRouteAllowed } from './route-rules.ts'

/** Rooms can share an app: it gets the hook once. */
const prepared = new WeakSet<FastifyInstance>()

/** Call it before the routes are added. Calling it again for the same app has no effect. */
export function registerRouteRules(app: FastifyInstance): void {
  if (prepared.has(app)) return
  prepared.add(app)
  app.addHook('preHandler', (request, _reply, done) => {
    try {
      // Public routes have no principal.
      const principal = request.principal as UserPrincipal | undefined
      if (principal !== undefined) {
        const { user_id: userId } = request.params as { user_id?: string }
        const { url = '', config } = request.facts
        requireRouteAllowed({ principal, route: { url, action: config.action ?? '', scope: config.scope }, userId })
      }
      done()
    } catch (error) {
      done(error as Error)
    }
  })
}
