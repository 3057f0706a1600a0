/** Usage of a domain over HTTP (contract decision 54). */
import { Type } from 'typebox'
import { DomainUsage } from '#api/messages/index.ts'
import type { UsageService } from '#api/messages/index.ts'
import { responses } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'

export function usageRoutes(usage: UsageService): RoutePlugin {
  return (app) => {
    app.get(
      '/domains/:domain_id/usage',
      {
        config: { action: 'read' },
        schema: {
          tags: ['domains'],
          summary: 'View how much a domain has taken in',
          description:
            'Messages and records per day and in total, counted within seconds of their arrival. What is deleted stays counted.',
          params: Type.Object({ domain_id: Type.String() }),
          response: responses({ 200: DomainUsage }, 'unauthenticated', 'forbidden'),
        },
      },
      async (request) => await usage.ofDomain(request.principal, request.params.domain_id),
    )
  }
}
