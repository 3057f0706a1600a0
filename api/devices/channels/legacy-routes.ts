/**
 * The groups of a channel in the request format of Mainflux and SuperMQ, where a channel could have several groups. In
 * Skein a channel has one parent (contract 4.3).
 */
import { Type } from 'typebox'
import { GroupPage, GroupQuery, Id, presentGroupPage } from '#api/identity/index.ts'
import type { GroupsService } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { NoBody } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { addressOf, entitySchema } from '../connectable/index.ts'
import { entityPaths } from '../connectable/schema.ts'
import type { ChannelsService } from './service.ts'

const tags = ['channels']
/** Limit of the ids in one request. All of them must name the same group. */
const MAX_GROUP_IDS = 100
const Groups = Type.Object({ group_ids: Type.Array(Id, { minItems: 1, maxItems: MAX_GROUP_IDS }) })

/** Returns the only group of the list. Throws `unprocessable` for several: a channel has one parent. */
function onlyOf({ group_ids: ids }: { group_ids: string[] }): string {
  const groups = new Set(ids)
  const [only] = groups
  if (only === undefined || groups.size > 1)
    throw new ServiceError('unprocessable', `a channel has one parent group: got ${groups.size} groups`)
  return only
}

export function legacyChannelRoutes(
  channels: Pick<ChannelsService, 'get' | 'setParent' | 'removeParent'>,
  groups: Pick<GroupsService, 'list'>,
): RoutePlugin {
  return (app) => {
    for (const path of entityPaths('channel')) {
      app.get(
        `${path.base}/groups`,
        {
          config: { action: 'read' },
          schema: {
            ...entitySchema(path, {
              tags,
              summary: 'List the groups of a channel',
              description: 'Returns the parent group if the caller has `read` on it.',
              successes: { 200: GroupPage },
            }),
            querystring: GroupQuery,
          },
        },
        async (request) => {
          const { channel } = await channels.get(request.principal, addressOf('channel', request.params), false)
          // No group has an empty id, so a channel without a parent has an empty page.
          const query = { ...request.query, id: channel.parentGroupId ?? '' }
          return presentGroupPage(await groups.list(request.principal, channel.domainId, query), request.query)
        },
      )
      app.post(
        `${path.base}/groups/assign`,
        {
          config: { action: 'set_parent_group' },
          schema: {
            ...entitySchema(path, {
              tags,
              summary: 'Put a channel into a group',
              successes: { 201: NoBody },
              kinds: ['conflict', 'unprocessable'],
            }),
            body: Groups,
          },
        },
        async (request, reply) => {
          await channels.setParent(request.principal, addressOf('channel', request.params), onlyOf(request.body))
          return await reply.code(201).send()
        },
      )
      app.post(
        `${path.base}/groups/unassign`,
        {
          config: { action: 'set_parent_group' },
          schema: {
            ...entitySchema(path, {
              tags,
              summary: 'Take a channel out of a group',
              description: 'Has no effect when the group is not the parent of the channel.',
              successes: { 204: NoBody },
              kinds: ['unprocessable'],
            }),
            body: Groups,
          },
        },
        async (request, reply) => {
          const at = addressOf('channel', request.params)
          await channels.removeParent(request.principal, at, onlyOf(request.body))
          return await reply.code(204).send()
        },
      )
    }
  }
}
