/** The rules of connecting clients and channels (contract 4.2, 2.5, decisions 16 and 16b). */
import { CONNECTION_BITS, parseConnectionType } from '#api/identity/index.ts'
import type { AccessPolicy, DomainAccess, Journal, UserPrincipal } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { requireFewItems } from '../bulk.ts'
import type { Connecting, Endpoint } from './repository.ts'
import { findEndpoints, insertConnections, removeConnections } from './repository.ts'
import type { Connection } from './schema.ts'

export type ConnectionsService = {
  /** Connects all pairs of each item or nothing. Throws `malformed`, `forbidden`, `unprocessable`, `too_large`. */
  connect(caller: UserPrincipal, domainId: string, connections: readonly Connection[]): Promise<void>
  /** Pairs that are not connected are no error. */
  disconnect(caller: UserPrincipal, domainId: string, connections: readonly Connection[]): Promise<void>
}

/** Pairs that one call may name (contract 7.1). */
export const MAX_PAIRS = 100_000

const BOTH = CONNECTION_BITS.publish | CONNECTION_BITS.subscribe

type Wanted = { clientIds: string[]; channelIds: string[]; bits: number }
type Ends = { clients: Map<string, Endpoint>; channels: Map<string, Endpoint> }

export function createConnectionsService({
  journal,
  access,
}: {
  journal: Journal
  access: AccessPolicy
}): ConnectionsService {
  /** Resolves everything that the call names, lets `apply` write all of it, and records the call as one entry. */
  async function forAll(
    caller: UserPrincipal,
    domainId: string,
    connections: readonly Connection[],
    operation: 'channel.connect' | 'channel.disconnect',
    apply: (tx: Transaction, domain: DomainAccess, ends: Ends, items: Connecting[]) => Promise<void>,
  ): Promise<void> {
    const wanted = connections.map(parseConnection)
    requireFewPairs(wanted)
    const domain = await access.enter(caller, domainId)
    const clientIds = [...new Set(wanted.flatMap((one) => one.clientIds))]
    const channelIds = [...new Set(wanted.flatMap((one) => one.channelIds))]
    await journal.change(caller, async (tx, record) => {
      const ends = {
        clients: byId(await findEndpoints(tx, domain, 'client', clientIds, 'connect_to_channel')),
        channels: byId(await findEndpoints(tx, domain, 'channel', channelIds, 'connect_to_client')),
      }
      requireAllowed(ends)
      requireKnown('client', clientIds, ends.clients)
      requireKnown('channel', channelIds, ends.channels)
      await apply(tx, domain, ends, connectingOf(wanted, ends))
      record({
        operation,
        domainKey: domain.domainKey,
        entityKeys: endpointsOf(ends).map((endpoint) => endpoint.key),
        attributes: attributesOf(wanted),
      })
    })
  }

  return {
    async connect(caller, domainId, connections) {
      await forAll(caller, domainId, connections, 'channel.connect', async (tx, domain, ends, items) => {
        requireEnabled(ends)
        await insertConnections(tx, domain.domainKey, items, caller.id)
      })
    },
    async disconnect(caller, domainId, connections) {
      await forAll(caller, domainId, connections, 'channel.disconnect', (tx, _domain, _ends, items) =>
        removeConnections(tx, items),
      )
    },
  }
}

const byId = (endpoints: readonly Endpoint[]) => new Map(endpoints.map((endpoint) => [endpoint.id, endpoint]))
const endpointsOf = ({ clients, channels }: Ends) => [...clients.values(), ...channels.values()]

function requireAllowed(ends: Ends): void {
  const refused = endpointsOf(ends).find((endpoint) => endpoint.isReadable && !endpoint.isAllowed)
  if (refused === undefined) return
  const action = refused.type === 'client' ? 'connect_to_channel' : 'connect_to_client'
  throw new ServiceError(
    'forbidden',
    `failed to perform authorization: needs ${action} on the ${refused.type} ${refused.id}`,
  )
}

/** Unknown, foreign and unreadable ids are refused alike. */
function requireKnown(type: Endpoint['type'], ids: readonly string[], found: ReadonlyMap<string, Endpoint>): void {
  const unknown = ids.find((id) => found.get(id)?.isReadable !== true)
  if (unknown !== undefined)
    throw new ServiceError('unprocessable', `failed to connect: no ${type} ${unknown} in this domain`)
}

function requireEnabled(ends: Ends): void {
  const disabled = endpointsOf(ends).find((endpoint) => endpoint.status === 'disabled')
  if (disabled !== undefined)
    throw new ServiceError('unprocessable', `failed to connect: the ${disabled.type} ${disabled.id} is disabled`)
}

const keysOf = (ids: readonly string[], found: ReadonlyMap<string, Endpoint>) =>
  ids.map((id) => (found.get(id) as Endpoint).key)

function connectingOf(wanted: readonly Wanted[], { clients, channels }: Ends): Connecting[] {
  return wanted.map(({ clientIds, channelIds, bits }) => ({
    clientKeys: keysOf(clientIds, clients),
    channelKeys: keysOf(channelIds, channels),
    bits,
  }))
}

function refuse(path: string, message: string): ServiceError {
  return new ServiceError('malformed', `${path.slice(1)} ${message}`, { details: [{ path, message }] })
}

function requireIds(ids: readonly string[] | undefined, path: string): string[] {
  if (ids === undefined) throw refuse(path, 'is required')
  requireFewItems(ids.length, path.slice(1))
  for (const id of ids) if (!isId(id)) throw refuse(path, 'must hold UUIDs in lower case')
  return [...new Set(ids)]
}

/** Either generation's names; no types at all means both (contract 4.2). */
function parseConnection(connection: Connection): Wanted {
  let bits = 0
  for (const text of connection.types ?? connection.actions ?? []) {
    const type = parseConnectionType(text)
    if (type === undefined) throw refuse('/types', 'must hold publish and subscribe only')
    bits |= CONNECTION_BITS[type]
  }
  return {
    clientIds: requireIds(connection.client_ids ?? connection.subjects, '/client_ids'),
    channelIds: requireIds(connection.channel_ids ?? connection.objects, '/channel_ids'),
    bits: bits === 0 ? BOTH : bits,
  }
}

function requireFewPairs(wanted: readonly Wanted[]): void {
  const pairs = wanted.reduce((sum, { clientIds, channelIds }) => sum + clientIds.length * channelIds.length, 0)
  if (pairs > MAX_PAIRS) throw new ServiceError('too_large', `one call may name ${MAX_PAIRS} pairs, not ${pairs}`)
}

function attributesOf(wanted: readonly Wanted[]): Record<string, unknown> {
  const items = wanted.map(({ clientIds, channelIds, bits }) => ({
    client_ids: clientIds,
    channel_ids: channelIds,
    types: typesOf(bits),
  }))
  const [only, ...more] = items
  return only === undefined || more.length > 0 ? { connections: items } : only
}

function typesOf(bits: number): string[] {
  return Object.entries(CONNECTION_BITS)
    .filter(([, bit]) => (bits & bit) !== 0)
    .map(([type]) => type)
}
