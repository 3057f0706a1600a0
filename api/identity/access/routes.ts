/** The route that explains a decision. */
import { Type } from 'typebox'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { Id } from '../wire/index.ts'
import type { Explainer } from './explain.ts'
import { AccessAnswer, AccessDecisions, AccessQuestion, AccessQuestions } from './schema.ts'

export function accessRoutes(explainer: Explainer): RoutePlugin {
  return (app) => {
    app.get(
      '/:domain_id/access',
      {
        config: { action: 'view_role_users', scope: 'filtered' },
        schema: {
          tags: ['roles'],
          summary: 'Explain the access of a user to an entity',
          description:
            'Returns the roles that determine the decision, the groups on the path and the changes that would alter it. Users may request their own access. ' +
            'The access of other users requires `view_role_users` on the entity or the role of a domain administrator.',
          params: Type.Object({ domain_id: Id }),
          querystring: AccessQuestion,
          response: responses({ 200: AccessAnswer }, 'not_found'),
        },
      },
      async (request) => await explainer.explain(request.principal, request.params.domain_id, request.query),
    )
    app.post(
      '/:domain_id/access/check',
      {
        config: { action: 'read', isReading: true, scope: 'filtered' },
        schema: {
          tags: ['roles'],
          summary: 'Decide many questions of access',
          description:
            'Up to 100 questions, each with the rules of `GET /{domain_id}/access`. A question that cannot be answered has `error` and `message`, and is not allowed.',
          params: Type.Object({ domain_id: Id }),
          body: AccessQuestions,
          response: responses({ 200: AccessDecisions }),
        },
      },
      async ({ principal, params, body }) => ({
        answers: await explainer.decide(principal, params.domain_id, body.questions),
      }),
    )
  }
}
