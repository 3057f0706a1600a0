/** The search route. */
import { Type } from 'typebox'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { SearchQuery, SearchResults } from './schema.ts'
import type { SearchService } from './service.ts'

export function searchRoutes(search: SearchService): RoutePlugin {
  return (app) => {
    app.get(
      '/:domain_id/search',
      {
        config: { action: 'read', scope: 'filtered' },
        schema: {
          tags: ['domains'],
          summary: 'Search the entities of a domain',
          description:
            'Finds clients, channels, groups, tasks and workflows whose name contains the text, or whose id or tag equals it. Returns only what the caller may read.',
          params: Type.Object({ domain_id: Type.String() }),
          querystring: SearchQuery,
          response: responses({ 200: SearchResults }),
        },
      },
      async (request) => await search.search(request.principal, request.params.domain_id, request.query),
    )
  }
}
