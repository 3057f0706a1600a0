/** Wire shapes of channels (specification section 2, contract 4.2). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import {
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
import { Direction, pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import { MAX_BULK_ITEMS } from '../bulk.ts'
import type { ChannelRecord } from './repository.ts'

const MAX_DESCRIPTION_CHARS = 4096
const Description = Type.String({ maxLength: MAX_DESCRIPTION_CHARS })
const Route = Type.String({ maxLength: 36, description: 'Second name in message paths; unique in the domain' })
/** A hundred years; beyond, leave it out and nothing is removed. */
const MAX_RETENTION_DAYS = 36_500
const RetentionDays = Type.Integer({
  minimum: 1,
  maximum: MAX_RETENTION_DAYS,
  description: 'Days that messages are kept; none: as the domain says',
})

export const Channel = Type.Object(
  {
    id: Id,
    name: Type.String(),
    description: Type.Optional(Type.String()),
    domain_id: Id,
    route: Type.Optional(Type.String()),
    tags: Type.Array(Type.String()),
    metadata: Metadata,
    parent_group_id: Type.Optional(Id),
    retention_days: Type.Optional(Type.Integer()),
    status: Type.Enum(['enabled', 'disabled']),
    owner_id: Type.Optional(Id),
    created_by: Type.Optional(Id),
    created_at: Timestamp,
    updated_at: Timestamp,
    updated_by: Type.Optional(Id),
  },
  { $id: 'Channel', description: 'Channel: a communication group of clients' },
)
export type Channel = Static<typeof Channel>

export const NewChannel = Type.Object(
  {
    id: Type.Optional(ChosenId),
    name: Type.Optional(Name),
    description: Type.Optional(Description),
    route: Type.Optional(Route),
    tags: Type.Optional(Tags),
    metadata: Type.Optional(Metadata),
    status: Type.Optional(EnabledStatus),
    retention_days: Type.Optional(RetentionDays),
  },
  { $id: 'NewChannel' },
)
export type NewChannel = Static<typeof NewChannel>

export const NewChannels = Type.Array(NewChannel, { minItems: 1, description: `At most ${MAX_BULK_ITEMS}` })

export const ChannelUpdate = Type.Object({
  name: Type.Optional(Name),
  description: Type.Optional(Type.Union([Description, Type.Null()])),
  metadata: Type.Optional(Metadata),
  tags: Type.Optional(Tags),
  retention_days: Type.Optional(Type.Union([RetentionDays, Type.Null()])),
})
export type ChannelUpdate = Static<typeof ChannelUpdate>

export const TagsUpdate = Type.Object({ tags: Type.Optional(Tags) })

export const ChannelQuery = Type.Object({
  ...pageQuery(),
  name: Type.Optional(Name),
  tag: Type.Optional(Name),
  tags: Type.Optional(
    Type.String({ maxLength: 4096, description: 'Comma-separated; a channel must have all of them' }),
  ),
  status: StatusFilter,
  metadata: Type.Optional(MetadataFilter),
  id: Type.Optional(Id),
  client: Type.Optional(Type.String({ maxLength: 36, description: 'Connected to this client' })),
  connection_type: Type.Optional(Type.Enum(['publish', 'subscribe'])),
  group: Type.Optional(Type.String({ maxLength: 36, description: 'Parent group; empty: without one' })),
  order: OrderKey,
  dir: Type.Optional(Direction),
  only_total: Type.Optional(Type.Boolean()),
})
export type ChannelQuery = Static<typeof ChannelQuery>

export const ChannelPage = Type.Object({ ...pageFields, channels: Type.Optional(Type.Array(Channel)) })

export function presentChannel(channel: ChannelRecord): Channel {
  return {
    id: channel.id,
    name: channel.name,
    ...(channel.description === null ? {} : { description: channel.description }),
    domain_id: channel.domainId,
    ...(channel.route === null ? {} : { route: channel.route }),
    tags: channel.tags,
    metadata: channel.metadata,
    ...(channel.parentGroupId === null ? {} : { parent_group_id: channel.parentGroupId }),
    ...(channel.retentionDays === null ? {} : { retention_days: channel.retentionDays }),
    status: channel.status,
    ...(channel.createdBy === null ? {} : { owner_id: channel.createdBy, created_by: channel.createdBy }),
    created_at: formatTime(channel.createdAt),
    updated_at: formatTime(channel.updatedAt),
    ...(channel.updatedBy === null ? {} : { updated_by: channel.updatedBy }),
  }
}
