/**
 * The relations of Mainflux and SuperMQ as roles (decision 24): the name of the role of each relation, and its initial
 * actions on each entity type.
 */
import { refusedField } from '#core/errors/index.ts'
import type { EntityType } from '../access/index.ts'
import { ACTIONS, ADMIN_ROLE_NAME } from '../access/index.ts'

export const RELATIONS = ['administrator', 'editor', 'contributor', 'member', 'viewer', 'guest'] as const
export type Relation = (typeof RELATIONS)[number]

/** Parses a relation in any case. Throws `malformed` for any other text. `path` is the field in the error. */
export function parseRelation(text: string, path = '/relation'): Relation {
  const relation = RELATIONS.find((one) => one === text.toLowerCase())
  if (relation !== undefined) return relation
  throw refusedField(path, `must be one of ${RELATIONS.join(', ')}`)
}

/** Returns the name of the role of a relation. */
export const roleNameOf = (relation: Relation): string => (relation === 'administrator' ? ADMIN_ROLE_NAME : relation)

/** Returns the relation that legacy clients see for a role: `administrator` for the built-in role, else the role's name. */
export const relationNameOf = (roleName: string): string => (roleName === ADMIN_ROLE_NAME ? 'administrator' : roleName)

const is = (action: string, ...endings: string[]) =>
  endings.some((ending) => action === ending || action.endsWith(`_${ending}`))

/** An editor can delete profiles and consumers, but no other entity (decisions 78 and 100). */
const isEditing = (action: string) =>
  action === 'profile_delete' ||
  action === 'consumer_delete' ||
  !is(action, 'delete', 'manage_role', 'add_role_users', 'remove_role_users')

/** Actions of a contributor on an entity itself. */
const CONTRIBUTED = new Set([
  'read',
  'update',
  'connect_to_channel',
  'connect_to_client',
  'publish',
  'subscribe',
  'state_read',
])

/** What makes devices do something is not for contributors (decision 100). */
const isControlling = (action: string) => is(action, 'state_update', 'command')

const isContributing: Record<EntityType, (action: string) => boolean> = {
  domain: (action) => /^(client|channel|group)_/.test(action),
  group: (action) => /^(client|channel|subgroup)_/.test(action) || CONTRIBUTED.has(action),
  channel: (action) => CONTRIBUTED.has(action),
  client: (action) => CONTRIBUTED.has(action),
}

const isViewing = (action: string) => is(action, 'read', 'subscribe')

const MEMBER_ACTIONS = new Set(['read', 'publish', 'subscribe'])

const HOLDS: Record<Relation, (type: EntityType, action: string) => boolean> = {
  administrator: () => true,
  editor: (_type, action) => isEditing(action),
  contributor: (type, action) => isEditing(action) && isContributing[type](action) && !isControlling(action),
  viewer: (_type, action) => isViewing(action),
  guest: (_type, action) => isViewing(action),
  // The relation has only actions on the entity itself: a member of a domain never had permissions on its channels.
  member: (_type, action) => MEMBER_ACTIONS.has(action),
}

/** Returns the initial actions of a relation's role on an entity of the type. */
export function relationActions(type: EntityType, relation: Relation): string[] {
  return ACTIONS[type].filter((action) => HOLDS[relation](type, action))
}
