/** The rules of channels (specification section 4 Channels, contract 4.2, decisions 2, 31, 45). */
import { enterForCreation, findProvidedAccess, parseRouteName } from '#api/identity/index.ts'
import type { DomainAccess, EffectiveAccess, Facts, ShownRoles, UserPrincipal } from '#api/identity/index.ts'
import type { ServiceError } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import { nameTakenItem, requireDistinct, requireItemLimit, takenItem } from '../connectable/bulk.ts'
import {
  createConnectableRules,
  enterWithin,
  findPage,
  parseShown,
  requireCreation,
  withParent,
} from '../connectable/index.ts'
import type { Address, ConnectableDeps, ConnectableRules, Within } from '../connectable/index.ts'
import { connectedTo, deviceFilters } from '../connectable/filters.ts'
import type { ChannelChange, ChannelRecord } from './repository.ts'
import { channelTable, findTaken, insertChannels } from './repository.ts'
import type { ChannelQuery, ChannelUpdate, NewChannel } from './schema.ts'

/** A channel, and on request the roles by which the caller has access to it. */
export type ShownChannel = { channel: ChannelRecord; access?: EffectiveAccess | ShownRoles | undefined }

type Rules = ConnectableRules<ChannelRecord, ChannelChange>

export type ChannelsService = Pick<Rules, 'setParent' | 'removeParent' | 'remove'> & {
  /**
   * Creates all channels or none. Single creation is bulk creation of one. Without `domainId` it uses the domain of the
   * token or the only domain of the caller. Throws `too_large`, `malformed`, `forbidden`, `unprocessable`, `conflict`.
   */
  create(caller: UserPrincipal, domainId: string | undefined, inputs: readonly NewChannel[]): Promise<ShownChannel[]>
  get(caller: UserPrincipal, at: Address, withRoles: boolean): Promise<ShownChannel>
  /**
   * Lists the channels of the domain on which the caller has `read`. Without `domainId` it lists the channels of every
   * domain that the caller has access to (decision 31).
   */
  list(caller: UserPrincipal, domainId: string | undefined, query: ChannelQuery): Promise<Page<ShownChannel>>
  /**
   * Lists the channels of one client, group or user on which the caller has `read`. Without a domain in the path it
   * searches every domain that the caller has access to.
   */
  listOf(
    caller: UserPrincipal,
    within: Within<'client' | 'group' | 'user'>,
    query: ChannelQuery,
  ): Promise<Page<ShownChannel>>
  /** Absent fields are unchanged (decision 2). Throws `conflict` for a route that is in use. */
  update(caller: UserPrincipal, at: Address, input: ChannelUpdate): Promise<ShownChannel>
  setTags(caller: UserPrincipal, at: Address, tags: string[]): Promise<ShownChannel>
  /** Idempotent (decision 13). */
  setStatus(caller: UserPrincipal, at: Address, status: 'enabled' | 'disabled'): Promise<ShownChannel>
}

/** A channel's route follows a domain in paths, so it cannot collide with the first segment of an API path. */
const NO_RESERVED_ROUTES: ReadonlySet<string> = new Set()

/** Throws `malformed`. */
function parseRoute(route: string | null | undefined): string | null {
  return route === undefined || route === null ? null : parseRouteName(route, 'route', NO_RESERVED_ROUTES)
}

type Named = Pick<ChannelRecord, 'id' | 'route'>

export function createChannelsService(deps: ConnectableDeps): ChannelsService {
  const { access, database } = deps
  const rules: Rules = createConnectableRules(deps, channelTable, factsOf)

  async function findTakenItem(domain: DomainAccess, rows: readonly Named[]): Promise<ServiceError | undefined> {
    const routeOf = ({ route }: Named) => route?.toLowerCase()
    const ids = rows.map(({ id }) => id)
    const routes = rows.map(routeOf).filter((route) => route !== undefined)
    const taken = await findTaken(database.db, domain.domainKey, ids, routes)
    return takenItem(rows, {
      id: ({ id }) => taken.ids.has(id),
      route: (row) => taken.routes.has(routeOf(row)),
    })
  }

  async function list(
    caller: UserPrincipal,
    domainId: string | undefined,
    query: ChannelQuery,
  ): Promise<Page<ShownChannel>> {
    const shown = parseShown('channel', query)
    const asked = withParent(query)
    const connected =
      query.client === undefined ? [] : [connectedTo('h', 'channel', query.client, query.connection_type)]
    // Filters are parsed before the domain is entered, so malformed input is `malformed` for every caller.
    const filters = deviceFilters(asked, 'h', connected)
    const domains = domainId === undefined ? await access.enterAll(caller) : [await access.enter(caller, domainId)]
    const listed = { type: 'channel', alias: 'h', find: channelTable.findByKeys } as const
    const { total, rows, next } = await findPage(database.db, listed, domains, shown, filters, query)
    const roles = await findProvidedAccess(database.db, domains, 'channel', rows)
    const items = rows.map((channel) => ({ channel, access: roles.get(channel.key) }))
    return { total, offset: query.offset, limit: query.limit, items, next }
  }

  return {
    async create(caller, domainId, inputs) {
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
      const domain = await enterForCreation(access, caller, domainId, 'channels')
      requireCreation(domain, 'channel', inputs)
      requireDistinct(rows, 'id', (row) => row.id)
      requireDistinct(rows, 'route', (row) => row.route?.toLowerCase())
      const created = rules.create(caller, domain, rows, (tx, placed) => insertChannels(tx, domain, placed, caller))
      const channels = await nameTakenItem(rows, created, () => findTakenItem(domain, rows))
      return channels.map((channel) => ({ channel }))
    },
    async get(caller, at, withRoles) {
      const { entity, roles } = await rules.view(caller, at, withRoles)
      return { channel: entity, access: roles }
    },
    list,
    async listOf(caller, within, query) {
      const { domainId, filter } = await enterWithin(access, caller, within)
      return await list(caller, domainId, { ...query, ...filter })
    },
    async update(caller, at, input) {
      const route = input.route === undefined ? {} : { route: parseRoute(input.route) }
      const channel = await rules.change(caller, at, 'channel.update', {
        ...(input.name === undefined ? {} : { name: input.name }),
        ...(input.description === undefined ? {} : { description: input.description }),
        ...(input.metadata === undefined ? {} : { metadata: input.metadata }),
        ...(input.tags === undefined ? {} : { tags: input.tags }),
        ...(input.retention_days === undefined ? {} : { retentionDays: input.retention_days }),
        ...route,
      })
      return { channel }
    },
    async setTags(caller, at, tags) {
      return { channel: await rules.change(caller, at, 'channel.update', { tags }) }
    },
    async setStatus(caller, at, status) {
      return { channel: await rules.setStatus(caller, at, status) }
    },
    setParent: rules.setParent,
    removeParent: rules.removeParent,
    remove: rules.remove,
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
