/** The overviews of a domain and of the platform. */
import { Type } from 'typebox'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { DomainOverview, OverviewQuery, PlatformOverview } from './schema.ts'
import type { OverviewService } from './service.ts'

export function overviewRoutes(overview: OverviewService): RoutePlugin {
  return (app) => {
    app.get(
      '/:domain_id/overview',
      {
        config: { action: 'read', scope: 'filtered' },
        schema: {
          tags: ['domains'],
          summary: 'Show what is going on in a domain',
          description:
            'Devices that are online, messages per second, tasks, runs, workers, dead letters, and the last changes: those that the caller may read.',
          params: Type.Object({ domain_id: Type.String() }),
          querystring: OverviewQuery,
          response: responses({ 200: DomainOverview }),
        },
      },
      async ({ principal, params, query }) => await overview.ofDomain(principal, params.domain_id, query.window),
    )
    app.get(
      '/overview',
      {
        config: { action: 'platform.overview' },
        schema: {
          tags: ['domains'],
          summary: 'Show what is going on on the platform',
          description: 'Over all domains. Requires a platform administrator.',
          querystring: OverviewQuery,
          response: responses({ 200: PlatformOverview }),
        },
      },
      async ({ principal, query }) => await overview.ofPlatform(principal, query.window),
    )
  }
}
