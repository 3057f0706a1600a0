/** The rules of connecting clients and channels (contract 4.2, 2.5, decisions 16 and 16b). */
import { CONNECTION_BITS, parseConnectionType } from '#api/identity/index.ts'
import type { AccessPolicy, DomainAccess, Journal, UserPrincipal } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Endpoint } from './repository.ts'
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

export function createConnectionsService({
  journal,
  access,
}: {
  journal: Journal
  access: AccessPolicy
}): ConnectionsService {
  /** Both ends as the caller may connect them. Unknown, foreign and unreadable ids are refused alike. */
  async function requireEnds(
    tx: Transaction,
    domain: DomainAccess,
    type: Endpoint['type'],
    ids: readonly string[],
    action: string,
  ): Promise<Endpoint[]> {
    const found = await findEndpoints(tx, type, domain.domainKey, ids)
    const known = new Map(found.map((endpoint) => [endpoint.id, endpoint]))
    for (const id of ids) {
      const endpoint = known.get(id)
      const actions = endpoint === undefined ? undefined : await domain.actionsOn(endpoint)
      if (endpoint === undefined || actions?.has('read') !== true)
        throw new ServiceError('unprocessable', `failed to connect: no ${type} ${id} in this domain`)
      if (!actions.has(action))
        throw new ServiceError('forbidden', `failed to perform authorization: needs ${action} on the ${type} ${id}`)
    }
    return found
  }

  function requireEnabled(endpoints: readonly Endpoint[]): void {
    const disabled = endpoints.find((endpoint) => endpoint.status === 'disabled')
    if (disabled !== undefined)
      throw new ServiceError('unprocessable', `failed to connect: the ${disabled.type} ${disabled.id} is disabled`)
  }

  async function forEach(
    caller: UserPrincipal,
    domainId: string,
    connections: readonly Connection[],
    operation: 'channel.connect' | 'channel.disconnect',
    apply: (
      tx: Transaction,
      domain: DomainAccess,
      clients: readonly Endpoint[],
      channels: readonly Endpoint[],
      bits: number,
    ) => Promise<void>,
  ): Promise<void> {
    const wanted = connections.map(parseConnection)
    requireFewPairs(wanted)
    const domain = await access.enter(caller, domainId)
    await journal.change(caller, async (tx, record) => {
      for (const { clientIds, channelIds, bits } of wanted) {
        const clients = await requireEnds(tx, domain, 'client', clientIds, 'connect_to_channel')
        const channels = await requireEnds(tx, domain, 'channel', channelIds, 'connect_to_client')
        await apply(tx, domain, clients, channels, bits)
        record({
          operation,
          domainKey: domain.domainKey,
          entityKeys: [...clients, ...channels].map((endpoint) => endpoint.key),
          attributes: { client_ids: clientIds, channel_ids: channelIds, types: typesOf(bits) },
        })
      }
    })
  }

  const keysOf = (endpoints: readonly Endpoint[]) => endpoints.map((endpoint) => endpoint.key)

  return {
    async connect(caller, domainId, connections) {
      await forEach(caller, domainId, connections, 'channel.connect', async (tx, domain, clients, channels, bits) => {
        requireEnabled(clients)
        requireEnabled(channels)
        await insertConnections(tx, domain.domainKey, keysOf(clients), keysOf(channels), bits, caller.id)
      })
    },
    async disconnect(caller, domainId, connections) {
      await forEach(caller, domainId, connections, 'channel.disconnect', (tx, _domain, clients, channels, bits) =>
        removeConnections(tx, keysOf(clients), keysOf(channels), bits),
      )
    },
  }
}

function refuse(path: string, message: string): ServiceError {
  return new ServiceError('malformed', `${path.slice(1)} ${message}`, { details: [{ path, message }] })
}

function requireIds(ids: readonly string[] | undefined, path: string): string[] {
  if (ids === undefined) throw refuse(path, 'is required')
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

function typesOf(bits: number): string[] {
  return Object.entries(CONNECTION_BITS)
    .filter(([, bit]) => (bits & bit) !== 0)
    .map(([type]) => type)
}
