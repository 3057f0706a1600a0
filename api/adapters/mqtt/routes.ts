/** MQTT for operators over HTTP: sessions of a client, retained messages of a channel. */
import { Type } from 'typebox'
import { MqttSessionQuery, MqttSessions, RetainedPage } from '#api/messages/index.ts'
import type { SessionsService } from '#api/messages/index.ts'
import { NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { pageQuery } from '#core/page.ts'

const Channel = Type.Object({ domain_id: Type.String(), channel_id: Type.String() })

export function sessionRoutes(sessions: SessionsService): RoutePlugin {
  return (app) => {
    app.get(
      '/:domain_id/clients/:client_id/sessions',
      {
        config: { action: 'read' },
        schema: {
          tags: ['clients'],
          summary: 'List the MQTT sessions of a client',
          description:
            'One for each client identifier that it connects with, on whatever node, with its subscriptions and what is on its way to it. Sessions that are kept without a connection are listed until they end.',
          params: Type.Object({ domain_id: Type.String(), client_id: Type.String() }),
          querystring: MqttSessionQuery,
          response: responses({ 200: MqttSessions }, 'not_found'),
        },
      },
      async (request) => {
        const { domain_id: domainId, client_id: clientId } = request.params
        return await sessions.ofClient(request.principal, domainId, clientId, request.query)
      },
    )
    app.delete(
      '/:domain_id/clients/:client_id/sessions',
      {
        config: { action: 'update' },
        schema: {
          tags: ['clients'],
          summary: 'End MQTT sessions of a client',
          description:
            'One of them, or all. Its connection is closed within a second, subscriptions and waiting messages are dropped, and its will is sent. The client may connect again.',
          params: Type.Object({ domain_id: Type.String(), client_id: Type.String() }),
          querystring: Type.Object({
            client_identifier: Type.Optional(
              Type.String({ maxLength: 1024, description: 'Which session; absent: all of the client' }),
            ),
          }),
          response: responses({ 204: NoBody }, 'not_found'),
        },
      },
      async (request, reply) => {
        const { domain_id: domainId, client_id: clientId } = request.params
        await sessions.end(request.principal, domainId, clientId, request.query.client_identifier)
        return await reply.code(204).send()
      },
    )
    app.get(
      '/:domain_id/channels/:channel_id/retained',
      {
        config: { action: 'subscribe' },
        schema: {
          tags: ['messages'],
          summary: 'List the retained messages of a channel',
          description: 'The last message of each subtopic that was published over MQTT to be kept, by subtopic.',
          params: Channel,
          querystring: Type.Object(pageQuery()),
          response: responses({ 200: RetainedPage }, 'not_found'),
        },
      },
      async (request) => {
        const { domain_id: domainId, channel_id: channelId } = request.params
        return await sessions.retained(request.principal, domainId, channelId, request.query)
      },
    )
    app.delete(
      '/:domain_id/channels/:channel_id/retained',
      {
        config: { action: 'delete' },
        schema: {
          tags: ['messages'],
          summary: 'Delete retained messages of a channel',
          description: 'Of one subtopic, or all of them. Stored messages stay; later subscribers are sent nothing old.',
          params: Channel,
          querystring: Type.Object({
            subtopic: Type.Optional(
              Type.String({ maxLength: 1024, description: 'Elements separated by / or .; only /: the channel itself' }),
            ),
          }),
          response: responses({ 204: NoBody }, 'not_found'),
        },
      },
      async (request, reply) => {
        const { domain_id: domainId, channel_id: channelId } = request.params
        await sessions.clear(request.principal, domainId, channelId, request.query.subtopic)
        return await reply.code(204).send()
      },
    )
  }
}
