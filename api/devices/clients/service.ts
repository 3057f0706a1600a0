/** The rules of clients (specification section 4 Clients, contract 4.1, decisions 14, 31, 45). */
import { setImmediate } from 'node:timers/promises'
import { findPageAccess } from '#api/identity/index.ts'
import type { AccessPolicy, DomainAccess, EffectiveAccess, ShownRoles, UserPrincipal } from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import type { ServiceError } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { Page } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import { namingTaken, requireDistinct, requireFewItems, takenItem } from '../connectable/bulk.ts'
import { openSecret, sealSecret, secretMac } from '../secrets/index.ts'
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
import { connectedTo, deviceFilters } from '../connectable/filters.ts'
import type { ClientChange, ClientRecord, NewClientRow } from './repository.ts'
import { awaitOtherBulks, clientTable, findClients, findTaken, insertClients } from './repository.ts'
import type { ClientQuery, ClientUpdate, NewClient } from './schema.ts'

/** A client, the secret that the caller may see with it (empty: none), and where he asked by which roles he has access to it. */
export type ShownClient = { client: ClientRecord; secret: string; access?: EffectiveAccess | ShownRoles | undefined }

/** Secrets are sealed so many at a time, in some 5 ms; what else the process has to do comes in between. */
const SEALED_AT_ONCE = 250
/** So many are inserted by one statement, while the secrets of the next ones are sealed. */
const INSERTED_AT_ONCE = 500

type UnsealedClient = Omit<NewClientRow, 'secretMac' | 'secretSealed'> & { secret: string }

export type ClientsDeps = ConnectableDeps & { keyring: Keyring }

const hidden = (client: ClientRecord): ShownClient => ({ client, secret: '' })

export class ClientsService {
  readonly #database: Database
  readonly #access: AccessPolicy
  readonly #keyring: Keyring
  readonly #rules: ConnectableRules<ClientRecord, ClientChange>

  constructor(deps: ClientsDeps) {
    this.#database = deps.database
    this.#access = deps.access
    this.#keyring = deps.keyring
    this.#rules = createConnectableRules(deps, clientTable, factsOf)
  }

  /**
   * Creates all or none; single creation is bulk creation of one. Without a domain: in the only one that is meant. Throws
   * `too_large`, `malformed`, `forbidden`, `unprocessable`, `conflict`.
   */
  async create(
    caller: UserPrincipal,
    domainId: string | undefined,
    inputs: readonly NewClient[],
  ): Promise<ShownClient[]> {
    requireFewItems(inputs.length, 'clients')
    const domain = await enterForCreation(this.#access, caller, domainId, 'clients')
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
    const created = this.#rules.create(caller, domain, rows, async (tx, placed) => {
      // Secrets that are made here meet no others.
      if (placed.length > 1 && isAnySecretGiven) await awaitOtherBulks(tx, domain.domainKey)
      return await this.#insertSealed(tx, domain, placed, caller)
    })
    const clients = await namingTaken(inputs, created, () => this.#findTakenItem(domain, inputs))
    return clients.map((client, index) => ({ client, secret: rows[index]?.secret ?? '' }))
  }

  async get(caller: UserPrincipal, at: Address, withRoles: boolean): Promise<ShownClient> {
    const { entity, roles } = await this.#rules.view(caller, at, withRoles)
    return { ...hidden(entity), access: roles }
  }

