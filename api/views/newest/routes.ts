/** The route of the newest values of clients. */
import { Type } from 'typebox'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { NewestQuery, NewestValues } from './schema.ts'
import type { NewestService } from './service.ts'

export function newestRoutes(newest: NewestService): RoutePlugin {
  return (app) => {
    app.get(
      '/:domain_id/latest',
      {
        config: { action: 'read', scope: 'filtered' },
        schema: {
          tags: ['messages'],
          summary: 'Read the newest value of each of several clients',
          description:
            'One value of each client: that of the series which has the latest time, over the channels on which the caller has `subscribe`. A client that the caller may not read, and one without a value, is absent. A value is here some seconds after it was stored.',
          params: Type.Object({ domain_id: Type.String() }),
          querystring: NewestQuery,
          response: responses({ 200: NewestValues }, 'timeout'),
        },
      },
      async (request) => await newest.ofClients(request.principal, request.params.domain_id, request.query),
    )
  }
}
