/** What a call wants connected or disconnected, parsed from the names of either generation (contract 4.2, decision 16). */
import { CONNECTION_BITS, parseConnectionType } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { requireFewItems } from '../connectable/bulk.ts'
import type { Connecting } from './schema.ts'

/** Pairs that one call may name (contract 7.1). */
export const MAX_PAIRS = 100_000

export const BOTH = CONNECTION_BITS.publish | CONNECTION_BITS.subscribe

/** Every client of the one list with every channel of the other. */
export type Wanted = { clientIds: string[]; channelIds: string[]; bits: number }

/** Throws `malformed`, and `too_large` for more than one call may name. */
export function parseWanted(connections: readonly Connecting[]): Wanted[] {
  const wanted = connections.map(parseOne)
  const pairs = wanted.reduce((sum, { clientIds, channelIds }) => sum + clientIds.length * channelIds.length, 0)
  requireFewPairs(pairs)
  return wanted
}

/** Throws `too_large`. */
export function requireFewPairs(pairs: number): void {
  if (pairs > MAX_PAIRS)
    throw new ServiceError('too_large', `one call may name ${MAX_PAIRS} pairs of clients and channels, not ${pairs}`)
}

/** Either generation's names; no types at all means both (contract 4.2). */
function parseOne(connection: Connecting): Wanted {
  let bits = 0
  for (const text of connection.types ?? connection.actions ?? []) {
    const type = parseConnectionType(text)
    if (type === undefined) throw refuse('/types', 'must hold publish and subscribe only')
    bits |= CONNECTION_BITS[type]
  }
  return {
    clientIds: requireIds(connection.client_ids ?? connection.subjects ?? single(connection.thing_id), '/client_ids'),
    channelIds: requireIds(
      connection.channel_ids ?? connection.objects ?? single(connection.channel_id),
      '/channel_ids',
    ),
    bits: bits === 0 ? BOTH : bits,
  }
}

const single = (id: string | undefined) => (id === undefined ? undefined : [id])

function requireIds(ids: readonly string[] | undefined, path: string): string[] {
  if (ids === undefined) throw refuse(path, 'is required')
  requireFewItems(ids.length, path.slice(1))
  for (const id of ids) if (!isId(id)) throw refuse(path, 'must hold UUIDs in lower case')
  return [...new Set(ids)]
}

function refuse(path: string, message: string): ServiceError {
  return new ServiceError('malformed', `${path.slice(1)} ${message}`, { details: [{ path, message }] })
}

/** What the journal tells of it (contract section 10: channel.connect). */
export function factsOf({ clientIds, channelIds, bits }: Wanted): Record<string, unknown> {
  return { client_ids: clientIds, channel_ids: channelIds, types: typesOf(bits) }
}

function typesOf(bits: number): string[] {
  return Object.entries(CONNECTION_BITS)
    .filter(([, bit]) => (bits & bit) !== 0)
    .map(([type]) => type)
}
