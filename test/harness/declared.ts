/** What an answer has and what its route declares are the same: else the answer of any test is a failure. */
import type { HttpApp } from '#http/index.ts'

const CREATED = new Set([201, 202])

/** Must be called before routes are registered. */
export function requireDeclaredLocations(app: HttpApp): void {
  app.addHook('onSend', (request, reply, _payload, done) => {
    const isSet = reply.getHeader('location') !== undefined
    const isDeclared = request.routeOptions.config?.location !== undefined
    if (!CREATED.has(reply.statusCode) || isSet === isDeclared) return done()
    const route = `${request.method} ${request.routeOptions.url}`
    done(
      new Error(`${route} ${isSet ? 'sets a Location that config.location does not declare' : 'lacks its Location'}`),
    )
  })
}
