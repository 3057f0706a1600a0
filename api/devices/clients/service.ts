/** The rules of clients (specification section 4 Clients, contract 4.1, decisions 14, 31, 45). */
import { enterForCreation, findPageAccess } from '#api/identity/index.ts'
import type {
  AccessPolicy,
  DomainAccess,
  EffectiveAccess,
  Facts,
  Journal,
  PageQuery,
  ShownRoles,
  UserPrincipal,
} from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import type { ServiceError } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { Page } from '#core/page.ts'
import type { Sql } from '#core/sql.ts'
import { formatTime } from '#core/time.ts'
import { inTurns } from '#core/turns.ts'
import { nameTakenItem, requireDistinct, requireItemLimit, takenItem } from '../connectable/bulk.ts'
import { openSecret, sealSecret, secretMac } from '../secrets/index.ts'
import {
  ConnectableRules,
  enterWithin,
  findPage,
  parseShown,
  requireCreation,
  withParent,
} from '../connectable/index.ts'
import type { Address, ConnectableDeps, Within } from '../connectable/index.ts'
import { connectedTo, deviceFilters } from '../connectable/filters.ts'
import { parseReportedFilter, stateFilters } from '../state/index.ts'
import { activityOf, byLastSeen, hasState } from './activity.ts'
import type { Activity } from './activity.ts'
import { findInOnlineOrder } from './online-order.ts'
import type { GivenSecrets } from './given-secrets.ts'
import type { ClientChange, ClientRecord, NewClientRow } from './repository.ts'
import { awaitOtherBulks, clientTable, findTaken, insertClients } from './repository.ts'
import type { ClientQuery, ClientUpdate, NewClient } from './schema.ts'

/**
 * A client, its secret if the caller may see it (else empty), and on request the roles by which the caller has access to
 * it.
 */
export type ShownClient = {
  client: ClientRecord
  secret: string
  /** Such a caller sees the private metadata. */
  mayUpdate: boolean
  /** Lists and views have it. */
  activity?: Activity | undefined
  access?: EffectiveAccess | ShownRoles | undefined
}

/** Number of rows that one statement inserts. The secrets of the next rows are sealed meanwhile. */
const INSERTED_AT_ONCE = 500

type UnsealedClient = Omit<NewClientRow, 'secretMac' | 'secretSealed'> & { secret: string }

export type ClientsDeps = ConnectableDeps & { keyring: Keyring; givenSecrets: GivenSecrets }

const hidden = (client: ClientRecord, mayUpdate = false): ShownClient => ({ client, secret: '', mayUpdate })

export class ClientsService {
  readonly #database: Database
  readonly #access: AccessPolicy
  readonly #keyring: Keyring
  readonly #journal: Journal
  readonly #givenSecrets: GivenSecrets
  readonly #rules: ConnectableRules<ClientRecord, ClientChange>

  constructor(deps: ClientsDeps) {
    this.#database = deps.database
    this.#access = deps.access
    this.#keyring = deps.keyring
    this.#journal = deps.journal
    this.#givenSecrets = deps.givenSecrets
    this.#rules = new ConnectableRules(deps, clientTable, factsOf)
  }

