/** Domain routes (contract section 1.2). */
import { Type } from 'typebox'
import { responses } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import { Id } from '../wire/index.ts'
import { Domain, DomainPage, DomainQuery, DomainUpdate, NewDomain, presentDomain } from './schema.ts'
import type { DomainsService } from './service.ts'

const Params = Type.Object({ domain_id: Id })

export function domainRoutes(domains: DomainsService): RoutePlugin {
  return (app) => {
    app.post(
      '/domains',
      {
        config: { action: 'domain.create' },
        schema: {
          tags: ['domains'],
          summary: 'Create a domain',
          body: NewDomain,
          response: responses({ 201: Domain }, 'unauthenticated', 'conflict', 'unsupported_media_type', 'too_large'),
        },
      },
      async (request, reply) => {
        void reply.code(201)
        return presentDomain(await domains.create(request.principal, request.body))
      },
    )
    app.get(
      '/domains',
      {
        config: { action: 'domain.list' },
        schema: {
          tags: ['domains'],
          summary: 'List the domains in which the caller has a role',
          querystring: DomainQuery,
          response: responses({ 200: DomainPage }, 'unauthenticated'),
        },
      },
      async (request) => {
        const page = await domains.list(request.principal, request.query)
        if (request.query.only_total === true) return { total: page.total }
        return { total: page.total, offset: page.offset, limit: page.limit, domains: page.items.map(presentDomain) }
      },
    )
    app.get(
      '/domains/:domain_id',
      {
        config: { action: 'read' },
        schema: {
          tags: ['domains'],
          summary: 'View a domain',
          params: Params,
          response: responses({ 200: Domain }, 'unauthenticated', 'forbidden', 'not_found'),
        },
      },
      async (request) => presentDomain(await domains.get(request.principal, request.params.domain_id)),
    )
    app.patch(
      '/domains/:domain_id',
      {
        config: { action: 'update' },
        schema: {
          tags: ['domains'],
          summary: 'Change a domain; absent fields stay',
          params: Params,
          body: DomainUpdate,
          response: responses(
            { 200: Domain },
            'unauthenticated',
            'forbidden',
            'not_found',
            'conflict',
            'unsupported_media_type',
            'too_large',
          ),
        },
      },
      async (request) => presentDomain(await domains.update(request.principal, request.params.domain_id, request.body)),
    )
    for (const [verb, status] of [
      ['enable', 'enabled'],
      ['disable', 'disabled'],
    ] as const) {
      app.post(
        `/domains/:domain_id/${verb}`,
        {
          config: { action: verb },
          schema: {
            tags: ['domains'],
            summary: `${verb === 'enable' ? 'Enable' : 'Disable'} a domain`,
            params: Params,
            response: responses({ 200: Domain }, 'unauthenticated', 'forbidden', 'not_found'),
          },
        },
        async (request) => presentDomain(await domains.setStatus(request.principal, request.params.domain_id, status)),
      )
    }
  }
}
