/** Routes of quotas (contract decision 76), for platform administrators. */
import { Type } from 'typebox'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { Id } from '../wire/index.ts'
import { DomainQuotas, NewDomainQuotas, NewUserQuotas, UserQuotas, UserUsage } from './schema.ts'
import type { QuotasService } from './service.ts'

const config = { action: 'quota.manage' }
const OfDomain = Type.Object({ domain_id: Id })
const OfUser = Type.Object({ user_id: Id })
const REPLACES =
  'Replaces all own values; absent values and `null` mean the default (`SKEIN_QUOTA_<NAME>`). It is in force in all processes within a second. Requires a platform administrator.'

export function quotaRoutes(quotas: QuotasService): RoutePlugin {
  return (app) => {
    app.get(
      '/domains/:domain_id/quotas',
      {
        config,
        schema: {
          tags: ['domains'],
          summary: 'View the quotas of a domain',
          description:
            'Requires a platform administrator. Users of the domain see them in `GET /domains/{domain_id}/usage`.',
          params: OfDomain,
          response: responses({ 200: DomainQuotas }, 'not_found'),
        },
      },
      async (request) => await quotas.getOfDomain(request.principal, request.params.domain_id),
    )
    app.put(
      '/domains/:domain_id/quotas',
      {
        config,
        schema: {
          tags: ['domains'],
          summary: 'Set the quotas of a domain',
          description: REPLACES,
          params: OfDomain,
          body: NewDomainQuotas,
          response: responses({ 200: DomainQuotas }, 'not_found'),
        },
      },
      async (request) => await quotas.setOfDomain(request.principal, request.params.domain_id, request.body),
    )
    app.get(
      '/users/:user_id/quotas',
      {
        config,
        schema: {
          tags: ['users'],
          summary: 'View the quotas of a user',
          description: 'Requires a platform administrator.',
          params: OfUser,
          response: responses({ 200: UserQuotas }, 'not_found'),
        },
      },
      async (request) => await quotas.getOfUser(request.principal, request.params.user_id),
    )
    app.put(
      '/users/:user_id/quotas',
      {
        config,
        schema: {
          tags: ['users'],
          summary: 'Set the quotas of a user',
          description: REPLACES,
          params: OfUser,
          body: NewUserQuotas,
          response: responses({ 200: UserQuotas }, 'not_found'),
        },
      },
      async (request) => await quotas.setOfUser(request.principal, request.params.user_id, request.body),
    )
    app.get(
      '/users/:user_id/usage',
      {
        config: { action: 'user.view' },
        schema: {
          tags: ['users'],
          summary: 'View the quotas of a user, and what is used of them',
          description: 'For the user, and for platform administrators.',
          params: OfUser,
          response: responses({ 200: UserUsage }, 'not_found'),
        },
      },
      async (request) => await quotas.usageOfUser(request.principal, request.params.user_id),
    )
  }
}
