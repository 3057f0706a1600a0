/** Wire shapes of domains (contract sections 1.1 and 1.2, decision 23). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Direction, pageFields, pageQuery } from '#core/page.ts'
import { ZERO_TIME, formatTime } from '#core/time.ts'
import { relationOf } from '../roles/index.ts'
import {
  ActionsFilter,
  ChosenId,
  EnabledStatus,
  Id,
  Metadata,
  MetadataFilter,
  Name,
  OrderKey,
  RequiredName,
  Tags,
  Timestamp,
} from '../wire/index.ts'
import { DOMAIN_STATUSES } from './record.ts'
import type { DomainRecord, HeldRole } from './record.ts'

const Route = Type.String({ maxLength: 36, description: 'Letter first, then letters, digits, _ and -; unique' })
/** A hundred years; beyond, leave it out and nothing is removed. */
const MAX_RETENTION_DAYS = 36_500
const RetentionDays = Type.Integer({
  minimum: 1,
  maximum: MAX_RETENTION_DAYS,
  description: 'Days that messages are kept',
})

const HeldRoleBody = Type.Object({
  role_id: Type.String(),
  role_name: Type.String(),
  actions: Type.Array(Type.String()),
  access_type: Type.Literal('direct'),
})

export const Domain = Type.Object(
  {
    id: Id,
    name: Type.String(),
    alias: Type.String({ description: 'The same value as route' }),
    route: Type.String(),
    tags: Type.Array(Type.String()),
    metadata: Metadata,
    status: Type.Enum([...DOMAIN_STATUSES]),
    retention_days: Type.Optional(Type.Integer()),
    created_by: Type.Optional(Id),
    created_at: Timestamp,
    updated_by: Type.Optional(Id),
    updated_at: Timestamp,
    role_id: Type.Optional(Type.String({ description: "In lists: the caller's role" })),
    role_name: Type.Optional(Type.String()),
    actions: Type.Optional(Type.Array(Type.String())),
    permission: Type.Optional(Type.String({ description: "In lists: the caller's role as a relation" })),
    member_id: Type.Optional(Type.String({ description: 'With roles=true: the caller' })),
    roles: Type.Optional(Type.Array(HeldRoleBody, { description: 'With roles=true: every role of the caller in it' })),
  },
  { $id: 'Domain', description: 'Domain' },
)
export type Domain = Static<typeof Domain>

export const NewDomain = Type.Object(
  {
    id: Type.Optional(ChosenId),
    name: RequiredName,
    alias: Type.Optional(Route),
    route: Type.Optional(Route),
    tags: Type.Optional(Tags),
    metadata: Type.Optional(Metadata),
    status: Type.Optional(EnabledStatus),
    retention_days: Type.Optional(RetentionDays),
  },
  { $id: 'DomainCreate' },
)
export type NewDomain = Static<typeof NewDomain>

export const DomainUpdate = Type.Object({
  name: Type.Optional(RequiredName),
  alias: Type.Optional(Route),
  tags: Type.Optional(Tags),
  metadata: Type.Optional(Metadata),
  retention_days: Type.Optional(Type.Union([RetentionDays, Type.Null()])),
})
export type DomainUpdate = Static<typeof DomainUpdate>

export const DomainQuery = Type.Object({
  ...pageQuery(),
  status: Type.Enum([...DOMAIN_STATUSES, 'all'], { default: 'enabled' }),
  name: Type.Optional(Name),
  tag: Type.Optional(Name),
  id: Type.Optional(Id),
  metadata: Type.Optional(MetadataFilter),
  role_id: Type.Optional(Type.String({ maxLength: 64, description: 'Only where the caller holds this role' })),
  role_name: Type.Optional(
    Type.String({ maxLength: 200, description: 'Only where the caller holds a role of this name' }),
  ),
  actions: ActionsFilter('Only where one role of the caller holds all of these; separated by commas'),
  user: Type.Optional(
    Type.String({
      maxLength: 36,
      description: 'Only where this user has a role, of the domains that the caller administers',
    }),
  ),
  order: OrderKey,
  dir: Type.Optional(Direction),
  only_total: Type.Optional(Type.Boolean()),
})
export type DomainQuery = Static<typeof DomainQuery>

export const DomainView = Type.Object({
  roles: Type.Optional(Type.Boolean({ description: "With the caller's roles in it" })),
})

export const DomainPage = Type.Object({ ...pageFields, domains: Type.Array(Domain) })

export function presentDomain(domain: DomainRecord): Domain {
  return {
    id: domain.id,
    name: domain.name,
    alias: domain.route,
    route: domain.route,
    tags: domain.tags,
    metadata: domain.metadata,
    status: domain.status,
    ...(domain.retentionDays === null ? {} : { retention_days: domain.retentionDays }),
    ...(domain.createdBy === null ? {} : { created_by: domain.createdBy }),
    created_at: formatTime(domain.createdAt),
    ...(domain.updatedBy === null ? {} : { updated_by: domain.updatedBy }),
    updated_at: domain.updatedAt === null ? ZERO_TIME : formatTime(domain.updatedAt),
  }
}

/** An item of a list: with the role through which the user has it. */
export function presentListedDomain({ domain, role }: { domain: DomainRecord; role: HeldRole | undefined }): Domain {
  if (role === undefined) return presentDomain(domain)
  return {
    ...presentDomain(domain),
    role_id: role.id,
    role_name: role.name,
    actions: role.actions,
    permission: relationOf(role.name),
  }
}

/** One domain with every role of the caller in it (`?roles=true`). */
export function presentDomainWithRoles(domain: DomainRecord, memberId: string, roles: readonly HeldRole[]): Domain {
  return {
    ...presentDomain(domain),
    member_id: memberId,
    roles: roles.map(({ id, name, actions }) => ({ role_id: id, role_name: name, actions, access_type: 'direct' })),
  }
}
