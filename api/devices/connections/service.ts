/** The rules of connecting clients and channels (contract 4.2, 2.5, decisions 16, 16b, 31b, 45 and 52). */
import type { AccessPolicy, DomainAccess, Journal, UserPrincipal } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { ConnectableType } from '../connectable/record.ts'
import type { Connecting as KeyPairs, ConnectionRecord, Endpoint } from './repository.ts'
import { findEndpoints, getConnection, insertConnections, removeConnections } from './repository.ts'
import { BOTH, factsOf, requestsOf } from './connection-request.ts'
import type { ConnectionRequest } from './connection-request.ts'

/** Without a domain the ids are searched in every domain that the caller has access to (decision 31b). */
export type ConnectionPath = { domainId: string | undefined; channelId?: string; clientId?: string }

/** Clients and channels that the running transaction has created. Other transactions cannot see them yet. */
export type CreatedEnds = Record<'clients' | 'channels', readonly { key: number; id: string }[]>

type Ends = { clients: ReadonlyMap<string, Endpoint>; channels: ReadonlyMap<string, Endpoint> }
type Operation = 'connect' | 'disconnect'
/** Writes the pairs and returns the number of changed pairs. */
type Apply = (tx: Transaction, domain: DomainAccess, ends: Ends, pairs: KeyPairs[]) => Promise<number>

export class ConnectionsService {
  readonly #journal: Journal
  readonly #access: AccessPolicy

  constructor({ journal, access }: { journal: Journal; access: AccessPolicy }) {
    this.#journal = journal
    this.#access = access
  }

  /**
   * Connects all pairs of all items, or none. Connecting an existing pair has no effect (decision 16b). Throws
   * `forbidden`; for an unknown id `not_found` when it is in the path, otherwise `unprocessable`, like for a disabled
   * client or channel; `conflict` when the ids of a path without a domain exist in several.
   */
  async connect(caller: UserPrincipal, path: ConnectionPath, wanted: readonly ConnectionRequest[]): Promise<void> {
    await this.#forAll(caller, path, wanted, 'connect', async (tx, domain, ends, pairs) => {
      requireEnabled(ends)
      return await insertConnections(tx, domain.domainKey, pairs, caller.id)
    })
  }

  /**
   * Connects all given clients with all given channels in both directions. The running transaction has created them.
   * The permission on each of them is checked only for a caller who may not connect in the whole domain.
   */
  async connectCreated(caller: UserPrincipal, domain: DomainAccess, { clients, channels }: CreatedEnds): Promise<void> {
    const wanted = { clientIds: clients.map(({ id }) => id), channelIds: channels.map(({ id }) => id), bits: BOTH }
    if (!domain.can('client_connect_to_channel') || !domain.can('channel_connect_to_client')) {
      return await this.connect(caller, { domainId: domain.domainId }, [wanted])
    }
    const { domainKey } = domain
    const [clientKeys, channelKeys] = [clients.map(({ key }) => key), channels.map(({ key }) => key)]
    await this.#journal.change(caller, async (tx, record) => {
      tx.defer(insertConnections(tx, domainKey, [{ clientKeys, channelKeys, bits: BOTH }], caller.id))
      const entityKeys = [...clientKeys, ...channelKeys]
      record({ operation: 'channel.connect', domainKey, entityKeys, attributes: factsOf(wanted) })
    })
  }

  /** Disconnecting a missing pair is not an error. */
  async disconnect(caller: UserPrincipal, path: ConnectionPath, wanted: readonly ConnectionRequest[]): Promise<void> {
    await this.#forAll(caller, path, wanted, 'disconnect', (tx, _domain, _ends, pairs) => removeConnections(tx, pairs))
  }

  /** Connects one pair in both directions and returns the connection (decision 52). */
  async connectPair(caller: UserPrincipal, path: Required<ConnectionPath>): Promise<ConnectionRecord> {
    let made: ConnectionRecord | undefined
    await this.#forAll(caller, path, requestsOf(path, {}), 'connect', async (tx, domain, ends, pairs) => {
      requireEnabled(ends)
      const changed = await insertConnections(tx, domain.domainKey, pairs, caller.id)
      const [client, channel] = [ends.clients.get(path.clientId), ends.channels.get(path.channelId)]
      made = await getConnection(tx, client as Endpoint, channel as Endpoint)
      return changed
    })
    return made as ConnectionRecord
  }

  /**
   * Finds the domain for a path without one: the domain of the first channel, or of the first client when the channel
   * exists in several domains. All other ids must belong to the same domain.
   */
  async #locateDomain(
    caller: UserPrincipal,
    path: ConnectionPath,
    [first]: readonly ConnectionRequest[],
    operation: Operation,
  ) {
    let conflict: unknown
    let unknown: ServiceError | undefined
    for (const [type, id] of [
      ['channel', first?.channelIds[0]],
      ['client', first?.clientIds[0]],
    ] as const) {
      if (id === undefined) continue
      try {
        return (await this.#access.locate(caller, undefined, type, id)).domain
      } catch (error) {
        const kind = kindOf(error)
        if (kind === 'conflict') conflict ??= error
        else if (kind === 'not_found') unknown ??= unknownEnd(path, operation, type, id)
        else throw error
      }
    }
    throw unknown ?? conflict
  }

  /** Resolves all ids of the request, calls `apply` to write all pairs, and records one journal entry for each item. */
  async #forAll(
    caller: UserPrincipal,
    path: ConnectionPath,
    wanted: readonly ConnectionRequest[],
    operation: Operation,
    apply: Apply,
  ): Promise<void> {
    const domain =
      path.domainId === undefined
        ? await this.#locateDomain(caller, path, wanted, operation)
        : await this.#access.enter(caller, path.domainId)
    const clientIds = [...new Set(wanted.flatMap((one) => one.clientIds))]
    const channelIds = [...new Set(wanted.flatMap((one) => one.channelIds))]
    await this.#journal.change(caller, async (tx, record) => {
      const ends = {
        clients: byId(await findEndpoints(tx, domain, 'client', clientIds, 'connect_to_channel')),
        channels: byId(await findEndpoints(tx, domain, 'channel', channelIds, 'connect_to_client')),
      }
      requireAllowed(ends)
      // The channel of the path is checked before the ids of the body: 404 has precedence over 422 (decision 45).
      requireKnown(path, operation, 'channel', channelIds, ends.channels)
      requireKnown(path, operation, 'client', clientIds, ends.clients)
      const pairs = keyPairsOf(wanted, ends)
      const changed = await apply(tx, domain, ends, pairs)
      if (changed === 0) return
      for (const [index, one] of wanted.entries()) {
        const { clientKeys = [], channelKeys = [] } = pairs[index] ?? {}
        const entityKeys = [...clientKeys, ...channelKeys]
        record({ operation: `channel.${operation}`, domainKey: domain.domainKey, entityKeys, attributes: factsOf(one) })
      }
    })
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
    `failed to perform authorization: requires ${action} on the ${refused.type} ${refused.id}`,
  )
}

