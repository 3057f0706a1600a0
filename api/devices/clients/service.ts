/** The rules of clients (specification section 4 Clients, contract 4.1, decisions 14, 31, 45). */
import { setImmediate } from 'node:timers/promises'
import { findPageAccess } from '#api/identity/index.ts'
import type { DomainAccess, EffectiveAccess, ShownRoles, UserPrincipal } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import type { ServiceError } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { Page } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import { namingTaken, requireDistinct, requireFewItems, takenItem } from '../bulk.ts'
import { openSecret, sealSecret, secretMac } from '../client-secrets.ts'
import {
  createConnectableRules,
  enterForCreation,
  enterWithin,
  parentIdOf,
  findPage,
  parseShown,
  requireCreation,
  withParent,
} from '../connectable/index.ts'
import type { Address, ConnectableDeps, ConnectableRules, Facts, Within } from '../connectable/index.ts'
import { connectedTo, deviceConditions, labelsAskedFor } from '../listing.ts'
import type { ClientChange, ClientRecord, NewClientRow } from './repository.ts'
import { awaitOtherBulks, clientTable, findClients, findTaken, insertClients } from './repository.ts'
import type { ClientQuery, ClientUpdate, NewClient } from './schema.ts'

/** A client, the secret that the caller may see with it (empty: none), and where he asked by which roles he has access to it. */
export type ShownClient = { client: ClientRecord; secret: string; access?: EffectiveAccess | ShownRoles | undefined }

type Rules = ConnectableRules<ClientRecord, ClientChange>

export type ClientsService = Pick<Rules, 'setParent' | 'removeParent' | 'remove'> & {
  /**
   * Creates all or none; single creation is bulk creation of one. Without a domain: in the only one that is meant. Throws
   * `too_large`, `malformed`, `forbidden`, `unprocessable`, `conflict`.
   */
  create(caller: UserPrincipal, domainId: string | undefined, inputs: readonly NewClient[]): Promise<ShownClient[]>
  get(caller: UserPrincipal, at: Address, withRoles: boolean): Promise<ShownClient>
  /** Clients of the domain that the caller may read; without a domain those of every domain that he reaches (decision 31). */
  list(caller: UserPrincipal, domainId: string | undefined, query: ClientQuery): Promise<Page<ShownClient>>
  /** Those of one channel, group or user, which the caller may read; wherever he reaches it when the path names no domain. */
  listOf(
    caller: UserPrincipal,
    within: Within<'channel' | 'group' | 'user'>,
    query: ClientQuery,
  ): Promise<Page<ShownClient>>
  /** Fields that are absent stay. */
  update(caller: UserPrincipal, at: Address, input: ClientUpdate): Promise<ShownClient>
  setTags(caller: UserPrincipal, at: Address, tags: string[]): Promise<ShownClient>
  /** The old secret is invalid at once. Throws `conflict` for one that is used in the domain. */
  changeSecret(caller: UserPrincipal, at: Address, secret: string): Promise<ShownClient>
  /** Idempotent (decision 13). */
  setStatus(caller: UserPrincipal, at: Address, status: 'enabled' | 'disabled'): Promise<ShownClient>
}

/** Secrets are sealed so many at a time, in some 5 ms; what else the process has to do comes in between. */
const SEALED_AT_ONCE = 250
/** So many are inserted by one statement, while the secrets of the next ones are sealed. */
const INSERTED_AT_ONCE = 500

type UnsealedClient = Omit<NewClientRow, 'secretMac' | 'secretSealed'> & { secret: string }

export type ClientsDeps = ConnectableDeps & { keyring: Keyring }

