/** Domain routes (contract section 1.2). */
import { Type } from 'typebox'
import { NoBody, responses } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import type { Page } from '#core/page.ts'
import { Id } from '../wire/index.ts'
import {
  Domain,
  DomainPage,
  DomainQuery,
  DomainUpdate,
  DomainView,
  NewDomain,
  presentDomain,
  presentDomainWithRoles,
  presentListedDomain,
} from './schema.ts'
import type { DomainsService, ListedDomain } from './service.ts'
import type { DomainStatusService } from './status.ts'

const Params = Type.Object({ domain_id: Id })

const STATUS_ROUTES = [
  {
    verb: 'enable',
    action: 'enable',
    summary: 'Enable a domain',
    description: 'Idempotent. Restores a deleted domain during its grace of 30 days.',
  },
  {
    verb: 'disable',
    action: 'disable',
    summary: 'Disable a domain',
    description: 'Idempotent. Only its administrators may enter it, and it takes and gives no messages.',
  },
  {
    verb: 'freeze',
    action: 'domain.freeze',
    summary: 'Freeze a domain',
    description:
      'Idempotent. By the platform administrator, who alone may enter it then; it takes and gives no messages.',
  },
] as const

export function domainRoutes(domains: DomainsService, statuses: DomainStatusService): RoutePlugin {
  return (app) => {
    app.post(
      '/domains',
      {
        config: { action: 'domain.create' },
        schema: {
          tags: ['domains'],
          summary: 'Create a domain',
          body: NewDomain,
          response: responses(
            { 201: Domain },
            'unauthenticated',
            'forbidden',
            'conflict',
            'unsupported_media_type',
            'too_large',
          ),
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
          description: 'The platform administrator sees every domain. Each item carries the role of the caller in it.',
          querystring: DomainQuery,
          response: responses({ 200: DomainPage }, 'unauthenticated'),
        },
      },
      async (request) => {
        const page = await domains.list(request.principal, request.query)
        return presentPage(page, request.query.only_total)
      },
    )
    app.get(
      '/users/:user_id/domains',
      {
        config: { action: 'user.domains' },
        schema: {
          tags: ['domains'],
          summary: 'List the domains in which a user has a role',
          description:
            'Each item carries the role of that user. The user himself and the platform administrator see all of them, ' +
            'an administrator of some of his domains those.',
          params: Type.Object({ user_id: Id }),
          querystring: DomainQuery,
          response: responses({ 200: DomainPage }, 'unauthenticated', 'forbidden', 'not_found'),
        },
      },
      async (request) => {
        const page = await domains.listOfUser(request.principal, request.params.user_id, request.query)
        return presentPage(page, request.query.only_total)
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
          querystring: DomainView,
          response: responses({ 200: Domain }, 'unauthenticated', 'forbidden', 'not_found'),
        },
      },
      async (request) => {
        const { principal, params, query } = request
        if (query.roles !== true) return presentDomain(await domains.get(principal, params.domain_id))
        const { domain, roles } = await domains.getWithRoles(principal, params.domain_id)
        return presentDomainWithRoles(domain, principal.id, roles)
      },
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
    for (const { verb, action, summary, description } of STATUS_ROUTES) {
      app.post(
        `/domains/:domain_id/${verb}`,
        {
          config: { action },
          schema: {
            tags: ['domains'],
            summary,
            description,
            params: Params,
            response: responses({ 200: Domain }, 'unauthenticated', 'forbidden', 'not_found'),
          },
        },
        async (request) => presentDomain(await statuses[verb](request.principal, request.params.domain_id)),
      )
    }
    app.delete(
      '/domains/:domain_id',
      {
        config: { action: 'delete' },
        schema: {
          tags: ['domains'],
          summary: 'Delete a domain',
          description:
            'Everything of it answers 403 from now on. During 30 days its administrator restores it by enabling it; then it ' +
            'goes with everything of it.',
          params: Params,
          response: responses({ 204: NoBody }, 'unauthenticated', 'forbidden', 'not_found'),
        },
      },
      async (request, reply) => {
        await statuses.remove(request.principal, request.params.domain_id)
        return await reply.code(204).send()
      },
    )
  }
}

function presentPage({ total, offset, limit, items }: Page<ListedDomain>, isOnlyTotal: boolean | undefined) {
  if (isOnlyTotal === true) return { total, domains: [] }
  return { total, offset, limit, domains: items.map(presentListedDomain) }
}
