/** Wire shapes of imported files (contract section 13, bulk files), and the check of one item. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { NewChannel, NewClient } from '#api/devices/index.ts'
import { Id } from '#api/identity/index.ts'
import { fieldName } from '#core/errors/index.ts'
import type { ErrorDetail, ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { SECRET, checkOf, detailsOf, requireStorable, roundedInteger } from '#http/index.ts'
import { givenUnder, namesOf } from '#older/index.ts'

export const ImportedItem = Type.Object({ id: Id, name: Type.String() })
export const ImportedClients = Type.Object({
  total: Type.Integer(),
  clients: Type.Array(
    Type.Object({ id: Id, name: Type.String(), credentials: Type.Object({ secret: Type.String(SECRET) }) }),
  ),
})
export const ImportedChannels = Type.Object({ total: Type.Integer(), channels: Type.Array(ImportedItem) })
export const ImportedConnections = Type.Object({ total: Type.Integer({ description: 'Number of pairs in the file' }) })

const Ids = Type.Array(Type.String(), { minItems: 1 })
const ConnectionItem = Type.Object({
  client_ids: Type.Optional(Ids),
  channel_ids: Type.Optional(Ids),
  subjects: Type.Optional(Ids),
  objects: Type.Optional(Ids),
  thing_id: Type.Optional(Type.String()),
  client_id: Type.Optional(Type.String()),
  channel_id: Type.Optional(Type.String()),
  types: Type.Optional(Type.Array(Type.Enum(['publish', 'subscribe', 'm_write', 'm_read']), { minItems: 1 })),
})
type ConnectionItem = Static<typeof ConnectionItem>

const ITEMS = { clients: NewClient, channels: NewChannel, connections: ConnectionItem }

function inWords({ path, message }: ErrorDetail): string {
  const field = fieldName(path)
  return `${field === '' ? 'the item' : field} ${message}`
}

/** Returns the errors of an item, with what is accepted. */
export function faultsOf(kind: keyof typeof ITEMS, item: unknown): string[] {
  const rounded = roundedInteger(ITEMS[kind], item)
  if (rounded !== undefined) return [inWords(rounded)]
  return checkOf(ITEMS[kind]).Check(item) ? [] : detailsOf(ITEMS[kind], item).map(inWords)
}

/** Applies the checks of the JSON body parser to a record of CSV. */
export function storageFaultOf(record: Record<string, unknown>): string | undefined {
  try {
    requireStorable(record, '', 0)
    return undefined
  } catch (error) {
    return (error as ServiceError).message
  }
}

export type Pairs = { clientIds: string[]; channelIds: string[]; types: string[] | undefined }

const PLACE = 'api/provisioning/bulk/schema.ts'
const LISTS = { clients: namesOf(PLACE, 'client_ids'), channels: namesOf(PLACE, 'channel_ids') }
const CLIENT = namesOf(PLACE, 'client_id')

/** Returns the pairs of an item of a file, with newer or older field names, or the text of an error. */
export function pairsOf(item: unknown): Pairs | string {
  const faults = faultsOf('connections', item)
  if (faults.length > 0) return faults.join('; ')
  const given = item as ConnectionItem
  const one = (id: string | undefined) => (id === undefined ? undefined : [id])
  const clientIds = givenUnder(given, LISTS.clients) ?? one(givenUnder(given, CLIENT))
  const channelIds = givenUnder(given, LISTS.channels) ?? one(given.channel_id)
  if (clientIds === undefined) return 'contains no client'
  if (channelIds === undefined) return 'contains no channel'
  for (const id of clientIds) if (!isId(id)) return `client ${JSON.stringify(id)} is not a UUID in lower case`
  for (const id of channelIds) if (!isId(id)) return `channel ${JSON.stringify(id)} is not a UUID in lower case`
  return { clientIds, channelIds, types: given.types }
}
