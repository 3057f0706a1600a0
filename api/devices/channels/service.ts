/** The rules of channels (specification section 4 Channels, contract 4.2, decisions 2, 31, 45). */
import { enterForCreation, findProvidedAccess, parseRouteName } from '#api/identity/index.ts'
import type {
  AccessPolicy,
  DomainAccess,
  EffectiveAccess,
  Facts,
  ShownRoles,
  UserPrincipal,
} from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import type { ServiceError } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import { nameTakenItem, requireDistinct, requireItemLimit, takenItem } from '../connectable/bulk.ts'
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
import type { ChannelChange, ChannelRecord } from './repository.ts'
import { channelTable, findTaken, insertChannels } from './repository.ts'
import type { ChannelQuery, ChannelUpdate, NewChannel } from './schema.ts'

/** A channel, and on request the roles by which the caller has access to it. */
export type ShownChannel = { channel: ChannelRecord; access?: EffectiveAccess | ShownRoles | undefined }

/** A channel's route follows a domain in paths, so it cannot collide with the first segment of an API path. */
const NO_RESERVED_ROUTES: ReadonlySet<string> = new Set()

/** Throws `malformed`. */
function parseRoute(route: string | null | undefined): string | null {
  return route === undefined || route === null ? null : parseRouteName(route, 'route', NO_RESERVED_ROUTES)
}

type Named = Pick<ChannelRecord, 'id' | 'route'>

export class ChannelsService {
  readonly #database: Database
  readonly #access: AccessPolicy
  readonly #rules: ConnectableRules<ChannelRecord, ChannelChange>

  constructor(deps: ConnectableDeps) {
    this.#database = deps.database
    this.#access = deps.access
    this.#rules = new ConnectableRules(deps, channelTable, factsOf)
  }

