/** Domain routes (contract section 1.2). */
import { Type } from 'typebox'
import { NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
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
    description: 'Idempotent. Restores a deleted domain during its grace period of 30 days.',
  },
  {
    verb: 'disable',
    action: 'disable',
    summary: 'Disable a domain',
    description:
      'Idempotent. Only administrators of the domain can access it. It neither accepts nor delivers messages.',
  },
  {
    verb: 'freeze',
    action: 'domain.freeze',
    summary: 'Freeze a domain',
    description:
      'Idempotent. Requires a platform administrator. Only platform administrators can access the domain. It neither accepts nor delivers messages.',
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
          response: responses({ 201: Domain }, 'conflict', 'unprocessable'),
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
          description: 'Platform administrators see every domain. Each item contains the role of the caller in it.',
          querystring: DomainQuery,
          response: responses({ 200: DomainPage }),
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
            'Each item contains the role of that user. The user themselves and platform administrators see all domains. ' +
            'Administrators of some of these domains see those.',
          params: Type.Object({ user_id: Id }),
          querystring: DomainQuery,
          response: responses({ 200: DomainPage }, 'not_found'),
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
          response: responses({ 200: Domain }, 'not_found'),
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
          summary: 'Change a domain; absent fields are unchanged',
          params: Params,
          body: DomainUpdate,
          response: responses({ 200: Domain }, 'not_found', 'conflict'),
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
            response: responses({ 200: Domain }, 'not_found'),
          },
        },
        async (request) => presentDomain(await statuses[verb](request.principal, request.params.domain_id)),
      )
    }
    app.delete(
      '/domains/:domain_id',
      {
        config: { action: 'delete', dryRun: true },
        schema: {
          tags: ['domains'],
          summary: 'Delete a domain',
          description:
            'All paths of the domain return 403 afterwards. For 30 days its administrators can restore it with `enable`. Then the domain ' +
            'and all of its entities are removed.',
          params: Params,
          response: responses({ 204: NoBody }, 'not_found'),
        },
      },
      async (request, reply) => {
        await statuses.remove(request.principal, request.params.domain_id)
        return await reply.code(204).send()
      },
    )
  }
}

function presentPage({ total, offset, limit, items, next }: Page<ListedDomain>, isOnlyTotal: boolean | undefined) {
  if (isOnlyTotal === true) return { total, domains: [] }
  return { total, offset, limit, domains: items.map(presentListedDomain), next }
}
