/** Routes of maintenance windows. */
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { NewWindow, WindowPage, WindowQuery, WindowUpdate, WindowView, presentWindow } from './schema.ts'
import type { WindowsService } from './service.ts'

const tags = ['rules']
const PATH = '/:domain_id/maintenance-windows'
const ONE = `${PATH}/:window_id`
const inDomain = Type.Object({ domain_id: Id })
const params = Type.Object({ domain_id: Id, window_id: Id })

type App = Parameters<RoutePlugin>[0]

export function windowRoutes(windows: WindowsService): RoutePlugin {
  return (app) => {
    manyWindows(app, windows)
    oneWindow(app, windows)
  }
}

function manyWindows(app: App, windows: WindowsService): void {
  app.post(
    PATH,
    {
      config: { action: 'rule_create', location: '/{domain_id}/maintenance-windows/{id}' },
      schema: {
        tags,
        summary: 'Create a maintenance window',
        description:
          'During it, rules raise alarms and neither send mails nor call webhooks. What is still active at its end is sent then. Also requires `client_read` where it names clients, groups or tags.',
        params: inDomain,
        body: NewWindow,
        response: responses({ 201: WindowView }, 'conflict', 'quota_exceeded'),
      },
    },
    async ({ principal, params: { domain_id: domainId }, body }, reply) => {
      const made = await windows.create(principal, domainId, body)
      void reply.code(201).header('Location', `/${domainId}/maintenance-windows/${made.id}`)
      return presentWindow(made, domainId)
    },
  )
  app.get(
    PATH,
    {
      config: { action: 'rule_read' },
      schema: {
        tags,
        summary: 'List maintenance windows',
        params: inDomain,
        querystring: WindowQuery,
        response: responses({ 200: WindowPage }),
      },
    },
    async ({ principal, params: { domain_id: domainId }, query }) => {
      const { items, ...page } = await windows.list(principal, domainId, query)
      return { ...page, maintenance_windows: items.map((one) => presentWindow(one, domainId)) }
    },
  )
}

function oneWindow(app: App, windows: WindowsService): void {
  app.get(
    ONE,
    {
      config: { action: 'rule_read' },
      schema: {
        tags,
        summary: 'View a maintenance window',
        params,
        response: responses({ 200: WindowView }, 'not_found'),
      },
    },
    async ({ principal, params: { domain_id: domainId, window_id: id } }) =>
      presentWindow(await windows.get(principal, domainId, id), domainId),
  )
  app.patch(
    ONE,
    {
      config: { action: 'rule_update' },
      schema: {
        tags,
        summary: 'Change a maintenance window; absent fields are unchanged',
        description: 'What it silenced, and no longer does, is sent at once.',
        params,
        body: WindowUpdate,
        response: responses({ 200: WindowView }, 'not_found', 'conflict'),
      },
    },
    async ({ principal, params: { domain_id: domainId, window_id: id }, body }) =>
      presentWindow(await windows.update(principal, domainId, id, body), domainId),
  )
  app.delete(
    ONE,
    {
      config: { action: 'rule_delete' },
      schema: {
        tags,
        summary: 'Delete a maintenance window; what it silenced is sent at once',
        params,
        response: responses({ 204: NoBody }, 'not_found'),
      },
    },
    async ({ principal, params: { domain_id: domainId, window_id: id } }, reply) => {
      await windows.remove(principal, domainId, id)
      return await reply.code(204).send()
    },
  )
}
