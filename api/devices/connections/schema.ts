/**
 * Wire shapes of connect and disconnect: the current field names, their legacy synonyms, and the record of the legacy
 * paths (specification section 2 Connection, contract 4.2, decisions 16 and 52).
 */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { documented } from '#http/index.ts'
import { CONNECTION_TYPES, Id, Timestamp, presentConnectionActions } from '#api/identity/index.ts'
import { formatTime } from '#core/time.ts'
import { MAX_BULK_ITEMS } from '../connectable/bulk.ts'
import type { ConnectionRecord } from './repository.ts'

const Ids = Type.Array(Type.String({ maxLength: 36, ...documented({ format: 'uuid' }) }), {
  minItems: 1,
  description: `UUIDs, at most ${MAX_BULK_ITEMS}`,
})
const Types = Type.Array(
  Type.String({
    maxLength: 16,
    description: '`publish` or `subscribe` in any case, `m_write` or `m_read`',
    ...documented({ enum: [...CONNECTION_TYPES, 'm_write', 'm_read'] }),
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
  thing_id: Type.Optional(Type.String({ maxLength: 36, description: 'Id of one client; legacy name' })),
  channel_id: Type.Optional(Type.String({ maxLength: 36, description: 'Id of one channel' })),
}

export const Connecting = Type.Object(fields, {
  $id: 'Connecting',
  description:
    'Connects every client of the first list with every channel of the second; `types` defaults to both types',
})
export type Connecting = Static<typeof Connecting>

/** Maximum number of items in one request, which is applied completely or not at all. */
export const MAX_CONNECTIONS = 1000
export const Connectings = Type.Union([Connecting, Type.Array(Connecting, { minItems: 1, maxItems: MAX_CONNECTIONS })])

/** Request body when the path contains the channel. */
export const ChannelConnecting = Type.Pick(Connecting, ['client_ids', 'subjects', 'types', 'actions'])

export const Connection = Type.Object(
  {
    owner_id: Type.Optional(Id),
    subject: Type.String({ description: 'Id of the client' }),
    object: Type.String({ description: 'Id of the channel' }),
    actions: Type.Array(Type.String(), { description: '`m_write` is publish, `m_read` is subscribe' }),
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
