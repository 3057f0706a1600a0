/** Wire shapes of channels (specification section 2, contract 4.2). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { EffectiveAccessFields, EnabledStatus, Id, ShownRolesFields } from '#api/identity/index.ts'
import { pageFields } from '#core/page.ts'
import { MAX_BULK_ITEMS } from '../connectable/bulk.ts'
import {
  creationFields,
  newerCreation,
  presentRecord,
  queryFields,
  recordFields,
  updateFields,
} from '../connectable/schema.ts'
import type { ChannelRecord } from './repository.ts'

const MAX_DESCRIPTION_CHARS = 4096
const Description = Type.String({ maxLength: MAX_DESCRIPTION_CHARS })
const Route = Type.String({ maxLength: 36, description: 'Alias of the channel in message paths; unique in the domain' })
/** A hundred years. Omit the field to keep messages forever. */
const MAX_RETENTION_DAYS = 36_500
const RetentionDays = Type.Integer({
  minimum: 1,
  maximum: MAX_RETENTION_DAYS,
  description: 'Number of days that messages are kept; defaults to the setting of the domain',
})

export const Channel = Type.Object(
  {
    ...recordFields,
    description: Type.Optional(Type.String()),
    route: Type.Optional(Type.String()),
    retention_days: Type.Optional(Type.Integer()),
    status: EnabledStatus,
    owner_id: Type.Optional(Id),
    ...EffectiveAccessFields.properties,
    ...ShownRolesFields.properties,
  },
  { $id: 'Channel', description: 'Channel: a communication group of clients' },
)
export type Channel = Static<typeof Channel>

export const NewChannel = Type.Object(
  {
    ...creationFields,
    description: Type.Optional(Description),
    route: Type.Optional(Route),
    retention_days: Type.Optional(RetentionDays),
  },
  { $id: 'ChannelCreate' },
)
export type NewChannel = Static<typeof NewChannel>

export const NewChannels = Type.Array(NewChannel, { minItems: 1, description: `At most ${MAX_BULK_ITEMS}` })

/** A null value clears the field. */
export const ChannelUpdate = Type.Object({
  ...updateFields,
  description: Type.Optional(Type.Union([Description, Type.Null()])),
  route: Type.Optional(Type.Union([Route, Type.Null()])),
  retention_days: Type.Optional(Type.Union([RetentionDays, Type.Null()])),
})
export type ChannelUpdate = Static<typeof ChannelUpdate>

/** A change whose empty route means no route: older clients send every field. */
export const newerUpdate = (body: ChannelUpdate): ChannelUpdate =>
  body.route === undefined ? body : { route: null, ...newerCreation(body) }

export const ChannelQuery = Type.Object({
  ...queryFields('client'),
  client: Type.Optional(Type.String({ maxLength: 36, description: 'Connected to this client' })),
  tree: Type.Optional(Type.Boolean({ description: 'Has no effect: channels have no children' })),
})
export type ChannelQuery = Static<typeof ChannelQuery>

export const ChannelPage = Type.Object({ ...pageFields, channels: Type.Array(Channel) })
export type ChannelPage = Static<typeof ChannelPage>

export function presentChannel(channel: ChannelRecord): Channel {
  return {
    ...presentRecord(channel),
    ...(channel.description === null ? {} : { description: channel.description }),
    ...(channel.route === null ? {} : { route: channel.route }),
    ...(channel.retentionDays === null ? {} : { retention_days: channel.retentionDays }),
    status: channel.status,
    ...(channel.createdBy === null ? {} : { owner_id: channel.createdBy }),
  }
}