  /**
   * Creates all channels or none. Single creation is bulk creation of one. Without `domainId` it uses the domain of the
   * token or the only domain of the caller. Throws `too_large`, `malformed`, `forbidden`, `unprocessable`, `conflict`.
   */
  async create(
    caller: UserPrincipal,
    domainId: string | undefined,
    inputs: readonly NewChannel[],
  ): Promise<ShownChannel[]> {
    requireItemLimit(inputs.length, 'channels')
    const rows = inputs.map((input) => ({
      id: input.id ?? newId(),
      name: input.name ?? '',
      description: input.description ?? null,
      route: parseRoute(input.route),
      tags: input.tags ?? [],
      metadata: input.metadata ?? {},
      status: input.status ?? ('enabled' as const),
      retentionDays: input.retention_days ?? null,
      parentGroupId: input.parent_group_id ?? null,
    }))
    const domain = await enterForCreation(this.#access, caller, domainId, 'channels')
    requireCreation(domain, 'channel', inputs)
    requireDistinct(rows, 'id', (row) => row.id)
    requireDistinct(rows, 'route', (row) => row.route?.toLowerCase())
    const created = this.#rules.create(caller, domain, rows, (tx, placed) => insertChannels(tx, domain, placed, caller))
    const channels = await nameTakenItem(rows, created, () => this.#findTakenItem(domain, rows))
    return channels.map((channel) => ({ channel }))
  }

  async get(caller: UserPrincipal, at: Address, withRoles: boolean): Promise<ShownChannel> {
    const { entity, roles } = await this.#rules.view(caller, at, withRoles)
    return { channel: entity, access: roles }
  }

  /**
   * Lists the channels of the domain on which the caller has `read`. Without `domainId` it lists the channels of every
   * domain that the caller has access to (decision 31).
   */
  async list(caller: UserPrincipal, domainId: string | undefined, query: ChannelQuery): Promise<Page<ShownChannel>> {
    const shown = parseShown('channel', query)
    const asked = withParent(query)
    const connected =
      query.client === undefined ? [] : [connectedTo('h', 'channel', query.client, query.connection_type)]
    // Filters are parsed before the domain is entered, so malformed input is `malformed` for every caller.
    const filters = deviceFilters(asked, 'h', connected)
    const domains =
      domainId === undefined ? await this.#access.enterAll(caller) : [await this.#access.enter(caller, domainId)]
    const listed = { type: 'channel', alias: 'h', find: channelTable.findByKeys } as const
    const { total, rows, next } = await findPage(this.#database.db, listed, domains, shown, filters, query)
    const roles = await findProvidedAccess(this.#database.db, domains, 'channel', rows)
    const items = rows.map((channel) => ({ channel, access: roles.get(channel.key) }))
    return { total, offset: query.offset, limit: query.limit, items, next }
  }

  /**
   * Lists the channels of one client, group or user on which the caller has `read`. Without a domain in the path it
   * searches every domain that the caller has access to.
   */
  async listOf(
    caller: UserPrincipal,
    within: Within<'client' | 'group' | 'user'>,
    query: ChannelQuery,
  ): Promise<Page<ShownChannel>> {
    const { domainId, filter } = await enterWithin(this.#access, caller, within)
    return await this.list(caller, domainId, { ...query, ...filter })
  }

  /** Absent fields are unchanged (decision 2). Throws `conflict` for a route that is in use. */
  async update(caller: UserPrincipal, at: Address, input: ChannelUpdate): Promise<ShownChannel> {
    const route = input.route === undefined ? {} : { route: parseRoute(input.route) }
    const channel = await this.#rules.change(caller, at, 'channel.update', {
      ...(input.name === undefined ? {} : { name: input.name }),
      ...(input.description === undefined ? {} : { description: input.description }),
      ...(input.metadata === undefined ? {} : { metadata: input.metadata }),
      ...(input.tags === undefined ? {} : { tags: input.tags }),
      ...(input.retention_days === undefined ? {} : { retentionDays: input.retention_days }),
      ...route,
    })
    return { channel }
  }

  async setTags(caller: UserPrincipal, at: Address, tags: string[]): Promise<ShownChannel> {
    return { channel: await this.#rules.change(caller, at, 'channel.update', { tags }) }
  }

  /** Idempotent (decision 13). */
  async setStatus(caller: UserPrincipal, at: Address, status: 'enabled' | 'disabled'): Promise<ShownChannel> {
    return { channel: await this.#rules.setStatus(caller, at, status) }
  }

  async setParent(caller: UserPrincipal, at: Address, groupId: string): Promise<void> {
    await this.#rules.setParent(caller, at, groupId)
  }

  /** Has no effect without a parent. With `only` it removes the parent only if it is that group. */
  async removeParent(caller: UserPrincipal, at: Address, only?: string): Promise<void> {
    await this.#rules.removeParent(caller, at, only)
  }

  /** Removes the channel, its connections and its roles. Stored messages are kept (decision 46). */
  async remove(caller: UserPrincipal, at: Address): Promise<void> {
    await this.#rules.remove(caller, at)
  }

  async #findTakenItem(domain: DomainAccess, rows: readonly Named[]): Promise<ServiceError | undefined> {
    const routeOf = ({ route }: Named) => route?.toLowerCase()
    const ids = rows.map(({ id }) => id)
    const routes = rows.map(routeOf).filter((route) => route !== undefined)
    const taken = await findTaken(this.#database.db, domain.domainKey, ids, routes)
    return takenItem(rows, {
      id: ({ id }) => taken.ids.has(id),
      route: (row) => taken.routes.has(routeOf(row)),
    })
  }
}

function factsOf(channel: ChannelRecord): Facts {
  return {
    id: channel.id,
    name: channel.name,
    description: channel.description,
    route: channel.route,
    tags: channel.tags,
    domain: channel.domainId,
    metadata: channel.metadata,
    status: channel.status,
    retention_days: channel.retentionDays,
    parent_group_id: channel.parentGroupId,
    created_at: formatTime(channel.createdAt),
  }
}
