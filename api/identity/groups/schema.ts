/** Wire shapes of groups (specification section 2, contract section 3). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Direction, pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import {
  ActionsFilter,
  ChosenId,
  EffectiveAccessFields,
  EnabledStatus,
  Id,
  IdsFilter,
  Metadata,
  MetadataFilter,
  Name,
  OrderKey,
  RequiredName,
  ShownRolesFields,
  StatusFilter,
  Tags,
  Timestamp,
  createdFields,
} from '../wire/index.ts'
import type { WithAccess } from './find.ts'
import type { GroupRecord } from './repository.ts'

const MAX_DESCRIPTION_CHARS = 4096
/** Maximum number of children in one request (contract 7.1). */
const MAX_CHILDREN_IDS = 10_000
/** Maximum number of levels of a hierarchy, including the root (contract section 3). */
export const MAX_LEVELS = 20
/** Replaces the id of a group that the caller may not read, in a hierarchy (contract section 3). */
export const HIDDEN_ID = 'xxxx-xxxx-xxxx-xxxx'

const Description = Type.String({ maxLength: MAX_DESCRIPTION_CHARS })
/** An id, or an empty string, with which existing clients express "no parent". */
const OptionalId = Type.String({
  pattern: '^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?$',
  description: 'UUID in lower case, or empty for none',
})
/** Nested groups have the shape of their parent. */
const Children = Type.Array(Type.Unsafe<unknown>({ type: 'object', additionalProperties: true }), {
  description: 'Child groups with the same fields; with `tree=true`',
})

const groupFields = {
  domain_id: Id,
  parent_id: Type.Optional(Id),
  name: Type.String(),
  description: Type.Optional(Type.String()),
  tags: Type.Array(Type.String()),
  metadata: Metadata,
  path: Type.String({ description: 'Ids from the root to the group, separated by `.`' }),
  status: EnabledStatus,
  owner_id: Type.Optional(Id),
  created_by: Type.Optional(Id),
  created_at: Timestamp,
  updated_at: Timestamp,
  updated_by: Type.Optional(Id),
}

export const Group = Type.Object(
  {
    id: Id,
    ...groupFields,
    level: Type.Integer({
      description:
        'Level in the hierarchy: 1 for a root. Listings of children and parents count from the group of the path: 1, 2, … and -1, -2, …',
    }),
    children: Type.Optional(Children),
    ...EffectiveAccessFields.properties,
  },
  { $id: 'Group', description: 'Group: a node in a hierarchy of groups, with clients and channels as members' },
)
export type Group = Static<typeof Group>

export const GroupView = Type.Object(
  { ...Group.properties, ...ShownRolesFields.properties },
  { $id: 'GroupView', description: 'Group with the roles of the caller' },
)

export const ViewQuery = Type.Object({
  roles: Type.Optional(Type.Boolean({ description: 'Adds the caller and their roles' })),
})

export const NewGroup = Type.Object(
  {
    name: RequiredName,
    description: Type.Optional(Type.Union([Description, Type.Null()])),
    parent_id: Type.Optional(OptionalId),
    tags: Type.Optional(Tags),
    metadata: Type.Optional(Metadata),
    status: Type.Optional(EnabledStatus),
  },
  { $id: 'GroupCreate' },
)
export type NewGroup = Static<typeof NewGroup>

export const GroupUpdate = Type.Object({
  name: Type.Optional(RequiredName),
  description: Type.Optional(Type.Union([Description, Type.Null()])),
  metadata: Type.Optional(Metadata),
  tags: Type.Optional(Tags),
})
export type GroupUpdate = Static<typeof GroupUpdate>

export const TagsUpdate = Type.Object({ tags: Type.Optional(Tags) })

export const GroupQuery = Type.Object({
  ...pageQuery(),
  name: Type.Optional(Name),
  tag: Type.Optional(Name),
  tags: Type.Optional(
    Type.String({ maxLength: 4096, description: 'Comma-separated tags; a group must have all of them' }),
  ),
  status: StatusFilter,
  metadata: Type.Optional(MetadataFilter),
  id: IdsFilter,
  ...createdFields,
  parentID: Type.Optional(Type.String({ maxLength: 36, description: 'Children of this group' })),
  ownerID: Type.Optional(Type.String({ maxLength: 36, description: 'Created by this user' })),
  user: Type.Optional(
    Type.String({
      maxLength: 36,
      description: 'Groups that this user may read; requires this user or an administrator of the domain',
    }),
  ),
  actions: ActionsFilter('Comma-separated actions; the caller must have all of them on the group'),
  role_id: Type.Optional(Type.String({ maxLength: 64, description: 'Groups on which the caller has this role' })),
  role_name: Type.Optional(
    Type.String({ maxLength: 200, description: 'Groups on which the caller has a role with this name' }),
  ),
  access_type: Type.Optional(
    Type.Enum(['direct', 'direct_group', 'indirect_group', 'domain'], {
      description: "Origin of the caller's access",
    }),
  ),
  root_group: Type.Optional(Type.Boolean({ description: 'Only groups without an ancestor that the caller may read' })),
  tree: Type.Optional(Type.Boolean({ description: 'Nests the groups of the page; upper levels first' })),
  order: OrderKey,
  dir: Type.Optional(Direction),
  only_total: Type.Optional(Type.Boolean()),
})
export type GroupQuery = Static<typeof GroupQuery>