/** Throws the same error for unknown ids, ids of other domains and ids without `read`. */
function requireKnown(
  path: ConnectionPath,
  operation: Operation,
  type: ConnectableType,
  ids: readonly string[],
  found: ReadonlyMap<string, Endpoint>,
): void {
  const unknown = ids.find((id) => found.get(id)?.isReadable !== true)
  if (unknown !== undefined) throw unknownEnd(path, operation, type, unknown)
}

function unknownEnd(path: ConnectionPath, operation: Operation, type: ConnectableType, id: string): ServiceError {
  const isInPath = (type === 'client' ? path.clientId : path.channelId) !== undefined
  return isInPath
    ? new ServiceError('not_found', 'entity not found')
    : new ServiceError('unprocessable', `failed to ${operation}: ${type} ${id} does not exist in this domain`)
}

function requireEnabled(ends: Ends): void {
  const disabled = endpointsOf(ends).find((endpoint) => endpoint.status === 'disabled')
  if (disabled !== undefined)
    throw new ServiceError('unprocessable', `failed to connect: ${disabled.type} ${disabled.id} is disabled`)
}

const keysOf = (ids: readonly string[], found: ReadonlyMap<string, Endpoint>) =>
  ids.map((id) => (found.get(id) as Endpoint).key)

function keyPairsOf(wanted: readonly ConnectionRequest[], { clients, channels }: Ends): KeyPairs[] {
  return wanted.map(({ clientIds, channelIds, bits }) => ({
    clientKeys: keysOf(clientIds, clients),
    channelKeys: keysOf(channelIds, channels),
    bits,
  }))
}
