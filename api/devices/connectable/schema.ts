/** Wire fields that clients and channels share (contract 4.1, 4.2). */
import { Type } from 'typebox'
import type { Static, TObject, TString } from 'typebox'
import {
  ActionsFilter,
  ChosenId,
  EnabledStatus,
  Id,
  IdsFilter,
  Metadata,
  MetadataFilter,
  Name,
  OrderKey,
  StatusFilter,
  Tags,
  Timestamp,
  createdFields,
} from '#api/identity/index.ts'
import { Direction, pageQuery } from '#core/page.ts'
import { withoutEmpty } from '#older/index.ts'
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

/** Fields of a creation. */
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

/** A creation without empty texts that mean no value: older clients send every field. */
export const newerCreation = <Body extends object>(body: Body): Body =>
  withoutEmpty('api/devices/connectable/schema.ts', body)

/** Fields of a change. Absent fields are unchanged. */
export const updateFields = {
  name: Type.Optional(Name),
  metadata: Type.Optional(Metadata),
  tags: Type.Optional(Tags),
}

/** `roles=true` adds the caller's roles on the entity to the record. */
export const ViewQuery = Type.Object({ roles: Type.Optional(Type.Boolean()) })

export const TagsUpdate = Type.Object({ tags: Type.Optional(Tags) })
export const ParentUpdate = Type.Object({ parent_group_id: ChosenId })

const AccessType = Type.Enum(['direct', 'direct_group', 'indirect_group', 'domain'])
const Text = (description: string) => Type.Optional(Type.String({ maxLength: 4096, description }))

/** Filters that both listings share. `peer` is the type of the other end of a connection. */
export function queryFields(peer: ConnectableType) {
  return {
    ...pageQuery(),
    name: Type.Optional(Name),
    tag: Type.Optional(Name),
    tags: Text('Comma-separated tags; an entity must have all of them'),
    status: StatusFilter,
    metadata: Type.Optional(MetadataFilter),
    id: IdsFilter,
    ...createdFields,
    connection_type: Type.Optional(
      Type.Enum(['publish', 'subscribe'], { description: `Type of the connection to \`${peer}\`` }),
    ),
    group: Type.Optional(
      Type.String({ maxLength: 36, description: 'Id of the parent group; empty for entities without a parent' }),
    ),
    parentID: Type.Optional(Type.String({ maxLength: 36, description: 'Alias of `group`' })),
    ownerID: Type.Optional(Type.String({ maxLength: 36, description: 'Created by this user' })),
    visibility: Type.Optional(
      Type.Enum(['all', 'mine', 'shared'], {
        description: '`mine`: created by the caller; `shared`: created by other users',
      }),
    ),
    user: Type.Optional(
      Type.String({
        maxLength: 36,
        description: 'Entities that this user has access to; requires this user or an administrator',
      }),
    ),
    actions: ActionsFilter('Comma-separated actions; the caller must have all of them on the entity'),
    role_id: Type.Optional(Type.String({ maxLength: 64, description: 'Entities on which the caller has this role' })),
    role_name: Type.Optional(
      Type.String({ maxLength: 200, description: 'Entities on which the caller has a role with this name' }),
    ),
    access_type: Type.Optional(AccessType),
    order: OrderKey,
    dir: Type.Optional(Direction),
    only_total: Type.Optional(Type.Boolean()),
  }
}

/**
 * A path of one entity: below its domain, or by its id alone in the domains that the caller has access to (decision
 * 31b).
 */
export type EntityPath = { base: string; params: TObject<Record<string, TString>>; isScoped: boolean }

export function entityPaths(type: ConnectableType | 'group' | 'user'): readonly EntityPath[] {
  const id = { [`${type}_id`]: Id }
  return [
    { base: `/:domain_id/${type}s/:${type}_id`, params: Type.Object({ domain_id: Id, ...id }), isScoped: true },
    { base: `/${type}s/:${type}_id`, params: Type.Object(id), isScoped: false },
  ]
}

/** Paths of a collection: below a domain, or across the domains that the caller has access to (decision 31). */
export function collectionPaths(type: ConnectableType): readonly EntityPath[] {
  return [
    { base: `/:domain_id/${type}s`, params: Type.Object({ domain_id: Id }), isScoped: true },
    { base: `/${type}s`, params: Type.Object({}), isScoped: false },
  ]
}

/** Returns the fields of `recordFields`. */
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
