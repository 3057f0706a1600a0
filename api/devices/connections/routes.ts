/** Connecting and disconnecting below a domain (contract 4.2). */
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { NoBody, responses } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import { MAX_BULK_BODY_BYTES } from '../bulk.ts'
import { ChannelConnection, Connections } from './schema.ts'
import type { ConnectionsService } from './service.ts'

const DomainParams = Type.Object({ domain_id: Id })
const Params = Type.Object({ domain_id: Id, channel_id: Id })
const tags = ['connections']

export function connectionRoutes(connections: ConnectionsService): RoutePlugin {
  return (app) => {
    const verbs = [
      { verb: 'connect', status: 201, summary: 'Connect every client with every channel', apply: connections.connect },
      {
        verb: 'disconnect',
        status: 204,
        summary: 'Disconnect every client from every channel',
        apply: connections.disconnect,
      },
    ] as const
    for (const { verb, status, summary, apply } of verbs) {
      const response = responses(
        { [status]: NoBody },
        'unauthenticated',
        'forbidden',
        'unprocessable',
        'unsupported_media_type',
        'too_large',
      )
      app.post(
        `/:domain_id/channels/${verb}`,
        {
          config: { action: 'connect_to_client' },
          bodyLimit: MAX_BULK_BODY_BYTES,
          schema: { tags, summary: `${summary}; all or nothing`, params: DomainParams, body: Connections, response },
        },
        async (request, reply) => {
          await apply(request.principal, request.params.domain_id, [request.body].flat())
          return await reply.code(status).send()
        },
      )
      app.post(
        `/:domain_id/channels/:channel_id/${verb}`,
        {
          config: { action: 'connect_to_client' },
          bodyLimit: MAX_BULK_BODY_BYTES,
          schema: { tags, summary: `${summary} of the path`, params: Params, body: ChannelConnection, response },
        },
        async (request, reply) => {
          const { domain_id: domainId, channel_id: channelId } = request.params
          await apply(request.principal, domainId, [{ ...request.body, channel_ids: [channelId] }])
          return await reply.code(status).send()
        },
      )
    }
  }
}
