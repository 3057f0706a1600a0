/** Wire shapes of connect and disconnect: the newer names, and the older ones that mean the same (contract 4.2, decision 16). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { MAX_BULK_ITEMS } from '../bulk.ts'

const Ids = Type.Array(Type.String({ maxLength: 36 }), {
  minItems: 1,
  description: `UUIDs, at most ${MAX_BULK_ITEMS}`,
})
const Types = Type.Array(
  Type.String({ maxLength: 16, description: 'publish, subscribe (any case), m_write, m_read' }),
  { minItems: 1, maxItems: 4 },
)

const fields = {
  client_ids: Type.Optional(Ids),
  channel_ids: Type.Optional(Ids),
  types: Type.Optional(Types),
  subjects: Type.Optional(Ids),
  objects: Type.Optional(Ids),
  actions: Type.Optional(Types),
}

export const Connection = Type.Object(fields, {
  $id: 'Connection',
  description: 'Every client of the one list with every channel of the other; `types` absent: both',
})
export type Connection = Static<typeof Connection>

/** Several at once: all or nothing. */
export const MAX_CONNECTIONS = 1000
export const Connections = Type.Union([Connection, Type.Array(Connection, { minItems: 1, maxItems: MAX_CONNECTIONS })])

/** With the channel in the path. */
export const ChannelConnection = Type.Pick(Connection, ['client_ids', 'subjects', 'types', 'actions'])
