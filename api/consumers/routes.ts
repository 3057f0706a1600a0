/** Routes that manage named consumers. */
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import {
  ConsumerPage,
  ConsumerQuery,
  ConsumerUpdate,
  ConsumerView,
  NewConsumer,
  Seek,
  presentConsumer,
} from './schema.ts'
import type { ConsumersService } from './service.ts'

export const tags = ['consumers']
const PATH = '/:domain_id/consumers'
export const ONE = `${PATH}/:consumer`
const inDomain = Type.Object({ domain_id: Id })
export const params = Type.Object({
  domain_id: Id,
  consumer: Type.String({ maxLength: 64, description: 'Name or id of the consumer' }),
})

export function consumerRoutes(consumers: ConsumersService, freed: (key: number) => void): RoutePlugin {
  return (app) => {
    app.post(
      PATH,
      {
        config: { action: 'consumer_create', location: '/{domain_id}/consumers/{id}' },
        schema: {
          tags,
          summary: 'Create a named consumer',
          description:
            'A consumer is a position in the messages of its channels. It keeps what it was given until that is acknowledged. Also requires `subscribe` on each channel.',
          params: inDomain,
          body: NewConsumer,
          response: responses({ 201: ConsumerView }, 'conflict', 'quota_exceeded', 'gone'),
        },
      },
      async (request, reply) => {
        const { domain_id: domainId } = request.params
        const made = await consumers.create(request.principal, domainId, request.body)
        void reply.code(201).header('Location', `/${domainId}/consumers/${made.id}`)
        return presentConsumer(made, domainId)
      },
    )
    app.get(
      PATH,
      {
        config: { action: 'consumer_read' },
        schema: {
          tags,
          summary: 'List named consumers',
          params: inDomain,
          querystring: ConsumerQuery,
          response: responses({ 200: ConsumerPage }),
        },
      },
      async (request) => {
        const { domain_id: domainId } = request.params
        const { items, ...page } = await consumers.list(request.principal, domainId, request.query)
        return { ...page, consumers: items.map((one) => presentConsumer(one, domainId)) }
      },
    )
    app.get(
      ONE,
      {
        config: { action: 'consumer_read' },
        schema: {
          tags,
          summary: 'View a named consumer, and how far it is behind',
          params,
          response: responses({ 200: ConsumerView }, 'not_found'),
        },
      },
      async ({ principal, params: { domain_id: domainId, consumer } }) =>
        presentConsumer(await consumers.get(principal, domainId, consumer), domainId),
    )
    app.patch(
      ONE,
      {
        config: { action: 'consumer_update' },
        schema: {
          tags,
          summary: 'Change a named consumer; absent fields are unchanged',
          description: 'Its position is unchanged. Other channels also require `subscribe` on each of them.',
          params,
          body: ConsumerUpdate,
          response: responses({ 200: ConsumerView }, 'not_found', 'conflict'),
        },
      },
      async ({ principal, params: { domain_id: domainId, consumer }, body }) => {
        const changed = await consumers.update(principal, domainId, consumer, body)
        freed(changed.key)
        return presentConsumer(changed, domainId)
      },
    )
    app.delete(
      ONE,
      {
        config: { action: 'consumer_delete' },
        schema: {
          tags,
          summary: 'Delete a named consumer and its dead letters',
          params,
          response: responses({ 204: NoBody }, 'not_found'),
        },
      },
      async ({ principal, params: { domain_id: domainId, consumer } }, reply) => {
        // Callers that wait learn that it is gone.
        freed(await consumers.remove(principal, domainId, consumer))
        return await reply.code(204).send()
      },
    )
    app.post(
      `${ONE}/seek`,
      {
        config: { action: 'consumer_update' },
        schema: {
          tags,
          summary: 'Move a named consumer',
          description:
            'What was delivered and is not acknowledged is forgotten; dead letters stay. 410 for a position that is no longer kept names the earliest.',
          params,
          body: Seek,
          response: responses({ 200: ConsumerView }, 'not_found', 'gone'),
        },
      },
      async ({ principal, params: { domain_id: domainId, consumer }, body }) => {
        const moved = await consumers.seek(principal, domainId, consumer, body.from)
        freed(moved.key)
        return presentConsumer(moved, domainId)
      },
    )
  }
}
