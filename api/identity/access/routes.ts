/** The route that explains a decision. */
import { Type } from 'typebox'
import { responses } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import { Id } from '../wire/index.ts'
import type { Explainer } from './explain.ts'
import { AccessAnswer, AccessQuestion } from './schema.ts'

export function accessRoutes(explainer: Explainer): RoutePlugin {
  return (app) => {
    app.get(
      '/:domain_id/access',
      {
        config: { action: 'view_role_users' },
        schema: {
          tags: ['roles'],
          summary: 'Explain why a user may do something, or may not',
          description:
            'Names the roles that decide, the groups on the way and what would change it. Every user may ask about themselves; ' +
            'about others those with view_role_users on the entity, and the administrators of the domain.',
          params: Type.Object({ domain_id: Id }),
          querystring: AccessQuestion,
          response: responses({ 200: AccessAnswer }, 'unauthenticated', 'forbidden', 'not_found'),
        },
      },
      async (request) => await explainer.explain(request.principal, request.params.domain_id, request.query),
    )
  }
}
