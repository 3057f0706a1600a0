/** The groups that a user reaches: the groups' own listing, asked by its path (contract 4.3). */
import { Type } from 'typebox'
import { responses } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import { GroupPage, GroupQuery, presentPage } from '../groups/index.ts'
import type { GroupsService } from '../groups/index.ts'
import { Id } from '../wire/index.ts'

const PATHS = [
  { path: '/:domain_id/users/:user_id/groups', params: Type.Object({ domain_id: Id, user_id: Id }) },
  { path: '/users/:user_id/groups', params: Type.Object({ user_id: Id }) },
] as const

export function userGroupRoutes(groups: Pick<GroupsService, 'list'>): RoutePlugin {
  return (app) => {
    for (const { path, params } of PATHS) {
      app.get(
        path,
        {
          config: { action: 'group_read' },
          schema: {
            tags: ['assignments'],
            summary: 'List the groups that a user may read',
            description: 'To the user himself, and to administrators of the domain and of the platform.',
            params,
            querystring: GroupQuery,
            response: responses({ 200: GroupPage }, 'unauthenticated', 'forbidden', 'unprocessable'),
          },
        },
        async (request) => {
          const { domain_id: domainId, user_id: user } = request.params as { domain_id?: string; user_id: string }
          return presentPage(await groups.list(request.principal, domainId, { ...request.query, user }), request.query)
        },
      )
    }
  }
}
