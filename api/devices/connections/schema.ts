/**
 * Wire shapes of connect and disconnect: the newer names, the older ones that mean the same, and the record of the older
 * paths (specification section 2 Connection, contract 4.2, decisions 16 and 52).
 */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { shown } from '#core/http/index.ts'
import { CONNECTION_TYPES, Id, Timestamp, presentConnectionActions } from '#api/identity/index.ts'
import { formatTime } from '#core/time.ts'
import { MAX_BULK_ITEMS } from '../connectable/bulk.ts'
import type { ConnectionRecord } from './repository.ts'

const Ids = Type.Array(Type.String({ maxLength: 36, ...shown({ format: 'uuid' }) }), {
  minItems: 1,
  description: `UUIDs, at most ${MAX_BULK_ITEMS}`,
})
const Types = Type.Array(
  Type.String({
    maxLength: 16,
    description: 'publish, subscribe (any case), m_write, m_read',
    ...shown({ enum: [...CONNECTION_TYPES, 'm_write', 'm_read'] }),
  }),
  { minItems: 1, maxItems: 4 },
)

const fields = {
  client_ids: Type.Optional(Ids),
  channel_ids: Type.Optional(Ids),
  types: Type.Optional(Types),
  subjects: Type.Optional(Ids),
  objects: Type.Optional(Ids),
  actions: Type.Optional(Types),
  thing_id: Type.Optional(Type.String({ maxLength: 36, description: 'One client, under its older name' })),
  channel_id: Type.Optional(Type.String({ maxLength: 36, description: 'One channel' })),
}

export const Connecting = Type.Object(fields, {
  $id: 'Connecting',
  description: 'Every client of the one list with every channel of the other; `types` absent: both',
})
export type Connecting = Static<typeof Connecting>

/** Several at once: all or nothing. */
export const MAX_CONNECTIONS = 1000
export const Connectings = Type.Union([Connecting, Type.Array(Connecting, { minItems: 1, maxItems: MAX_CONNECTIONS })])

/** With the channel in the path. */
export const ChannelConnecting = Type.Pick(Connecting, ['client_ids', 'subjects', 'types', 'actions'])

export const Connection = Type.Object(
  {
    owner_id: Type.Optional(Id),
    subject: Type.String({ description: 'Id of the client' }),
    object: Type.String({ description: 'Id of the channel' }),
    actions: Type.Array(Type.String(), { description: 'm_write: publish, m_read: subscribe' }),
    created_at: Timestamp,
    updated_at: Timestamp,
  },
  { $id: 'Connection', description: 'Connection of a client with a channel' },
)
export type Connection = Static<typeof Connection>

export function presentConnection(connection: ConnectionRecord): Connection {
  return {
    ...(connection.createdBy === null ? {} : { owner_id: connection.createdBy }),
    subject: connection.clientId,
    object: connection.channelId,
    actions: presentConnectionActions(connection.bits),
    created_at: formatTime(connection.createdAt),
    updated_at: formatTime(connection.updatedAt),
  }
}
