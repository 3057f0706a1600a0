/** The rules of channels (specification section 4 Channels, contract 4.2, decisions 2, 13, 31, 45, 46). */
import { allOf, grantAdmin, removeRolesOf, requireRoute } from '#api/identity/index.ts'
import type { AccessPolicy, DomainAccess, Journal, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId, newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import { requireDistinct, requireFewItems } from '../bulk.ts'
import { connectedTo, deviceConditions, readableIn } from '../listing.ts'
import type { ChannelChange, ChannelRecord } from './repository.ts'
import { countChannels, deleteChannel, findChannel, insertChannels, listChannels, updateChannel } from './repository.ts'
import type { ChannelQuery, ChannelUpdate, NewChannel } from './schema.ts'

export type { ChannelRecord } from './repository.ts'

export type ChannelsService = {
  /** Creates all or none; single creation is bulk creation of one. Throws `too_large`, `malformed`, `forbidden`, `conflict`. */
  create(caller: UserPrincipal, domainId: string, inputs: readonly NewChannel[]): Promise<ChannelRecord[]>
  get(caller: UserPrincipal, domainId: string, id: string): Promise<ChannelRecord>
  /** Channels of the domain that the caller may read; without a domain those of every domain that he reaches (decision 31). */
  list(caller: UserPrincipal, domainId: string | undefined, query: ChannelQuery): Promise<Page<ChannelRecord>>
  /** Fields that are absent stay (decision 2). */
  update(caller: UserPrincipal, domainId: string, id: string, input: ChannelUpdate): Promise<ChannelRecord>
  /** Idempotent (decision 13). */
  setStatus(caller: UserPrincipal, domainId: string, id: string, status: 'enabled' | 'disabled'): Promise<ChannelRecord>
  /** Removes the channel, its connections and its roles; its stored messages stay (decision 46). */
  remove(caller: UserPrincipal, domainId: string, id: string): Promise<void>
}

export type ChannelsDeps = { database: Database; journal: Journal; access: AccessPolicy }

/** A channel's route stands behind a domain in paths, so no word of the API is in its way. */
const NO_RESERVED_ROUTES: ReadonlySet<string> = new Set()

export function createChannelsService({ database, journal, access }: ChannelsDeps): ChannelsService {
  async function requireChannel(domain: DomainAccess, id: string, action: string): Promise<ChannelRecord> {
    const channel = isId(id) ? await findChannel(database.db, domain.domainKey, id) : undefined
    return await domain.requireOn(channel, action)
  }

  async function change(
    caller: UserPrincipal,
    channel: ChannelRecord,
    operation: string,
    fields: ChannelChange,
    attributes: Record<string, unknown>,
  ): Promise<ChannelRecord> {
    return await journal.change(caller, async (tx, record) => {
      const updated = await updateChannel(tx, channel.key, fields, caller.id)
      if (updated === undefined) throw new ServiceError('not_found', 'entity not found')
      record({
        operation,
        domainKey: channel.domainKey,
        entityKeys: [channel.key],
        attributes: { id: channel.id, ...attributes },
      })
      return updated
    })
  }

  return {
    async create(caller, domainId, inputs) {
      requireFewItems(inputs.length, 'channels')
      const rows = inputs.map((input) => ({
        id: input.id ?? newId(),
        name: input.name ?? '',
        description: input.description ?? null,
        route:
          input.route === undefined || input.route === ''
            ? null
            : requireRoute(input.route, 'route', NO_RESERVED_ROUTES),
        tags: input.tags ?? [],
        metadata: input.metadata ?? {},
        status: input.status ?? ('enabled' as const),
        retentionDays: input.retention_days ?? null,
      }))
      const domain = await access.enter(caller, domainId)
      domain.require('channel_create')
      requireDistinct(rows, 'id', (row) => row.id)
      requireDistinct(rows, 'route', (row) => row.route?.toLowerCase())
      return await journal.change(caller, async (tx, record) => {
        const created = await insertChannels(tx, domain, rows, caller.id)
        const keys = created.map((channel) => channel.key)
        await grantAdmin(tx, caller.key, 'channel', domain.domainKey, keys)
        record({
          operation: 'channel.create',
          domainKey: domain.domainKey,
          entityKeys: keys,
          attributes: attributesOfCreated(created),
        })
        return created
      })
    },
    async get(caller, domainId, id) {
      return await requireChannel(await access.enter(caller, domainId), id, 'read')
    },
    async list(caller, domainId, query) {
      const conditions = deviceConditions(query, 'h')
      const domains = domainId === undefined ? await access.enterAll(caller) : [await access.enter(caller, domainId)]
      const connected =
        query.client === undefined ? [] : [connectedTo('h', 'channel', query.client, query.connection_type)]
      const where = allOf([readableIn(domains, 'channel', 'h'), ...conditions, ...connected])
      const [total, items] = await Promise.all([
        countChannels(database.db, where),
        query.only_total === true
          ? []
          : listChannels(database.db, {
              where,
              order: query.order,
              dir: query.dir ?? 'asc',
              offset: query.offset,
              limit: query.limit,
            }),
      ])
      return { total, offset: query.offset, limit: query.limit, items }
    },
    async update(caller, domainId, id, input) {
      const channel = await requireChannel(await access.enter(caller, domainId), id, 'update')
      const fields = {
        ...(input.name === undefined ? {} : { name: input.name }),
        ...(input.description === undefined ? {} : { description: input.description }),
        ...(input.metadata === undefined ? {} : { metadata: input.metadata }),
        ...(input.tags === undefined ? {} : { tags: input.tags }),
        ...(input.retention_days === undefined ? {} : { retentionDays: input.retention_days }),
      }
      return await change(caller, channel, 'channel.update', fields, fields)
    },
    async setStatus(caller, domainId, id, status) {
      const channel = await requireChannel(await access.enter(caller, domainId), id, 'update')
      if (channel.status === status) return channel
      return await change(
        caller,
        channel,
        status === 'enabled' ? 'channel.enable' : 'channel.disable',
        { status },
        { status },
      )
    },
    async remove(caller, domainId, id) {
      const channel = await requireChannel(await access.enter(caller, domainId), id, 'delete')
      await journal.change(caller, async (tx, record) => {
        if (!(await deleteChannel(tx, channel.key))) throw new ServiceError('not_found', 'entity not found')
        await removeRolesOf(tx, [channel.key])
        record({
          operation: 'channel.remove',
          domainKey: channel.domainKey,
          entityKeys: [channel.key],
          attributes: { id: channel.id },
        })
      })
    },
  }
}

function attributesOfCreated(created: readonly ChannelRecord[]): Record<string, unknown> {
  const [only, ...more] = created
  if (only === undefined || more.length > 0) return { ids: created.map((channel) => channel.id) }
  return {
    id: only.id,
    name: only.name,
    route: only.route,
    tags: only.tags,
    metadata: only.metadata,
    status: only.status,
  }
}