export function createClientsService(deps: ClientsDeps): ClientsService {
  const { database, access, keyring } = deps
  const rules: Rules = createConnectableRules(deps, clientTable, factsOf)
  const hidden = (client: ClientRecord): ShownClient => ({ client, secret: '' })

  async function seal(domainKey: number, clients: readonly UnsealedClient[]): Promise<NewClientRow[]> {
    const sealed: NewClientRow[] = []
    for (const { secret, ...client } of clients) {
      if (sealed.length > 0 && sealed.length % SEALED_AT_ONCE === 0) await setImmediate()
      sealed.push({
        ...client,
        secretMac: secretMac(keyring, secret),
        secretSealed: sealSecret(keyring, domainKey, client.id, secret),
      })
    }
    return sealed
  }

  /** In the order of their ids, so that two bulks with ids in common wait for each other only one way round. */
  async function insertSealed(
    tx: Transaction,
    domain: DomainAccess,
    clients: readonly UnsealedClient[],
    creator: UserPrincipal,
  ): Promise<ClientRecord[]> {
    const inOrder = clients.toSorted((left, right) => (left.id < right.id ? -1 : 1))
    const insertions: Promise<ClientRecord[]>[] = []
    for (let first = 0; first < inOrder.length; first += INSERTED_AT_ONCE) {
      const rows = await seal(domain.domainKey, inOrder.slice(first, first + INSERTED_AT_ONCE))
      const insertion = insertClients(tx, domain, rows, creator)
      // A failure is met when all are awaited, which is after the last ones are sealed.
      insertion.catch(() => undefined)
      insertions.push(insertion)
    }
    const inserted = new Map((await Promise.all(insertions)).flat().map((client) => [client.id, client]))
    return clients.map(({ id }) => inserted.get(id) as ClientRecord)
  }

  async function findTakenItem(domain: DomainAccess, inputs: readonly NewClient[]): Promise<ServiceError | undefined> {
    const macOf = ({ credentials }: NewClient) =>
      credentials?.secret === undefined ? undefined : secretMac(keyring, credentials.secret)
    const macs = inputs.map(macOf)
    const taken = await findTaken(
      database.db,
      domain.domainKey,
      inputs.flatMap(({ id }) => id ?? []),
      macs.filter((mac) => mac !== undefined),
    )
    return takenItem([...inputs.entries()], {
      id: ([, { id }]) => taken.ids.has(id),
      'credentials/secret': ([place]) => taken.secretMacs.has(macs[place]?.toString('hex')),
    })
  }

  /** With access fields; with the secret to callers who could change it (decision 14). */
  async function showListed(
    domains: readonly DomainAccess[],
    clients: readonly ClientRecord[],
  ): Promise<ShownClient[]> {
    const { provided, may } = await findPageAccess(database.db, domains, 'client', clients)
    return clients.map((client) => ({
      client,
      secret: may(client, 'update') ? openSecret(keyring, client) : '',
      access: provided.get(client.key),
    }))
  }

  async function list(
    caller: UserPrincipal,
    domainId: string | undefined,
    query: ClientQuery,
  ): Promise<Page<ShownClient>> {
    const shown = parseShown('client', query)
    const asked = withParent(query)
    const conditions = deviceConditions(asked, 'c')
    const domains = domainId === undefined ? await access.enterAll(caller) : [await access.enter(caller, domainId)]
    const connected =
      query.channel === undefined ? [] : [connectedTo('c', 'client', query.channel, query.connection_type)]
    const listed = { type: 'client', alias: 'c', find: findClients } as const
    const filtered = {
      filters: [...conditions, ...connected],
      labels: connected.length === 0 ? labelsAskedFor(asked) : undefined,
    }
    const { total, rows } = await findPage(deps, listed, domains, shown, filtered, query)
    return { total, offset: query.offset, limit: query.limit, items: await showListed(domains, rows) }
  }

  return {
    async create(caller, domainId, inputs) {
      requireFewItems(inputs.length, 'clients')
      const domain = await enterForCreation(access, caller, domainId, 'clients')
      requireCreation(domain, 'client', inputs)
      requireDistinct(inputs, 'id', (input) => input.id)
      requireDistinct(inputs, 'credentials/secret', (input) => input.credentials?.secret)
      const rows = inputs.map((input) => ({
        id: input.id ?? newId(),
        name: input.name ?? '',
        tags: input.tags ?? [],
        identity: input.credentials?.identity ?? '',
        secret: input.credentials?.secret ?? newId(),
        metadata: input.metadata ?? {},
        status: input.status ?? ('enabled' as const),
        parentGroupId: parentIdOf(input),
      }))
      const isAnySecretGiven = inputs.some((input) => input.credentials?.secret !== undefined)
      const created = rules.create(caller, domain, rows, async (tx, placed) => {
        // Secrets that are made here meet no others.
        if (placed.length > 1 && isAnySecretGiven) await awaitOtherBulks(tx, domain.domainKey)
        return await insertSealed(tx, domain, placed, caller)
      })
      const clients = await namingTaken(inputs, created, () => findTakenItem(domain, inputs))
      return clients.map((client, index) => ({ client, secret: rows[index]?.secret ?? '' }))
    },
    async get(caller, at, withRoles) {
      const { entity, roles } = await rules.view(caller, at, withRoles)
      return { ...hidden(entity), access: roles }
    },
    list,
    async listOf(caller, within, query) {
      const { domainId, filter } = await enterWithin(access, caller, within)
      return await list(caller, domainId, { ...query, ...filter })
    },
    async update(caller, at, input) {
      return hidden(
        await rules.change(caller, at, 'client.update', {
          ...(input.name === undefined ? {} : { name: input.name }),
          ...(input.metadata === undefined ? {} : { metadata: input.metadata }),
          ...(input.tags === undefined ? {} : { tags: input.tags }),
        }),
      )
    },
    async setTags(caller, at, tags) {
      return hidden(await rules.change(caller, at, 'client.update_tags', { tags }))
    },
    async changeSecret(caller, at, secret) {
      const client = await rules.change(caller, at, 'client.update_secret', ({ domainKey, id }) => ({
        secret: { mac: secretMac(keyring, secret), sealed: sealSecret(keyring, domainKey, id, secret) },
      }))
      return { client, secret }
    },
    async setStatus(caller, at, status) {
      return hidden(await rules.setStatus(caller, at, status))
    },
    setParent: rules.setParent,
    removeParent: rules.removeParent,
    remove: rules.remove,
  }
}

function factsOf(client: ClientRecord): Facts {
  return {
    id: client.id,
    name: client.name,
    tags: client.tags,
    domain: client.domainId,
    metadata: client.metadata,
    identity: client.identity,
    status: client.status,
    parent_group_id: client.parentGroupId,
    created_at: formatTime(client.createdAt),
  }
}
