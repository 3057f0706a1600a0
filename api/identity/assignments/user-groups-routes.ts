/** The groups that a user may read: the listing of groups under the path of a user (contract 4.3). */
import { Type } from 'typebox'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
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
            description: 'Requires the user themselves, an administrator of the domain or a platform administrator.',
            params,
            querystring: GroupQuery,
            response: responses({ 200: GroupPage }, 'unprocessable'),
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
