/**
 * How actions come down (contract 2.4): which action of a role on a domain or a group gives which action on an entity
 * below it. The one place that knows the prefixes.
 */
import { ACTIONS, OWN_ACTIONS } from './actions.ts'
import type { EntityType } from './actions.ts'

type Inheriting = Exclude<EntityType, 'domain'>

/** Where a role lies that gives something on an entity: on its domain, on its parent group, on a group above that. */
export type Provider = 'domain' | 'parent' | 'ancestor'

/** For each action on an entity the action that a role of the provider must hold to give it. */
export type Inheritance = ReadonlyMap<string, string>

const CREATIONS_IN_GROUP: Readonly<Record<string, { domain: string; ancestor: string }>> = {
  client_create: { domain: 'client_create', ancestor: 'subgroup_client_create' },
  channel_create: { domain: 'channel_create', ancestor: 'subgroup_channel_create' },
  subgroup_create: { domain: 'group_create', ancestor: 'subgroup_create' },
  subgroup_client_create: { domain: 'client_create', ancestor: 'subgroup_client_create' },
  subgroup_channel_create: { domain: 'channel_create', ancestor: 'subgroup_channel_create' },
}

function onMembers(type: 'client' | 'channel', prefix: string): Inheritance {
  return new Map(OWN_ACTIONS[type].map((action) => [action, `${prefix}_${action}`]))
}

/**
 * What a group gets from above is everything that its own roles could say, about its members and descendants too: who may
 * read every client of the domain may read those of the group, and may give that away in a role of the group.
 */
function onGroups(provider: 'domain' | 'ancestor'): Inheritance {
  const own = new Set<string>(OWN_ACTIONS.group)
  const prefixOfOwn = provider === 'domain' ? 'group' : 'subgroup'
  const prefixOfMembers = provider === 'domain' ? '' : 'subgroup_'
  return new Map(
    ACTIONS.group.map((action) => {
      const creation = CREATIONS_IN_GROUP[action]
      if (creation !== undefined) return [action, creation[provider]]
      if (own.has(action)) return [action, `${prefixOfOwn}_${action}`]
      const bare = action.replace(/^subgroup_/, '')
      return [action, own.has(bare) ? `${prefixOfOwn}_${bare}` : `${prefixOfMembers}${bare}`]
    }),
  )
}

/** A role of a group on itself is a direct one: to a group its parent is an ancestor like the others. */
export const INHERITED: Readonly<Record<Provider, Readonly<Record<Inheriting, Inheritance>>>> = {
  domain: {
    client: onMembers('client', 'client'),
    channel: onMembers('channel', 'channel'),
    group: onGroups('domain'),
  },
  parent: {
    client: onMembers('client', 'client'),
    channel: onMembers('channel', 'channel'),
    group: onGroups('ancestor'),
  },
  ancestor: {
    client: onMembers('client', 'subgroup_client'),
    channel: onMembers('channel', 'subgroup_channel'),
    group: onGroups('ancestor'),
  },
}
