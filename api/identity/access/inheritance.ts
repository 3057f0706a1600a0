/**
 * Inheritance of actions (contract 2.4): which action of a role on a domain or a group grants which action on an entity
 * below it. No other file contains the prefixes.
 */
import { ACTIONS, OWN_ACTIONS } from './actions.ts'
import type { EntityType } from './actions.ts'

type Inheriting = Exclude<EntityType, 'domain'>

/**
 * The entity whose role grants an action on an entity below it: the domain, the parent group, or a group above the
 * parent.
 */
export type Provider = 'domain' | 'parent' | 'ancestor'

/** Maps each action on an entity to the action that a role of the provider must contain. */
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
 * A group inherits every action that its own roles can contain, also those about its members and descendants. A user
 * with `client_read` on the domain has `client_read` on the group, and may put it into a role of the group.
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

/** A role on the group itself is direct, so the parent of a group is an ancestor like the others. */
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
