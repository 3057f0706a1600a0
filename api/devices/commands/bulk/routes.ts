/** Routes of commands to many clients. */
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import { idempotencyKeyOf } from '../idempotency.ts'
import { IdempotencyHeaders } from '../schema.ts'
import { BulkCommand, BulkPage, BulkQuery, NewBulk, presentBulk } from './schema.ts'
import type { BulkCommandsService } from './service.ts'

const tags = ['commands']
const PATH = '/:domain_id/clients/commands'
const ONE = `${PATH}/:bulk_id`
const inDomain = Type.Object({ domain_id: Id })
const params = Type.Object({ domain_id: Id, bulk_id: Id })

export function bulkCommandRoutes(bulks: BulkCommandsService): RoutePlugin {
  return (app) => {
    addCollectionRoutes(app, bulks)
    addBulkRoutes(app, bulks)
  }
}

function addCollectionRoutes(app: HttpApp, bulks: BulkCommandsService): void {
  app.post(
    PATH,
    {
      config: { action: 'client_command', location: '/{domain_id}/clients/commands/{id}' },
      schema: {
        tags,
        summary: 'Give a command to many clients',
        description:
          'To the enabled clients with a tag, or directly in a group, as they are now; at most 100,000. `at_once` and `per_minute` are the ramp. With `stop_failed_percent`, no more commands are given when too many did not succeed.',
        params: inDomain,
        headers: IdempotencyHeaders,
        body: NewBulk,
        response: responses({ 201: BulkCommand }, 'unprocessable', 'quota_exceeded', 'rate_limited'),
      },
    },
    async (request, reply) => {
      const { domain_id: domainId } = request.params
      const made = await bulks.create(request.principal, domainId, request.body, idempotencyKeyOf(request.headers))
      void reply.code(201).header('Location', `/${domainId}/clients/commands/${made.id}`)
      return presentBulk(made, domainId)
    },
  )
  app.get(
    PATH,
    {
      config: { action: 'client_read' },
      schema: {
        tags,
        summary: 'List commands to many clients, the newest first',
        description: 'Ended ones are kept for 30 days, and at most 1,000 of a domain.',
        params: inDomain,
        querystring: BulkQuery,
        response: responses({ 200: BulkPage }),
      },
    },
    async ({ principal, params: { domain_id: domainId }, query }) => {
      const { items, ...page } = await bulks.list(principal, domainId, query)
      return { ...page, commands: items.map((one) => presentBulk(one, domainId)) }
    },
  )
}

function addBulkRoutes(app: HttpApp, bulks: BulkCommandsService): void {
  app.get(
    ONE,
    {
      config: { action: 'client_read' },
      schema: {
        tags,
        summary: 'View a command to many clients, and its progress',
        params,
        response: responses({ 200: BulkCommand }, 'not_found'),
      },
    },
    async ({ principal, params: { domain_id: domainId, bulk_id: id } }) =>
      presentBulk(await bulks.get(principal, domainId, id), domainId),
  )
  app.post(
    `${ONE}/cancel`,
    {
      config: { action: 'client_command' },
      schema: {
        tags,
        summary: 'Cancel a command to many clients',
        description:
          'Idempotent. No more commands are given, and those that no device has are cancelled. The others end by themselves, and `ended_at` follows the last one.',
        params,
        response: responses({ 200: BulkCommand }, 'not_found', 'invalid_state'),
      },
    },
    async ({ principal, params: { domain_id: domainId, bulk_id: id } }) =>
      presentBulk(await bulks.cancel(principal, domainId, id), domainId),
  )
}
