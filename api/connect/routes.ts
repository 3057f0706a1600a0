/** `GET /connect`: the addresses of every protocol, for the commands that the console and tools show. */
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { addressesOf } from './addresses.ts'
import type { Reachable } from './addresses.ts'
import { Addresses } from './schema.ts'

export function connectRoutes(reachable: Reachable): RoutePlugin {
  return (app) => {
    app.get(
      '/connect',
      {
        config: { isPublic: true },
        schema: {
          summary: 'Shows where devices and workers connect',
          tags: ['health'],
          response: responses({ 200: Addresses }),
        },
      },
      (request) => addressesOf(reachable, `${request.protocol}://${request.host}`),
    )
  }
}
