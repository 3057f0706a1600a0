/** Usage of a domain (contract decision 54) and telemetry of a client (contract section 10) over HTTP. */
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { ClientTelemetry, DomainUsage } from '#api/messages/index.ts'
import type { UsageService } from '#api/messages/index.ts'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'

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
            'Messages and records per day and in total, counted within seconds of their arrival, deleted ones included; and the quotas of the domain.',
          params: Type.Object({ domain_id: Type.String() }),
          response: responses({ 200: DomainUsage }),
        },
      },
      async (request) => await usage.ofDomain(request.principal, request.params.domain_id),
    )
    app.get(
      '/:domain_id/journal/client/:client_id/telemetry',
      {
        config: { action: 'read' },
        schema: {
          tags: ['journal'],
          summary: 'View when a client was seen, whether it is online, and how much it sent and received',
          description:
            'Counted within seconds over all protocols and nodes. A client that publishes without a session, over HTTP say, is seen and never online.',
          params: Type.Object({ domain_id: Id, client_id: Id }),
          response: responses({ 200: ClientTelemetry }, 'not_found'),
        },
      },
      async (request) => {
        const { domain_id: domainId, client_id: clientId } = request.params
        return await usage.ofClient(request.principal, domainId, clientId)
      },
    )
  }
}
