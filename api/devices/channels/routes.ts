/** Channel routes: the domain in the path, and the listing of every domain that the caller reaches (decision 31). */
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { NoBody, responses } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import { MAX_BULK_BODY_BYTES } from '../bulk.ts'
import {
  Channel,
  ChannelPage,
  ChannelQuery,
  ChannelUpdate,
  NewChannel,
  NewChannels,
  TagsUpdate,
  presentChannel,
} from './schema.ts'
import type { ChannelRecord, ChannelsService } from './service.ts'

const DomainParams = Type.Object({ domain_id: Id })
const Params = Type.Object({ domain_id: Id, channel_id: Id })
const tags = ['channels']

export function channelRoutes(channels: ChannelsService): RoutePlugin {
  return (app) => {
    app.post(
      '/:domain_id/channels',
      {
        config: { action: 'channel_create' },
        schema: {
          tags,
          summary: 'Create a channel',
          params: DomainParams,
          body: NewChannel,
          response: responses(
            { 201: Channel },
            'unauthenticated',
            'forbidden',
            'conflict',
            'unsupported_media_type',
            'too_large',
          ),
        },
      },
      async (request, reply) => {
        const [created] = await channels.create(request.principal, request.params.domain_id, [request.body])
        const channel = created as ChannelRecord
        void reply.code(201).header('Location', `/channels/${channel.id}`)
        return presentChannel(channel)
      },
    )
    app.post(
      '/:domain_id/channels/bulk',
      {
        config: { action: 'channel_create' },
        bodyLimit: MAX_BULK_BODY_BYTES,
        schema: {
          tags,
          summary: 'Create many channels, all or none',
          params: DomainParams,
          body: NewChannels,
          response: responses(
            { 200: ChannelPage },
            'unauthenticated',
            'forbidden',
            'conflict',
            'unsupported_media_type',
            'too_large',
          ),
        },
      },
      async (request) => {
        const created = await channels.create(request.principal, request.params.domain_id, request.body)
        return { total: created.length, channels: created.map(presentChannel) }
      },
    )
    for (const [path, params] of [
      ['/:domain_id/channels', DomainParams],
      ['/channels', Type.Object({})],
    ] as const) {
      app.get(
        path,
        {
          config: { action: 'channel_read' },
          schema: {
            tags,
            summary: 'List channels',
            params,
            querystring: ChannelQuery,
            response: responses({ 200: ChannelPage }, 'unauthenticated', 'forbidden', 'unprocessable'),
          },
        },
        async (request) => {
          const { domain_id: domainId } = request.params as { domain_id?: string }
          const page = await channels.list(request.principal, domainId, request.query)
          if (request.query.only_total === true) return { total: page.total }
          return { total: page.total, offset: page.offset, limit: page.limit, channels: page.items.map(presentChannel) }
        },
      )
    }
    app.get(
      '/:domain_id/channels/:channel_id',
      {
        config: { action: 'read' },
        schema: {
          tags,
          summary: 'View a channel',
          params: Params,
          response: responses({ 200: Channel }, 'unauthenticated', 'forbidden', 'not_found'),
        },
      },
      async (request) =>
        presentChannel(await channels.get(request.principal, request.params.domain_id, request.params.channel_id)),
    )
    app.route({
      // The specification says PUT, the newer clients send PATCH: the same rule (decision 2).
      method: ['PUT', 'PATCH'],
      url: '/:domain_id/channels/:channel_id',
      config: { action: 'update' },
      schema: {
        tags,
        summary: 'Change a channel; absent fields stay',
        params: Params,
        body: ChannelUpdate,
        response: responses(
          { 200: Channel },
          'unauthenticated',
          'forbidden',
          'not_found',
          'unsupported_media_type',
          'too_large',
        ),
      },
      handler: async (request) =>
        presentChannel(
          await channels.update(request.principal, request.params.domain_id, request.params.channel_id, request.body),
        ),
    })
    app.patch(
      '/:domain_id/channels/:channel_id/tags',
      {
        config: { action: 'update' },
        schema: {
          tags,
          summary: 'Replace the tags; none clears them',
          params: Params,
          body: TagsUpdate,
          response: responses(
            { 200: Channel },
            'unauthenticated',
            'forbidden',
            'not_found',
            'unsupported_media_type',
            'too_large',
          ),
        },
      },
      async (request) =>
        presentChannel(
          await channels.update(request.principal, request.params.domain_id, request.params.channel_id, {
            tags: request.body.tags ?? [],
          }),
        ),
    )
    for (const [verb, status] of [
      ['enable', 'enabled'],
      ['disable', 'disabled'],
    ] as const) {
      app.post(
        `/:domain_id/channels/:channel_id/${verb}`,
        {
          config: { action: 'update' },
          schema: {
            tags,
            summary: `${verb === 'enable' ? 'Enable' : 'Disable'} a channel`,
            params: Params,
            response: responses({ 200: Channel }, 'unauthenticated', 'forbidden', 'not_found'),
          },
        },
        async (request) =>
          presentChannel(
            await channels.setStatus(request.principal, request.params.domain_id, request.params.channel_id, status),
          ),
      )
    }
    app.delete(
      '/:domain_id/channels/:channel_id',
      {
        config: { action: 'delete' },
        schema: {
          tags,
          summary: 'Delete a channel, its connections and its roles',
          description: 'Stored messages stay until retention removes them.',
          params: Params,
          response: responses({ 204: NoBody }, 'unauthenticated', 'forbidden', 'not_found'),
        },
      },
      async (request, reply) => {
        await channels.remove(request.principal, request.params.domain_id, request.params.channel_id)
        return await reply.code(204).send()
      },
    )
  }
}
