/**
 * Connect and disconnect: newer and older request formats, with the domain in the path and without (contract 4.2,
 * decision 52).
 */
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { NoBody, responses } from '#http/index.ts'
import type { BulkTurns, RoutePlugin } from '#http/index.ts'
import { MAX_BULK_BODY_BYTES } from '../connectable/bulk.ts'
import { pairsOf, requestsOf } from './connection-request.ts'
import { ChannelConnecting, Connection, Connectings, presentConnection } from './schema.ts'
import type { ConnectionsService } from './service.ts'

const tags = ['connections']
const WITHOUT_DOMAIN =
  'Searches the domains that the caller has access to. Returns 409 when the ids exist in several of them.'
const KINDS = ['not_found', 'unprocessable', 'conflict'] as const

/** The prefix of `/channels` and its parameters, for each scope. */
const SCOPES = [
  { prefix: '/:domain_id', params: { domain_id: Id }, description: undefined },
  { prefix: '', params: {}, description: WITHOUT_DOMAIN },
] as const

type Ids = { domain_id?: string; channel_id?: string; client_id?: string }

export function connectionRoutes(connections: ConnectionsService, bulk: BulkTurns): RoutePlugin {
  return (app) => {
    const verbs = [
      { verb: 'connect', status: 201, summary: 'Connect every client with every channel' },
      {
        verb: 'disconnect',
        status: 204,
        summary: 'Disconnect every client from every channel',
      },
    ] as const
    for (const { prefix, params, description } of SCOPES) {
      const about = description === undefined ? {} : { description }
      for (const { verb, status, summary } of verbs) {
        const response = responses({ [status]: NoBody }, ...KINDS)
        // The oldest clients use the one domain of their token, and their paths contain neither a domain nor the
        // collection.
        const urls = prefix === '' ? [`/channels/${verb}`, `/${verb}`] : [`${prefix}/channels/${verb}`]
        for (const url of urls) {
          app.post(
            url,
            {
              config: { action: 'connect_to_client', dryRun: true, bulk: { turns: bulk, rowsOf: pairsOf } },
              bodyLimit: MAX_BULK_BODY_BYTES,
              schema: {
                tags,
                summary: `${summary}; all or nothing`,
                ...about,
                params: Type.Object(params),
                body: Connectings,
                response,
              },
            },
            async (request, reply) => {
              const { domain_id: domainId } = request.params as Ids
              await connections[verb](request.principal, { domainId }, requestsOf({}, request.body))
              return await reply.code(status).send()
            },
          )
        }
        app.post(
          `${prefix}/channels/:channel_id/${verb}`,
          {
            config: { action: 'connect_to_client', dryRun: true, bulk: { turns: bulk, rowsOf: pairsOf } },
            bodyLimit: MAX_BULK_BODY_BYTES,
            schema: {
              tags,
              summary: `${summary} of the path`,
              ...about,
              params: Type.Object({ ...params, channel_id: Id }),
              body: ChannelConnecting,
              response,
            },
          },
          async (request, reply) => {
            const { domain_id: domainId, channel_id: channelId } = request.params as Ids & { channel_id: string }
            const path = { domainId, channelId }
            await connections[verb](request.principal, path, requestsOf(path, request.body))
            return await reply.code(status).send()
          },
        )
      }
      const pair = `${prefix}/channels/:channel_id/clients/:client_id`
      const pairParams = Type.Object({ ...params, channel_id: Id, client_id: Id })
      app.put(
        pair,
        {
          config: { action: 'connect_to_client' },
          schema: {
            tags,
            summary: 'Connect a client with a channel in both directions',
            ...about,
            params: pairParams,
            response: responses({ 201: Connection }, ...KINDS),
          },
        },
        async (request, reply) => {
          const { domain_id: domainId, channel_id: channelId, client_id: clientId } = request.params as Required<Ids>
          void reply.code(201)
          return presentConnection(await connections.connectPair(request.principal, { domainId, channelId, clientId }))
        },
      )
      app.delete(
        pair,
        {
          config: { action: 'connect_to_client' },
          schema: {
            tags,
            summary: 'Disconnect a client from a channel in both directions',
            ...about,
            params: pairParams,
            response: responses({ 204: NoBody }, ...KINDS),
          },
        },
        async (request, reply) => {
          const { domain_id: domainId, channel_id: channelId, client_id: clientId } = request.params as Required<Ids>
          const path = { domainId, channelId, clientId }
          await connections.disconnect(request.principal, path, requestsOf(path, {}))
          return await reply.code(204).send()
        },
      )
    }
  }
}
