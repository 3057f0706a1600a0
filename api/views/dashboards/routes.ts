/** Routes of dashboards and preferences. */
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import type { ScopeOperation } from '#api/identity/index.ts'
import { NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import {
  Dashboard,
  DashboardPage,
  DashboardQuery,
  DashboardUpdate,
  NewDashboard,
  NewPreferences,
  Preferences,
  presentDashboard,
  presentListed,
  presentPreferences,
} from './schema.ts'
import type { DashboardsService } from './service.ts'

const PATH = '/:domain_id/dashboards'
const ONE = `${PATH}/:dashboard_id`
const InDomain = Type.Object({ domain_id: Type.String() })
const Params = Type.Object({ domain_id: Type.String(), dashboard_id: Id })
/** No scope of a personal access token covers preferences. */
const config = { action: 'read' }
const scoped = (operation: ScopeOperation) => ({ ...config, scope: { type: 'dashboards', operation } as const })
const tags = ['dashboards']

export function dashboardRoutes(dashboards: DashboardsService): RoutePlugin {
  return (app) => {
    app.post(
      PATH,
      {
        config: { ...scoped('create'), location: '/{domain_id}/dashboards/{id}' },
        schema: {
          tags,
          summary: 'Create a dashboard',
          params: InDomain,
          body: NewDashboard,
          response: responses({ 201: Dashboard }, 'conflict'),
        },
      },
      async (request, reply) => {
        const { domain_id: domainId } = request.params
        const made = await dashboards.create(request.principal, domainId, request.body)
        void reply.code(201).header('Location', `/${domainId}/dashboards/${made.id}`)
        return presentDashboard(made, request.principal.key)
      },
    )
    app.get(
      PATH,
      {
        config: scoped('list'),
        schema: {
          tags,
          summary: 'List dashboards',
          description: 'Those of the caller, then those that others share in the domain; without their content.',
          params: InDomain,
          querystring: DashboardQuery,
          response: responses({ 200: DashboardPage }),
        },
      },
      async (request) => {
        const { principal, params, query } = request
        const { items, ...page } = await dashboards.list(principal, params.domain_id, query)
        return { ...page, dashboards: items.map((item) => presentListed(item, principal.key)) }
      },
    )
    app.get(
      ONE,
      {
        config: scoped('read'),
        schema: {
          tags,
          summary: 'View a dashboard',
          params: Params,
          response: responses({ 200: Dashboard }, 'not_found'),
        },
      },
      async ({ principal, params }) =>
        presentDashboard(await dashboards.get(principal, params.domain_id, params.dashboard_id), principal.key),
    )
    app.patch(
      ONE,
      {
        config: scoped('update'),
        schema: {
          tags,
          summary: 'Update a dashboard',
          description: 'Only its owner can change it.',
          params: Params,
          body: DashboardUpdate,
          response: responses({ 200: Dashboard }, 'not_found'),
        },
      },
      async ({ principal, params, body }) =>
        presentDashboard(
          await dashboards.update(principal, params.domain_id, params.dashboard_id, body),
          principal.key,
        ),
    )
    app.delete(
      ONE,
      {
        config: scoped('delete'),
        schema: {
          tags,
          summary: 'Delete a dashboard',
          description: 'Its owner can delete it; administrators of the domain can delete shared ones.',
          params: Params,
          response: responses({ 204: NoBody }, 'not_found'),
        },
      },
      async (request, reply) => {
        await dashboards.remove(request.principal, request.params.domain_id, request.params.dashboard_id)
        return await reply.code(204).send()
      },
    )
    app.get(
      '/:domain_id/preferences',
      {
        config,
        schema: {
          tags,
          summary: 'View the preferences of the caller in a domain',
          params: InDomain,
          response: responses({ 200: Preferences }),
        },
      },
      async ({ principal, params }) => presentPreferences(await dashboards.preferences(principal, params.domain_id)),
    )
    app.put(
      '/:domain_id/preferences',
      {
        config,
        schema: {
          tags,
          summary: 'Replace the preferences of the caller in a domain',
          params: InDomain,
          body: NewPreferences,
          response: responses({ 200: Preferences }),
        },
      },
      async ({ principal, params, body }) =>
        presentPreferences(await dashboards.setPreferences(principal, params.domain_id, body.preferences)),
    )
  }
}
