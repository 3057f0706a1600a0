/** Wire shapes of roles and their members, with current and legacy names (contract 2.2, decision 5). */
import { Type } from 'typebox'
import type { Static, TObject, TSchema } from 'typebox'
import { refusedField } from '#core/errors/index.ts'
import { documented } from '#http/index.ts'
import { Cursor, MAX_LIMIT, MAX_OFFSET, pageFields, pageQuery } from '#core/page.ts'
import { ZERO_TIME, formatTime } from '#core/time.ts'
import { ACTIONS, actionNamed } from '../access/index.ts'
import type { PlacedRole as PlacedRoleRecord } from '../access/index.ts'
import { ActionsFilter, Id, PlacedRole, Timestamp } from '../wire/index.ts'
import type { EntityMember as EntityMemberRecord } from './memberships.ts'
import type { ShownRole } from './service.ts'

export const MAX_ROLE_NAME_CHARS = 200
/** Maximum number of users in one request. */
const MAX_USERS_PER_CALL = 1000
const MAX_ACTIONS_PER_CALL = 200

/** Returns the parameters of a path: ids, and further parameters. */
export const pathParams = (names: readonly string[], more: Record<string, TSchema> = {}): TObject =>
  Type.Object({ ...Object.fromEntries(names.map((name) => [name, Id])), ...more })

export const RoleId = Type.String({
  maxLength: 64,
  description: 'Id of the role: `<entity type>_<22 characters>`',
  ...documented({ pattern: '^(domain|client|channel|group)_[0-9A-Za-z_-]{22}$' }),
})

const RoleName = Type.String({ minLength: 1, maxLength: MAX_ROLE_NAME_CHARS })
/** Older names are accepted too (decision 24). */
const Action = Type.String({
  maxLength: 64,
  description: 'Action; `…/roles/available-actions` lists those of each entity type',
  ...documented({ enum: [...new Set(Object.values(ACTIONS).flat())].toSorted() }),
  $id: 'Action',
})
const Actions = Type.Array(Action, { maxItems: MAX_ACTIONS_PER_CALL })
const UserIds = Type.Array(Id, { maxItems: MAX_USERS_PER_CALL })

const roleFields = {
  id: Type.String({ description: 'Same value as `role_id`' }),
  role_id: Type.String(),
  name: Type.String({ description: 'Same value as `role_name`' }),
  role_name: Type.String(),
  entity_id: Id,
  actions: Type.Array(Type.String()),
  optional_actions: Type.Array(Type.String(), { description: 'Same value as `actions`' }),
  members: Type.Array(Id, {
    description: 'Ids of the first 1000 members (100 in lists), for callers with `view_role_users`',
  }),
  optional_members: Type.Array(Id, { description: 'Same value as `members`' }),
  created_by: Type.Optional(Id),
  created_at: Timestamp,
  updated_by: Type.Optional(Id),
  updated_at: Timestamp,
}
export const Role = Type.Object(roleFields, { $id: 'Role', description: 'Role on one entity' })
export type Role = Static<typeof Role>

export const NewRole = Type.Object(
  {
    role_name: Type.Optional(RoleName),
    name: Type.Optional(RoleName),
    optional_actions: Type.Optional(Actions),
    actions: Type.Optional(Actions),
    optional_members: Type.Optional(UserIds),
    members: Type.Optional(UserIds),
  },
  { $id: 'RoleCreate', description: 'New role; `role_name` or `name` is required' },
)
export type NewRole = Static<typeof NewRole>

export const RoleUpdate = Type.Object(
  {
    role_name: Type.Optional(RoleName),
    name: Type.Optional(RoleName),
    optional_actions: Type.Optional(Actions),
    actions: Type.Optional(Actions),
  },
  {
    $id: 'RoleUpdate',
    description: 'Change of a role; a name or actions are required, which replace those of the role',
  },
)
export type RoleUpdate = Static<typeof RoleUpdate>

const SomeActions = Type.Optional(Type.Array(Action, { minItems: 1, maxItems: MAX_ACTIONS_PER_CALL }))
export const ActionsBody = Type.Object(
  { actions: SomeActions, optional_actions: SomeActions },
  { description: 'Actions; `actions` or `optional_actions` is required' },
)
const SomeUserIds = Type.Optional(Type.Array(Id, { minItems: 1, maxItems: MAX_USERS_PER_CALL }))
export const MembersBody = Type.Object(
  { members: SomeUserIds, optional_members: SomeUserIds },
  { description: 'Members; `members` or `optional_members` is required' },
)
export const MemberIdsBody = Type.Object({ member_ids: Type.Array(Id, { minItems: 1, maxItems: MAX_USERS_PER_CALL }) })

