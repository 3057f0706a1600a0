/** The requests of the listing bench, each with its floor (decision 0067): every filter of contract 2.4, 3, 4.1 and 4.2. */
import type { Caller, World } from './world.ts'

/** p99 of a page without a filter. */
const FIRST_PAGE_MS = 50
/** p99 of a page by a part of a name, of three letters and more, and its total. */
const NAME_MS = 100
/** p99 of a page by a shorter part of a name, and its total. */
const SHORT_NAME_MS = 500
/** p99 of a page by another filter, with its exact total. */
const FILTER_MS = 1000
/** p99 of a page far from the first. */
const DEEP_MS = 1000

export type Case = {
  name: string
  url: string
  targetMs: number
  /** Whether something in the domain changes before each request. */
  isAfterChange: boolean
}

type Listing = readonly [name: string, query: string, targetMs: number, isAfterChange?: true]

/** The listings that clients and channels both have. */
const ON_BOTH: readonly Listing[] = [
  ['first page', '', FIRST_PAGE_MS],
  ['page of 100, newest first', 'limit=100&order=created_at&dir=desc', FIRST_PAGE_MS],
  ['by name', 'order=name', FIRST_PAGE_MS],
  ['any status', 'status=all', FIRST_PAGE_MS],
  ['disabled', 'status=disabled&order=created_at', FIRST_PAGE_MS],
  ['total alone', 'only_total=true', FIRST_PAGE_MS],
  ['name of 5 letters', 'name=abcd1', NAME_MS],
  ['name of 3 letters', 'name=7ab', NAME_MS],
  ['name of 2 letters', 'name=7a', SHORT_NAME_MS],
  ['name of 1 letter', 'name=7', SHORT_NAME_MS],
  ['tag', 'tag=tag77', FILTER_MS],
]

export function casesFor({ domainId, groupId, channelId, clientId, userId }: World, { kind, reached }: Caller): Case[] {
  const middle = Math.floor(reached / 2)
  const metadata = encodeURIComponent('{"model":"m77"}')
  const onClients: readonly Listing[] = [
    ...ON_BOTH,
    // A change makes the process count again what a caller reaches of a domain, unless that is the whole domain.
    ['first page after a change', '', kind === 'administrator' ? FIRST_PAGE_MS : FILTER_MS, true],
    ['name of 6 letters that all have', 'name=device', FILTER_MS],
    ['tags', 'tags=tag77,kind3', FILTER_MS],
    ['tag of a seventh of them', 'tag=kind3&order=name', FILTER_MS],
    ['metadata', `metadata=${metadata}`, FILTER_MS],
    ['5,000 deep', 'offset=5000', DEEP_MS],
    ['in the middle', `offset=${middle}`, DEEP_MS],
    ['in the middle, by name', `offset=${middle}&order=name`, DEEP_MS],
    ['name of 2 letters, 5,000 deep', 'name=7a&offset=5000', DEEP_MS],
  ]
  if (kind === 'everywhere') return toCases('', { clients: onClients, channels: ON_BOTH })
  const onClientsOfDomain: readonly Listing[] = [
    ...onClients,
    ['of a group', `group=${groupId}`, FILTER_MS],
    ['without a group', 'group=', FILTER_MS],
    ['of a channel', `channel=${channelId}`, FILTER_MS],
    ['of a channel, subscribed', `channel=${channelId}&connection_type=subscribe`, FILTER_MS],
    ['by id', `id=${clientId}`, FILTER_MS],
    ['actions', 'actions=read,update', FILTER_MS],
    ['role_name=admin', 'role_name=admin', FILTER_MS],
    ['access_type=direct', 'access_type=direct', FILTER_MS],
    ['access_type=direct_group', 'access_type=direct_group', FILTER_MS],
    ['access_type=indirect_group', 'access_type=indirect_group', FILTER_MS],
    ['access_type=domain', 'access_type=domain', FILTER_MS],
    ...(kind === 'administrator' ? [['of a user', `user=${userId}`, FILTER_MS] as const] : []),
    ['created by the caller', 'visibility=mine', FILTER_MS],
  ]
  const onChannels: readonly Listing[] = [
    ...ON_BOTH,
    ['of a client', `client=${clientId}`, FILTER_MS],
    ['of a group', `group=${groupId}`, FILTER_MS],
    ['access_type=indirect_group', 'access_type=indirect_group', FILTER_MS],
    ['5,000 deep', 'offset=5000', DEEP_MS],
  ]
  const onGroups: readonly Listing[] = [
    ['first page', '', FIRST_PAGE_MS],
    ['by name', 'order=name&limit=100', FIRST_PAGE_MS],
    ['name of 7 letters', 'name=flat%2077', NAME_MS],
    ['seen as roots', 'root_group=true', FILTER_MS],
    ['access_type=direct', 'access_type=direct', FILTER_MS],
    ['5,000 deep', 'offset=5000', DEEP_MS],
  ]
  return toCases(`/${domainId}`, { clients: onClientsOfDomain, channels: onChannels, groups: onGroups })
}

function toCases(path: string, listings: Readonly<Record<string, readonly Listing[]>>): Case[] {
  return Object.entries(listings).flatMap(([type, list]) =>
    list.map(([name, query, targetMs, isAfterChange = false]) => ({
      name: `${type}, ${name}`,
      url: `${path}/${type}?${query}`,
      targetMs,
      isAfterChange,
    })),
  )
}
