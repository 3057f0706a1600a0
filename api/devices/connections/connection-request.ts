/**
 * Parses the pairs of a connect or disconnect request, with newer or older field names (contract 4.2, decision 16). Routes call it, so that
 * the service knows the parsed request only.
 */
import { CONNECTION_BITS, parseConnectionType } from '#api/identity/index.ts'
import { ServiceError, fieldName, refusedField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { namesOf } from '#older/index.ts'
import { requireItemLimit } from '../connectable/bulk.ts'
import type { Connecting } from './schema.ts'

/** Maximum number of pairs in one request (contract 7.1). */
export const MAX_PAIRS = 100_000

export const BOTH = CONNECTION_BITS.publish | CONNECTION_BITS.subscribe

/** Every client of the first list with every channel of the second. */
export type ConnectionRequest = { clientIds: string[]; channelIds: string[]; bits: number }

/** Ids of the path replace those of the body. Throws as `parseConnectionPairs`, and `not_found` for an invalid id in the path. */
export function requestsOf(path: PathIds, body: Connecting | readonly Connecting[]): ConnectionRequest[] {
  return parseConnectionPairs([body].flat().map((one) => withPath(path, one)))
}

type PathIds = { channelId?: string; clientId?: string }

/** An invalid id in the path is `not_found`, like an unknown one. */
function withPath({ channelId, clientId }: PathIds, connection: Connecting): Connecting {
  for (const id of [channelId, clientId]) {
    if (id !== undefined && !isId(id)) throw new ServiceError('not_found', 'entity not found')
  }
  return {
    ...connection,
    ...(channelId === undefined ? {} : { channel_ids: [channelId] }),
    ...(clientId === undefined ? {} : { client_ids: [clientId] }),
  }
}

/** Throws `malformed`, and `too_large` for more than `MAX_PAIRS` pairs. */
export function parseConnectionPairs(connections: readonly Connecting[]): ConnectionRequest[] {
  const wanted = connections.map((connection, index) =>
    parseOne(connection, connections.length === 1 ? '' : `/${index}`),
  )
  const pairs = wanted.reduce((sum, { clientIds, channelIds }) => sum + clientIds.length * channelIds.length, 0)
  requirePairLimit(pairs)
  return wanted
}

/** Throws `too_large`. */
export function requirePairLimit(pairs: number): void {
  if (pairs > MAX_PAIRS)
    throw new ServiceError(
      'too_large',
      `a request is limited to ${MAX_PAIRS} pairs of clients and channels: got ${pairs}`,
    )
}

/** The names of each field; the first one that the caller sent counts. */
const PLACE = 'api/devices/connections/connection-request.ts'
const CLIENT_FIELDS = namesOf(PLACE, 'client_ids')
const CHANNEL_FIELDS = namesOf(PLACE, 'channel_ids')
const TYPE_FIELDS = namesOf(PLACE, 'types')

/** The number of pairs that a parsed body of any form stands for. The channel of a path counts as one. */
export function pairsOf(body: unknown): number {
  const lengthOf = (item: Connecting, fields: readonly (keyof Connecting)[]) => {
    const given = fields.map((field) => item[field]).find((ids) => ids !== undefined)
    return Array.isArray(given) ? given.length : 1
  }
  const items = [body].flat().filter((item): item is Connecting => typeof item === 'object' && item !== null)
  return items.reduce((sum, item) => sum + lengthOf(item, CLIENT_FIELDS) * lengthOf(item, CHANNEL_FIELDS), 0)
}

/** Without types it selects both (contract 4.2). `at` is the path of the item in a list. */
function parseOne(connection: Connecting, at: string): ConnectionRequest {
  let bits = 0
  const typesField = TYPE_FIELDS.find((field) => connection[field] !== undefined)
  for (const text of typesField === undefined ? [] : (connection[typesField] ?? [])) {
    const type = parseConnectionType(text)
    if (type === undefined) throw refusedField(`${at}/${typesField}`, 'must contain only publish and subscribe')
    bits |= CONNECTION_BITS[type]
  }
  return {
    clientIds: requireIds(connection, 'client_ids', at),
    channelIds: requireIds(connection, 'channel_ids', at),
    bits: bits === 0 ? BOTH : bits,
  }
}

/** The ids of the first field that is present. Errors name that field, or the newer name if none is present. */
function requireIds(connection: Connecting, newer: 'client_ids' | 'channel_ids', at: string): string[] {
  const fields = newer === 'client_ids' ? CLIENT_FIELDS : CHANNEL_FIELDS
  const field = fields.find((name) => connection[name] !== undefined) ?? newer
  const path = `${at}/${field}`
  const value = connection[field]
  if (value === undefined) throw refusedField(path, 'is required')
  if (typeof value === 'string') {
    if (!isId(value)) throw refusedField(path, 'must be a UUID in lower case')
    return [value]
  }
  requireItemLimit(value.length, fieldName(path))
  for (const id of value) if (!isId(id)) throw refusedField(path, 'must contain only UUIDs in lower case')
  return [...new Set(value)]
}

/** Attributes of the journal entry (contract section 10: channel.connect). */
export function factsOf({ clientIds, channelIds, bits }: ConnectionRequest): Record<string, unknown> {
  return { client_ids: clientIds, channel_ids: channelIds, types: typesOf(bits) }
}

function typesOf(bits: number): string[] {
  return Object.entries(CONNECTION_BITS)
    .filter(([, bit]) => (bits & bit) !== 0)
    .map(([type]) => type)
}
