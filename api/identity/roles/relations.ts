/**
 * The relations of the older generations as roles (decision 24): what their names are called today, and which actions the
 * roles of those names are made with on each type of entity.
 */
import { refusedField } from '#core/errors/index.ts'
import type { EntityType } from '../access/index.ts'
import { ACTIONS, ADMIN_ROLE_NAME } from '../access/index.ts'

export const RELATIONS = ['administrator', 'editor', 'contributor', 'member', 'viewer', 'guest'] as const
export type Relation = (typeof RELATIONS)[number]

/** In any case; throws `malformed` for anything else. `path` names the field in the refusal. */
export function parseRelation(text: string, path = '/relation'): Relation {
  const relation = RELATIONS.find((one) => one === text.toLowerCase())
  if (relation !== undefined) return relation
  throw refusedField(path, `must be one of ${RELATIONS.join(', ')}`)
}

/** The name of the role that a relation means. */
export const roleNameOf = (relation: Relation): string => (relation === 'administrator' ? ADMIN_ROLE_NAME : relation)

/** The relation that a role means to the older clients: its own name but for the built-in one. */
export const relationOf = (roleName: string): string => (roleName === ADMIN_ROLE_NAME ? 'administrator' : roleName)

const is = (action: string, ...endings: string[]) =>
  endings.some((ending) => action === ending || action.endsWith(`_${ending}`))

/** Beside `*_delete` an editor has every action on profiles (decision 78). */
const isEditing = (action: string) =>
  action === 'profile_delete' || !is(action, 'delete', 'manage_role', 'add_role_users', 'remove_role_users')

/** What a contributor does on one entity, beside what he does on its members. */
const CONTRIBUTED = new Set(['read', 'update', 'connect_to_channel', 'connect_to_client', 'publish', 'subscribe'])

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
  contributor: (type, action) => isEditing(action) && isContributing[type](action),
  viewer: (_type, action) => isViewing(action),
  guest: (_type, action) => isViewing(action),
  // Of the entity itself alone: the member of a domain did nothing with its channels in any generation.
  member: (_type, action) => MEMBER_ACTIONS.has(action),
}

export function relationActions(type: EntityType, relation: Relation): string[] {
  return ACTIONS[type].filter((action) => HOLDS[relation](type, action))
}
