/** What is asked in the bench of listings: every filter of contract 2.4, 3, 4.1 and 4.2. */
import { LARGEST } from './world.ts'
import type { Caller, World } from './world.ts'

const PAGE_MS = 20
export const DEEP_MS = 50
const SINGLE_MS = 10

export type Case = { name: string; url: string; targetMs: number }

const MIDDLE = Math.floor(LARGEST / 2)

/** Filters of clients and channels alike. */
const ON_BOTH: readonly (readonly [string, string])[] = [
  ['first page', ''],
  ['page of 100, newest first', 'limit=100&order=created_at&dir=desc'],
  ['by name', 'order=name'],
  ['any status', 'status=all'],
  ['disabled', 'status=disabled&order=created_at'],
  ['name contains', 'name=7a'],
  ['name contains, few', 'name=abcd1'],
  ['tag', 'tag=tag77'],
  ['total alone', 'only_total=true'],
]

export function casesFor({ domainId, groupId, channelId, clientId, userId }: World, { kind }: Caller): Case[] {
  if (kind === 'everywhere') {
    return [
      ...ON_BOTH.map(([name, query]) => ({ name: `clients, ${name}`, url: `/clients?${query}`, targetMs: PAGE_MS })),
      { name: 'clients, 5,000 deep', url: '/clients?offset=5000', targetMs: DEEP_MS },
      { name: 'clients, in the middle', url: `/clients?offset=${MIDDLE}`, targetMs: DEEP_MS },
      { name: 'channels', url: '/channels', targetMs: PAGE_MS },
      { name: 'one client', url: `/clients/${clientId}`, targetMs: SINGLE_MS },
    ]
  }
  const metadata = encodeURIComponent('{"model":"m77"}')
  const onClients: readonly (readonly [string, string, number?])[] = [
    ...ON_BOTH,
    ['tags', 'tags=tag77,kind3'],
    ['tag of many', 'tag=kind3&order=name'],
    ['metadata', `metadata=${metadata}`],
    ['of a group', `group=${groupId}`],
    ['without a group', 'group='],
    ['of a channel', `channel=${channelId}`],
    ['of a channel, subscribed', `channel=${channelId}&connection_type=subscribe`],
    ['by id', `id=${clientId}`],
    ['actions', 'actions=read'],
    ['role_name=admin', 'role_name=admin'],
    ['access_type=direct', 'access_type=direct'],
    ['access_type=direct_group', 'access_type=direct_group'],
    ['access_type=indirect_group', 'access_type=indirect_group'],
    ['access_type=domain', 'access_type=domain'],
    ...(kind === 'administrator' ? [['of a user', `user=${userId}`] as const] : []),
    ['created by the caller', 'visibility=mine'],
    ['200 deep', 'offset=200', DEEP_MS],
    ['5,000 deep', 'offset=5000', DEEP_MS],
    ['in the middle', `offset=${MIDDLE}`, DEEP_MS],
    ['in the middle, by name', `offset=${MIDDLE}&order=name`, DEEP_MS],
    ['name contains, 5,000 deep', 'name=7a&offset=5000', DEEP_MS],
  ]
  const onChannels: readonly (readonly [string, string, number?])[] = [
    ...ON_BOTH,
    ['of a client', `client=${clientId}`],
    ['of a group', `group=${groupId}`],
    ['access_type=indirect_group', 'access_type=indirect_group'],
    ['in the middle', 'offset=50000', DEEP_MS],
  ]
  const onGroups: readonly (readonly [string, string, number?])[] = [
    ['first page', ''],
    ['by name', 'order=name&limit=100'],
    ['name contains', 'name=flat%2077'],
    ['seen as roots', 'root_group=true'],
    ['access_type=direct', 'access_type=direct'],
    ['5,000 deep', 'offset=5000', DEEP_MS],
  ]
  const under = (list: typeof onClients, type: string) =>
    list.map(([name, query, targetMs = PAGE_MS]) => ({
      name: `${type}, ${name}`,
      url: `/${domainId}/${type}?${query}`,
      targetMs,
    }))
  return [
    ...under(onClients, 'clients'),
    ...under(onChannels, 'channels'),
    ...under(onGroups, 'groups'),
    ...(kind === 'administrator'
      ? (['clients', 'channels', 'groups'] as const).map((type) => ({
          name: `one of the ${type}`,
          url: `/${domainId}/${type}/${{ clients: clientId, channels: channelId, groups: groupId }[type]}`,
          targetMs: SINGLE_MS,
        }))
      : []),
  ]
}