  /** Clients of the domain that the caller may read; without a domain those of every domain that he reaches (decision 31). */
  async list(caller: UserPrincipal, domainId: string | undefined, query: ClientQuery): Promise<Page<ShownClient>> {
    const shown = parseShown('client', query)
    const asked = withParent(query)
    const connected =
      query.channel === undefined ? [] : [connectedTo('c', 'client', query.channel, query.connection_type)]
    // Before the domain is entered: what is malformed is malformed everywhere.
    const filters = deviceFilters(asked, 'c', connected)
    const domains =
      domainId === undefined ? await this.#access.enterAll(caller) : [await this.#access.enter(caller, domainId)]
    const listed = { type: 'client', alias: 'c', find: findClients } as const
    const { total, rows } = await findPage(this.#database.db, listed, domains, shown, filters, query)
    return { total, offset: query.offset, limit: query.limit, items: await this.#showListed(domains, rows) }
  }

  /** Those of one channel, group or user, which the caller may read; wherever he reaches it when the path names no domain. */
  async listOf(
    caller: UserPrincipal,
    within: Within<'channel' | 'group' | 'user'>,
    query: ClientQuery,
  ): Promise<Page<ShownClient>> {
    const { domainId, filter } = await enterWithin(this.#access, caller, within)
    return await this.list(caller, domainId, { ...query, ...filter })
  }

  /** Fields that are absent stay. */
  async update(caller: UserPrincipal, at: Address, input: ClientUpdate): Promise<ShownClient> {
    return hidden(
      await this.#rules.change(caller, at, 'client.update', {
        ...(input.name === undefined ? {} : { name: input.name }),
        ...(input.metadata === undefined ? {} : { metadata: input.metadata }),
        ...(input.tags === undefined ? {} : { tags: input.tags }),
      }),
    )
  }

  async setTags(caller: UserPrincipal, at: Address, tags: string[]): Promise<ShownClient> {
    return hidden(await this.#rules.change(caller, at, 'client.update_tags', { tags }))
  }

  /** The old secret is invalid at once. Throws `conflict` for one that is used in the domain. */
  async changeSecret(caller: UserPrincipal, at: Address, secret: string): Promise<ShownClient> {
    const client = await this.#rules.change(caller, at, 'client.update_secret', ({ domainKey, id }) => ({
      secret: { mac: secretMac(this.#keyring, secret), sealed: sealSecret(this.#keyring, domainKey, id, secret) },
    }))
    return { client, secret }
  }

  /** Idempotent (decision 13). */
  async setStatus(caller: UserPrincipal, at: Address, status: 'enabled' | 'disabled'): Promise<ShownClient> {
    return hidden(await this.#rules.setStatus(caller, at, status))
  }

  /** The parent that it has already changes nothing. Throws `conflict` for another one, `unprocessable` for no good group. */
  async setParent(caller: UserPrincipal, at: Address, groupId: string): Promise<void> {
    await this.#rules.setParent(caller, at, groupId)
  }

  /** Without a parent nothing changes; `only` removes that parent and no other. */
  async removeParent(caller: UserPrincipal, at: Address, only?: string): Promise<void> {
    await this.#rules.removeParent(caller, at, only)
  }

  /** Removes it, its connections and its roles; stored messages stay (decision 46). */
  async remove(caller: UserPrincipal, at: Address): Promise<void> {
    await this.#rules.remove(caller, at)
  }

  async #seal(domainKey: number, clients: readonly UnsealedClient[]): Promise<NewClientRow[]> {
    const sealed: NewClientRow[] = []
    for (const { secret, ...client } of clients) {
      if (sealed.length > 0 && sealed.length % SEALED_AT_ONCE === 0) await setImmediate()
      sealed.push({
        ...client,
        secretMac: secretMac(this.#keyring, secret),
        secretSealed: sealSecret(this.#keyring, domainKey, client.id, secret),
      })
    }
    return sealed
  }

  /** In the order of their ids, so that two bulks with ids in common wait for each other only one way round. */
  async #insertSealed(
    tx: Transaction,
    domain: DomainAccess,
    clients: readonly UnsealedClient[],
    creator: UserPrincipal,
  ): Promise<ClientRecord[]> {
    const inOrder = clients.toSorted((left, right) => (left.id < right.id ? -1 : 1))
    const insertions: Promise<ClientRecord[]>[] = []
    for (let first = 0; first < inOrder.length; first += INSERTED_AT_ONCE) {
      const rows = await this.#seal(domain.domainKey, inOrder.slice(first, first + INSERTED_AT_ONCE))
      const insertion = insertClients(tx, domain, rows, creator)
      // A failure is met when all are awaited, which is after the last ones are sealed.
      insertion.catch(() => undefined)
      insertions.push(insertion)
    }
    const inserted = new Map((await Promise.all(insertions)).flat().map((client) => [client.id, client]))
    return clients.map(({ id }) => inserted.get(id) as ClientRecord)
  }

  async #findTakenItem(domain: DomainAccess, inputs: readonly NewClient[]): Promise<ServiceError | undefined> {
    const macOf = ({ credentials }: NewClient) =>
      credentials?.secret === undefined ? undefined : secretMac(this.#keyring, credentials.secret)
    const macs = inputs.map(macOf)
    const taken = await findTaken(
      this.#database.db,
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
  async #showListed(domains: readonly DomainAccess[], clients: readonly ClientRecord[]): Promise<ShownClient[]> {
    const { provided, may } = await findPageAccess(this.#database.db, domains, 'client', clients)
    return clients.map((client) => ({
      client,
      secret: may(client, 'update') ? openSecret(this.#keyring, client) : '',
      access: provided.get(client.key),
    }))
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