/** Levels below the group of the path. Clients of Magistrala 0.16 send -1 for all levels. */
export const ChildrenQuery = Type.Object({
  ...GroupQuery.properties,
  start_level: Type.Integer({
    minimum: 0,
    maximum: MAX_LEVELS,
    default: 1,
    description: 'First level; 0 includes the group itself',
  }),
  end_level: Type.Optional(
    Type.Integer({
      minimum: -1,
      maximum: MAX_LEVELS,
      description: 'Last level; 0 selects only `start_level`, -1 all levels. Defaults to 0, with `tree=true` to -1',
    }),
  ),
})
export type ChildrenQuery = Static<typeof ChildrenQuery>

export const ParentsQuery = Type.Object({
  ...GroupQuery.properties,
  order: Type.Optional(
    Type.String({ maxLength: 32, description: '`name`, `created_at` or `updated_at`; defaults to nearest first' }),
  ),
})
export type ParentsQuery = Static<typeof ParentsQuery>

export const GroupPage = Type.Object({ ...pageFields, groups: Type.Array(Group) })
export type GroupPage = Static<typeof GroupPage>

export const HierarchyQuery = Type.Object({
  level: Type.Integer({
    minimum: 0,
    maximum: MAX_LEVELS,
    default: 0,
    description: 'Number of levels from the group; 0 selects all',
  }),
  dir: Type.Integer({ default: -1, description: '0 or greater lists ancestors, less than 0 descendants' }),
  tree: Type.Optional(Type.Boolean()),
})
export type HierarchyQuery = Static<typeof HierarchyQuery>

export const Hierarchy = Type.Object({
  level: Type.Integer(),
  direction: Type.Integer(),
  groups: Type.Array(
    Type.Object(
      {
        id: Type.String({ description: `UUID, or ${HIDDEN_ID} for a group that the caller may not read` }),
        ...Type.Partial(Type.Object(groupFields)).properties,
        level: Type.Integer({ description: 'Level in the hierarchy; 1 for a root' }),
        children: Type.Optional(Children),
      },
      { $id: 'HierarchyGroup', description: 'Group, or only the level of a group that the caller may not read' },
    ),
  ),
})
export type Hierarchy = Static<typeof Hierarchy>

export const ParentUpdate = Type.Object({ parent_id: ChosenId })
export const ChildrenUpdate = Type.Object({
  children_ids: Type.Array(ChosenId, { minItems: 1, maxItems: MAX_CHILDREN_IDS }),
})

/** `level` is the level of the listing. It defaults to the level from the root. */
export function presentGroup(group: GroupRecord & { level?: number }): Group {
  return {
    id: group.id,
    domain_id: group.domainId,
    ...(group.parentGroupId === null ? {} : { parent_id: group.parentGroupId }),
    name: group.name,
    ...(group.description === null ? {} : { description: group.description }),
    tags: group.tags,
    metadata: group.metadata,
    level: group.level ?? group.path.length,
    path: group.path.join('.'),
    status: group.status,
    ...(group.createdBy === null ? {} : { owner_id: group.createdBy, created_by: group.createdBy }),
    created_at: formatTime(group.createdAt),
    updated_at: formatTime(group.updatedAt),
    ...(group.updatedBy === null ? {} : { updated_by: group.updatedBy }),
  }
}

/** Presents an item of a listing, with the role that grants the caller access to it. */
export function presentListed(group: WithAccess<GroupRecord & { level?: number }>): Group {
  return { ...presentGroup(group), ...group.access }
}

/** Presents only the level of a group that the caller may not read. */
export function presentHierarchical(group: GroupRecord & { isReadable: boolean }): Hierarchy['groups'][number] {
  return group.isReadable ? presentGroup(group) : { id: HIDDEN_ID, level: group.path.length }
}
