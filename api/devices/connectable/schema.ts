/** Wire fields that clients and channels have in common (contract 4.1, 4.2). */
import { Type } from 'typebox'
import type { Static, TObject, TString } from 'typebox'
import {
  ActionsFilter,
  ChosenId,
  EnabledStatus,
  Id,
  Metadata,
  MetadataFilter,
  Name,
  OrderKey,
  StatusFilter,
  Tags,
  Timestamp,
} from '#api/identity/index.ts'
import { Direction, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import type { ConnectableRecord, ConnectableType } from './record.ts'

/** Fields of the record. */
export const recordFields = {
  id: Id,
  name: Type.String(),
  domain_id: Id,
  tags: Type.Array(Type.String()),
  metadata: Metadata,
  parent_group_id: Type.Optional(Id),
  created_by: Type.Optional(Id),
  created_at: Timestamp,
  updated_at: Timestamp,
  updated_by: Type.Optional(Id),
}

/** Fields of a creation. An empty `parent_group_id` is none: older clients send every field. */
export const creationFields = {
  id: Type.Optional(ChosenId),
  name: Type.Optional(Name),
  tags: Type.Optional(Tags),
  metadata: Type.Optional(Metadata),
  status: Type.Optional(EnabledStatus),
  parent_group_id: Type.Optional(
    Type.String({ maxLength: 36, description: 'Enabled group of the domain that becomes the parent' }),
  ),
}
export const Creation = Type.Object(creationFields)
export type Creation = Static<typeof Creation>

/** Fields of a change; absent ones stay. */
export const updateFields = {
  name: Type.Optional(Name),
  metadata: Type.Optional(Metadata),
  tags: Type.Optional(Tags),
}

/** `roles=true`: the caller's roles on it come with the record. */
export const ViewQuery = Type.Object({ roles: Type.Optional(Type.Boolean()) })

export const TagsUpdate = Type.Object({ tags: Type.Optional(Tags) })
export const ParentUpdate = Type.Object({ parent_group_id: ChosenId })

const AccessType = Type.Enum(['direct', 'direct_group', 'indirect_group', 'domain'])
const Text = (description: string) => Type.Optional(Type.String({ maxLength: 4096, description }))

/** Filters of a listing that both read alike; `peer` is what the other end of a connection is called. */
export function queryFields(peer: ConnectableType) {
  return {
    ...pageQuery(),
    name: Type.Optional(Name),
    tag: Type.Optional(Name),
    tags: Text('Comma-separated; all of them must be there'),
    status: StatusFilter,
    metadata: Type.Optional(MetadataFilter),
    id: Type.Optional(Id),
    connection_type: Type.Optional(
      Type.Enum(['publish', 'subscribe'], { description: `With \`${peer}\`: connected to it in this way` }),
    ),
    group: Type.Optional(Type.String({ maxLength: 36, description: 'Parent group; empty: without one' })),
    parentID: Type.Optional(Type.String({ maxLength: 36, description: 'The same as `group`' })),
    ownerID: Type.Optional(Type.String({ maxLength: 36, description: 'Created by this user' })),
    visibility: Type.Optional(
      Type.Enum(['all', 'mine', 'shared'], { description: 'mine: created by the caller; shared: by somebody else' }),
    ),
    user: Type.Optional(
      Type.String({ maxLength: 36, description: 'What this user reaches; for himself and administrators' }),
    ),
    actions: ActionsFilter('Comma-separated; the caller must hold all of them'),
    role_id: Type.Optional(Type.String({ maxLength: 64, description: 'The caller holds this role on it' })),
    role_name: Type.Optional(
      Type.String({ maxLength: 200, description: 'The caller holds a role of this name on it' }),
    ),
    access_type: Type.Optional(AccessType),
    order: OrderKey,
    dir: Type.Optional(Direction),
    only_total: Type.Optional(Type.Boolean()),
  }
}

/** One client or channel is found below its domain, or by its id alone wherever the caller reaches it (decision 31b). */
export type EntityPath = { base: string; params: TObject<Record<string, TString>>; isScoped: boolean }

export function entityPaths(type: ConnectableType | 'group' | 'user'): readonly EntityPath[] {
  const id = { [`${type}_id`]: Id }
  return [
    { base: `/:domain_id/${type}s/:${type}_id`, params: Type.Object({ domain_id: Id, ...id }), isScoped: true },
    { base: `/${type}s/:${type}_id`, params: Type.Object(id), isScoped: false },
  ]
}

/** Where a collection stands: below a domain, or across those that the caller reaches (decision 31). */
export function collectionPaths(type: ConnectableType): readonly EntityPath[] {
  return [
    { base: `/:domain_id/${type}s`, params: Type.Object({ domain_id: Id }), isScoped: true },
    { base: `/${type}s`, params: Type.Object({}), isScoped: false },
  ]
}

/** The fields of `recordFields`. */
export function presentRecord(record: ConnectableRecord) {
  return {
    id: record.id,
    name: record.name,
    domain_id: record.domainId,
    tags: record.tags,
    metadata: record.metadata,
    ...(record.parentGroupId === null ? {} : { parent_group_id: record.parentGroupId }),
    ...(record.createdBy === null ? {} : { created_by: record.createdBy }),
    created_at: formatTime(record.createdAt),
    updated_at: formatTime(record.updatedAt),
    ...(record.updatedBy === null ? {} : { updated_by: record.updatedBy }),
  }
}