  /**
   * Creates all clients or none. Single creation is bulk creation of one. Without `domainId` it uses the domain of the
   * token or the only domain of the caller. Throws `too_large`, `malformed`, `forbidden`, `unprocessable`, `conflict`, and
   * `rate_limited` after too many secrets that other clients use.
   */
  async create(
    caller: UserPrincipal,
    domainId: string | undefined,
    inputs: readonly NewClient[],
  ): Promise<ShownClient[]> {
    requireItemLimit(inputs.length, 'clients')
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
      privateMetadata: input.private_metadata ?? {},
      status: input.status ?? ('enabled' as const),
      parentGroupId: input.parent_group_id ?? null,
    }))
    const isAnySecretGiven = inputs.some((input) => input.credentials?.secret !== undefined)
    const insert = async () => {
      const created = this.#rules.create(caller, domain, rows, async (tx, placed) => {
        if (placed.length > 1 && isAnySecretGiven) await awaitOtherBulks(tx, domain.domainKey)
        return await this.#insertSealed(tx, domain, placed, caller)
      })
      return await nameTakenItem(inputs, created, () => this.#findTakenItem(domain, inputs))
    }
    // Generated secrets cannot collide.
    const clients = isAnySecretGiven
      ? await this.#givenSecrets.store(caller, this.#journal, () => domain.domainKey, insert)
      : await insert()
    return clients.map((client, index) => ({ client, secret: rows[index]?.secret ?? '', mayUpdate: true }))
  }

  async get(caller: UserPrincipal, at: Address, withRoles: boolean): Promise<ShownClient> {
    const { domain, entity, roles } = await this.#rules.view(caller, at, withRoles)
    const isPrivate = Object.keys(entity.privateMetadata).length > 0
    const mayUpdate = isPrivate && (await domain.actionsOn(entity)).has('update')
    return { ...hidden(entity, mayUpdate), activity: activityOf(entity), access: roles }
  }

  /**
   * Lists the clients of the domain on which the caller has `read`. Without `domainId` it lists the clients of every
   * domain that the caller has access to (decision 31).
   */
  async list(caller: UserPrincipal, domainId: string | undefined, query: ClientQuery): Promise<Page<ShownClient>> {
    const shown = parseShown('client', query)
    const asked = withParent(query)
    const connected =
      query.channel === undefined ? [] : [connectedTo('c', 'client', query.channel, query.connection_type)]
    // Filters are parsed before the domain is entered, so malformed input is `malformed` for every caller.
    const filters = deviceFilters(asked, 'c', connected)
    const state = query.online === undefined ? [] : [hasState('c', query.online)]
    const reported = parseReportedFilter(query)
    const domains =
      domainId === undefined ? await this.#access.enterAll(caller) : [await this.#access.enter(caller, domainId)]
    const listed = { type: 'client', alias: 'c', find: clientTable.findByKeys } as const
    const ofState = stateFilters(domains, { reported, outOfSync: query.out_of_sync })
    const page = async (further: readonly Sql<boolean>[], isIndexed: boolean, of: PageQuery) =>
      await findPage(
        this.#database.db,
        listed,
        domains,
        shown,
        {
          conditions: [...filters.conditions, ...ofState.conditions, ...further],
          isIndexed: filters.isIndexed || ofState.isIndexed || isIndexed,
        },
        of,
      )
    const asSorted = query.order === 'last_seen' ? { ...query, sortedBy: byLastSeen('c') } : query
    const { total, rows, next } =
      query.order === 'online'
        ? await findInOnlineOrder(query, async (isOnline, of) => await page([hasState('c', isOnline)], isOnline, of))
        : await page(state, query.online === true, asSorted)
    return {
      total,
      offset: query.offset,
      limit: query.limit,
      items: await this.#showListed(domains, rows, query.secrets),
      next,
    }
  }

  /**
   * Lists the clients of one channel, group or user on which the caller has `read`. Without a domain in the path it
   * searches every domain that the caller has access to.
   */
  async listOf(
    caller: UserPrincipal,
    within: Within<'channel' | 'group' | 'user'>,
    query: ClientQuery,
  ): Promise<Page<ShownClient>> {
    const { domainId, filter } = await enterWithin(this.#access, caller, within)
    return await this.list(caller, domainId, { ...query, ...filter })
  }

  /** Absent fields are unchanged. */
  async update(caller: UserPrincipal, at: Address, input: ClientUpdate): Promise<ShownClient> {
    return hidden(
      await this.#rules.change(caller, at, 'client.update', {
        ...(input.name === undefined ? {} : { name: input.name }),
        ...(input.metadata === undefined ? {} : { metadata: input.metadata }),
        ...(input.tags === undefined ? {} : { tags: input.tags }),
        ...(input.private_metadata === undefined ? {} : { privateMetadata: input.private_metadata }),
      }),
      true,
    )
  }

  async setTags(caller: UserPrincipal, at: Address, tags: string[]): Promise<ShownClient> {
    return hidden(await this.#rules.change(caller, at, 'client.update_tags', { tags }), true)
  }

  /**
   * The old secret is invalid immediately. Throws `conflict` for a secret that another client of the domain uses, `rate_limited` after too
   * many of them.
   */
  async changeSecret(caller: UserPrincipal, at: Address, secret: string): Promise<ShownClient> {
    let found: number | undefined
    const change = async () =>
      await this.#rules.change(caller, at, 'client.update_secret', ({ domainKey, id }) => {
        found = domainKey
        return {
          secretMac: secretMac(this.#keyring, secret),
          secretSealed: sealSecret(this.#keyring, domainKey, id, secret),
        }
      })
    const client = await this.#givenSecrets.store(caller, this.#journal, () => found, change)
    return { client, secret, mayUpdate: true }
  }

  /** Idempotent (decision 13). */
  async setStatus(caller: UserPrincipal, at: Address, status: 'enabled' | 'disabled'): Promise<ShownClient> {
    return hidden(await this.#rules.setStatus(caller, at, status))
  }

  /**
   * Idempotent. Throws `conflict` when the client has another parent, `unprocessable` for an unknown or disabled group.
   */
  async setParent(caller: UserPrincipal, at: Address, groupId: string): Promise<void> {
    await this.#rules.setParent(caller, at, groupId)
  }

  /** Has no effect without a parent. With `only` it removes the parent only if it is that group. */
  async removeParent(caller: UserPrincipal, at: Address, only?: string): Promise<void> {
    await this.#rules.removeParent(caller, at, only)
  }

  /** Removes the client, its connections and its roles. Stored messages are kept (decision 46). */
  async remove(caller: UserPrincipal, at: Address): Promise<void> {
    await this.#rules.remove(caller, at)
  }

  async #seal(domainKey: number, clients: readonly UnsealedClient[]): Promise<NewClientRow[]> {
    const sealed: NewClientRow[] = []
    await inTurns(clients, ({ secret, ...client }) => {
      sealed.push({
        ...client,
        secretMac: secretMac(this.#keyring, secret),
        secretSealed: sealSecret(this.#keyring, domainKey, client.id, secret),
      })
    })
    return sealed
  }

  /** Inserts in the order of the ids, so that two bulk creations with common ids cannot deadlock. */
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
      // `Promise.all` below reports the failure, after the last secrets are sealed. Until then it must not be an
      // unhandled rejection.
      insertion.catch(() => undefined)
      insertions.push(insertion)
    }
    const inserted = new Map<string, ClientRecord>()
    const created: ClientRecord[] = []
    await inTurns((await Promise.all(insertions)).flat(), (client) => inserted.set(client.id, client))
    await inTurns(clients, ({ id }) => created.push(inserted.get(id) as ClientRecord))
    return created
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

  /** Adds the access fields, and the secret for callers with `update` (decision 14) unless `withSecrets` is false. */
  async #showListed(
    domains: readonly DomainAccess[],
    clients: readonly ClientRecord[],
    withSecrets = true,
  ): Promise<ShownClient[]> {
    const { provided, may } = await findPageAccess(this.#database.db, domains, 'client', clients)
    return clients.map((client) => {
      const mayUpdate = may(client, 'update')
      const secret = withSecrets && mayUpdate ? openSecret(this.#keyring, client) : ''
      return { client, secret, mayUpdate, activity: activityOf(client), access: provided.get(client.key) }
    })
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
