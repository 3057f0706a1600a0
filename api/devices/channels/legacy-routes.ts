/**
 * The groups of a channel in the words of the older generations, which assigned several; it has one parent (contract 4.3).
 */
import { Type } from 'typebox'
import { GroupPage, GroupQuery, Id, presentGroupPage } from '#api/identity/index.ts'
import type { GroupsService } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { NoBody } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import { addressOf, entitySchema } from '../connectable/index.ts'
import { entityPaths } from '../connectable/schema.ts'
import type { ChannelsService } from './service.ts'

const tags = ['channels']
/** No list of one group is longer than the older clients make it. */
const MAX_GROUP_IDS = 100
const Groups = Type.Object({ group_ids: Type.Array(Id, { minItems: 1, maxItems: MAX_GROUP_IDS }) })

/** The one group of the list. Throws `unprocessable` for several: a channel has one parent. */
function onlyOf({ group_ids: ids }: { group_ids: string[] }): string {
  const [only, ...more] = new Set(ids)
  if (only === undefined || more.length > 0)
    throw new ServiceError('unprocessable', `a channel has one parent group: name one, not ${ids.length}`)
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
              description: 'Its parent, where the caller may read it.',
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
              description: 'A group that is not its parent changes nothing.',
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
