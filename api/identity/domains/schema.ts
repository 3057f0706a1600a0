/** Wire shapes of domains (contract sections 1.1 and 1.2, decision 23). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Direction, pageFields, pageQuery } from '#core/page.ts'
import { ZERO_TIME, formatTime } from '#core/time.ts'
import { relationNameOf } from '../roles/index.ts'
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
  TagsFilter,
  Timestamp,
  createdFields,
} from '../wire/index.ts'
import { DOMAIN_STATUSES } from './record.ts'
import type { DomainRecord, AssignedRole } from './record.ts'

const Route = Type.String({
  maxLength: 36,
  description: 'Alias in message paths: a letter, then letters, digits, _ and -; unique',
})
/** A hundred years. Omit the field to keep messages forever. */
const MAX_RETENTION_DAYS = 36_500
const RetentionDays = Type.Integer({
  minimum: 1,
  maximum: MAX_RETENTION_DAYS,
  description: 'Number of days that messages are kept',
})

const AlarmRetentionDays = Type.Integer({
  minimum: 1,
  maximum: MAX_RETENTION_DAYS,
  description: 'Number of days that alarms are kept after they were cleared',
})

const AssignedRoleBody = Type.Object({
  role_id: Type.String(),
  role_name: Type.String(),
  actions: Type.Array(Type.String()),
  access_type: Type.Literal('direct'),
})

export const Domain = Type.Object(
  {
    id: Id,
    name: Type.String(),
    alias: Type.String({ description: 'Same value as `route`' }),
    route: Type.String(),
    tags: Type.Array(Type.String()),
    metadata: Metadata,
    status: Type.Enum([...DOMAIN_STATUSES]),
    retention_days: Type.Optional(Type.Integer()),
    alarm_retention_days: Type.Optional(
      Type.Integer({ description: 'Absent: as the platform says, by default 365 days' }),
    ),
    created_by: Type.Optional(Id),
    created_at: Timestamp,
    updated_by: Type.Optional(Id),
    updated_at: Timestamp,
    role_id: Type.Optional(Type.String({ description: 'Role of the caller; in lists' })),
    role_name: Type.Optional(Type.String()),
    actions: Type.Optional(Type.Array(Type.String())),
    permission: Type.Optional(Type.String({ description: 'Role of the caller as a relation; in lists' })),
    member_id: Type.Optional(Type.String({ description: 'Id of the caller; with `roles=true`' })),
    roles: Type.Optional(
      Type.Array(AssignedRoleBody, { description: 'Every role of the caller in the domain; with `roles=true`' }),
    ),
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
    alarm_retention_days: Type.Optional(AlarmRetentionDays),
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
  alarm_retention_days: Type.Optional(Type.Union([AlarmRetentionDays, Type.Null()])),
})
export type DomainUpdate = Static<typeof DomainUpdate>

export const DomainQuery = Type.Object({
  ...pageQuery(),
  status: Type.Enum([...DOMAIN_STATUSES, 'all'], { default: 'enabled' }),
  name: Type.Optional(Name),
  tag: Type.Optional(Name),
  tags: TagsFilter,
  id: Type.Optional(Id),
  ...createdFields,
  metadata: Type.Optional(MetadataFilter),
  role_id: Type.Optional(Type.String({ maxLength: 64, description: 'Domains in which the caller has this role' })),
  role_name: Type.Optional(
    Type.String({ maxLength: 200, description: 'Domains in which the caller has a role with this name' }),
  ),
  actions: ActionsFilter('Comma-separated actions; domains in which one role of the caller contains all of them'),
  access_type: Type.Optional(
    Type.Enum(['direct', 'direct_group', 'indirect_group', 'domain'], {
      description:
        '`direct`: domains in which the caller has a role; the others select none, because groups give no role in a domain',
    }),
  ),
  user: Type.Optional(
    Type.String({
      maxLength: 36,
      description: 'Domains of the caller as administrator in which this user has a role',
    }),
  ),
  order: OrderKey,
  dir: Type.Optional(Direction),
  only_total: Type.Optional(Type.Boolean()),
})
export type DomainQuery = Static<typeof DomainQuery>

export const DomainView = Type.Object({
  roles: Type.Optional(Type.Boolean({ description: 'Adds the roles of the caller in the domain' })),
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
    ...(domain.alarmRetentionDays === null ? {} : { alarm_retention_days: domain.alarmRetentionDays }),
    ...(domain.createdBy === null ? {} : { created_by: domain.createdBy }),
    created_at: formatTime(domain.createdAt),
    ...(domain.updatedBy === null ? {} : { updated_by: domain.updatedBy }),
    updated_at: domain.updatedAt === null ? ZERO_TIME : formatTime(domain.updatedAt),
  }
}

/** Presents an item of a list, with the role of the user. */
export function presentListedDomain({
  domain,
  role,
}: {
  domain: DomainRecord
  role: AssignedRole | undefined
}): Domain {
  if (role === undefined) return presentDomain(domain)
  return {
    ...presentDomain(domain),
    role_id: role.id,
    role_name: role.name,
    actions: role.actions,
    permission: relationNameOf(role.name),
  }
}

/** Presents a domain with every role of the caller in it (`?roles=true`). */
export function presentDomainWithRoles(domain: DomainRecord, memberId: string, roles: readonly AssignedRole[]): Domain {
  return {
    ...presentDomain(domain),
    member_id: memberId,
    roles: roles.map(({ id, name, actions }) => ({ role_id: id, role_name: name, actions, access_type: 'direct' })),
  }
}