export const AvailableActions = Type.Object({ available_actions: Type.Array(Action) })
export const ActionList = Type.Array(Type.String())
export const ActionsObject = Type.Object({ actions: ActionList })
/**
 * The items have no format. The list is in a union with a page, and OpenAPI generators for Java do not support such a
 * union when the items have a format.
 */
export const MemberList = Type.Array(Type.String({ description: 'Id of a user' }))
export const MembersObject = Type.Object({ members: MemberList })
export const MemberPage = Type.Object({ ...pageFields, members: MemberList })
export const RolePage = Type.Object({ ...pageFields, roles: Type.Array(Role) })
/** The items are an unnamed schema: OpenAPI allows a named schema only once in a union, and `RolePage` uses the name. */
export const RoleList = Type.Array(Type.Object(roleFields))

/** The parameters have no defaults, so that handlers can detect them (decision 6). */
export const OptionalPageQuery = Type.Object({
  offset: Type.Optional(Type.Integer({ minimum: 0, maximum: MAX_OFFSET, description: 'Number of rows to skip' })),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_LIMIT, description: 'Number of rows to return' })),
  cursor: Type.Optional(Cursor),
  with_metadata: Type.Optional(Type.Boolean({ description: 'With either value, the list is a page' })),
})

export const ForceQuery = Type.Object({
  force: Type.Optional(
    Type.Boolean({ description: 'Only for platform administrators: replace the last administrator' }),
  ),
})

const AccessTypes = Type.Enum(['direct', 'direct_group', 'indirect_group', 'domain'])

export const EntityMember = Type.Object(
  {
    member_id: Id,
    roles: Type.Array(PlacedRole),
  },
  { $id: 'EntityMember', description: 'User with the roles that grant access to the entity' },
)
export const EntityMemberPage = Type.Object({ ...pageFields, members: Type.Array(EntityMember) })

export const EntityMemberQuery = Type.Object({
  ...pageQuery(),
  access_provider_id: Type.Optional(Id),
  access_type: Type.Optional(AccessTypes),
  role_id: Type.Optional(Type.String({ maxLength: 64 })),
  role_name: Type.Optional(Type.String({ maxLength: MAX_ROLE_NAME_CHARS })),
  actions: ActionsFilter('Comma-separated actions; a role must contain all of them'),
})
export type EntityMemberQuery = Static<typeof EntityMemberQuery>

/** Returns a required value. Throws `malformed` when it is absent. */
export function requireGiven<T>(value: T | undefined, path: string): T {
  if (value !== undefined) return value
  throw refusedField(path, 'is required')
}

/** The actions of a body, under either of their names, by their newer names. Undefined without any. */
export const namedActions = (body: { optional_actions?: string[]; actions?: string[] }): string[] | undefined =>
  (body.optional_actions ?? body.actions)?.map(actionNamed)

export const actionsIn = (body: Static<typeof ActionsBody>): string[] => requireGiven(namedActions(body), '/actions')

export const membersIn = (body: Static<typeof MembersBody>): string[] =>
  requireGiven(body.optional_members ?? body.members, '/members')

export function presentRole({ entity, role, members }: ShownRole): Role {
  return {
    id: role.id,
    role_id: role.id,
    name: role.name,
    role_name: role.name,
    entity_id: entity.id,
    actions: [...role.actions],
    optional_actions: [...role.actions],
    members,
    optional_members: members,
    ...(role.createdBy === null ? {} : { created_by: role.createdBy }),
    created_at: formatTime(role.createdAt),
    ...(role.updatedBy === null ? {} : { updated_by: role.updatedBy }),
    updated_at: role.updatedAt === null ? ZERO_TIME : formatTime(role.updatedAt),
  }
}

export function presentEntityMember({ memberId, roles }: EntityMemberRecord): Static<typeof EntityMember> {
  return { member_id: memberId, roles: roles.map(presentPlacedRole) }
}

export type PresentedPlacedRole = Static<typeof PlacedRole>

export function presentPlacedRole({ id, name, actions, place }: PlacedRoleRecord): PresentedPlacedRole {
  return {
    role_id: id,
    role_name: name,
    actions: [...actions],
    access_type: place.accessType,
    ...(place.accessType === 'direct' ? {} : { access_provider_id: place.id }),
    ...(place.path === undefined ? {} : { access_provider_path: place.path }),
  }
}
