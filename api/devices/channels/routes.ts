/** Channel routes, with the domain in the path and without it (decisions 31 and 31b). */
import { NoBody, responses } from '#http/index.ts'
import type { BulkTurns, RoutePlugin } from '#http/index.ts'
import type { Page } from '#core/page.ts'
import { MAX_BULK_BODY_BYTES, inList, itemsOf } from '../connectable/bulk.ts'
import { addressOf, connectableRoutes, domainOf, entitySchema, newerCreation } from '../connectable/index.ts'
import { collectionPaths, entityPaths } from '../connectable/schema.ts'
import {
  Channel,
  ChannelPage,
  ChannelQuery,
  ChannelUpdate,
  NewChannel,
  NewChannels,
  newerUpdate,
  presentChannel,
} from './schema.ts'
import type { ChannelsService, ShownChannel } from './service.ts'

const tags = ['channels']
const CREATION_KINDS = ['conflict', 'unprocessable'] as const

const WITHIN = {
  client: 'List the channels that a client is connected to',
  group: 'List the channels of a group',
  user: 'List the channels that a user has access to',
} as const

const present = ({ channel, access }: ShownChannel): Channel => ({ ...presentChannel(channel), ...access })

function presentPage(page: Page<ShownChannel>, onlyTotal: boolean | undefined): ChannelPage {
  if (onlyTotal === true) return { total: page.total, channels: [] }
  const { total, offset, limit, items, next } = page
  return { total, offset, limit, channels: items.map(present), next }
}

export function channelRoutes(channels: ChannelsService, bulk: BulkTurns): RoutePlugin {
  return (app) => {
    for (const { base, params, isScoped } of collectionPaths('channel')) {
      const where = isScoped ? '' : ' Uses the domain of the token, or the only domain that the caller has access to.'
      app.post(
        base,
        {
          config: { action: 'channel_create', location: '/channels/{id}' },
          schema: {
            tags,
            summary: 'Create a channel',
            description: `The caller can choose the id. The id and the route (an alias in message paths) are unique in the domain.${where}`,
            params,
            body: NewChannel,
            response: responses({ 201: Channel }, ...CREATION_KINDS),
          },
        },
        async (request, reply) => {
          const [created] = await channels.create(request.principal, domainOf(request.params), [
            newerCreation(request.body),
          ])
          const shown = created as ShownChannel
          void reply.code(201).header('Location', `/channels/${shown.channel.id}`)
          return present(shown)
        },
      )
      app.post(
        `${base}/bulk`,
        {
          config: { action: 'channel_create', dryRun: true, bulk: { turns: bulk, rowsOf: itemsOf } },
          bodyLimit: MAX_BULK_BODY_BYTES,
          schema: {
            tags,
            summary: 'Create many channels, all or none',
            description: `Returns the channels in the order of the request.${where}`,
            params,
            body: NewChannels,
            response: responses({ 200: ChannelPage }, ...CREATION_KINDS),
          },
        },
        async (request) => {
          const given = request.body.map(newerCreation)
          const created = await inList(channels.create(request.principal, domainOf(request.params), given))
          return { total: created.length, channels: created.map(present) }
        },
      )
      app.get(
        base,
        {
          config: { action: 'channel_read' },
          schema: {
            tags,
            summary: 'List channels',
            description: isScoped
              ? 'Returns the channels of the domain on which the caller has `read`.'
              : 'Returns the channels of every domain that the caller has access to.',
            params,
            querystring: ChannelQuery,
            response: responses({ 200: ChannelPage }, 'unprocessable'),
          },
        },
        async (request) => {
          const page = await channels.list(request.principal, domainOf(request.params), request.query)
          return presentPage(page, request.query.only_total)
        },
      )
    }
    for (const within of ['client', 'group', 'user'] as const) {
      for (const path of entityPaths(within)) {
        app.get(
          `${path.base}/channels`,
          {
            config: { action: within === 'user' ? 'channel_read' : 'read' },
            schema: {
              // Users do not belong to a domain, so the id cannot be ambiguous.
              ...entitySchema(within === 'user' ? { ...path, isScoped: true } : path, {
                tags,
                summary: WITHIN[within],
                successes: { 200: ChannelPage },
                kinds: ['unprocessable'],
              }),
              querystring: ChannelQuery,
            },
          },
          async (request) => {
            const at = { type: within, ...addressOf(within, request.params) }
            const page = await channels.listOf(request.principal, at, request.query)
            return presentPage(page, request.query.only_total)
          },
        )
      }
    }
    connectableRoutes(app, {
      type: 'channel',
      record: Channel,
      calls: {
        view: async (caller, at, withRoles) => present(await channels.get(caller, at, withRoles)),
        setTags: async (caller, at, names) => present(await channels.setTags(caller, at, names)),
        setStatus: async (caller, at, status) => present(await channels.setStatus(caller, at, status)),
        setParent: (caller, at, groupId) => channels.setParent(caller, at, groupId),
        removeParent: (caller, at) => channels.removeParent(caller, at),
      },
    })
    for (const path of entityPaths('channel')) {
      app.route({
        // The specification uses PUT, newer clients send PATCH. Both follow the same rule (decision 2).
        method: ['PUT', 'PATCH'],
        url: path.base,
        config: { action: 'update' },
        schema: {
          ...entitySchema(path, {
            tags,
            summary: 'Change a channel; absent fields are unchanged',
            description: 'Null clears description, route and retention_days.',
            successes: { 200: Channel },
            kinds: ['conflict'],
          }),
          body: ChannelUpdate,
        },
        handler: async (request) =>
          present(
            await channels.update(request.principal, addressOf('channel', request.params), newerUpdate(request.body)),
          ),
      })
      app.delete(
        path.base,
        {
          config: { action: 'delete', dryRun: true },
          schema: entitySchema(path, {
            tags,
            summary: 'Delete a channel, its connections and its roles',
            description: 'Stored messages are kept until retention removes them.',
            successes: { 204: NoBody },
          }),
        },
        async (request, reply) => {
          await channels.remove(request.principal, addressOf('channel', request.params))
          return await reply.code(204).send()
        },
      )
    }
  }
}
