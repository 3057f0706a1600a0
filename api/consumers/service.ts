/**
 * The rules of named consumers: who may make, see, move and delete them. A consumer belongs to its domain. A caller who creates it, changes its
 * channels or takes its messages needs `subscribe` on each of its channels at that moment.
 */
import type { MessageGate } from '#api/devices/index.ts'
import type {
  AccessPolicy,
  DomainAccess,
  DomainAction,
  Journal,
  Quotas,
  Recorder,
  UserPrincipal,
} from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { isId, newId } from '#core/ids.ts'
import type { Page } from '#core/page.ts'
import { startOf } from './begin.ts'
import { fieldsOf } from './fields.ts'
import { unpackAll } from './pages.ts'
import {
  countConsumers,
  deleteConsumer,
  findConsumer,
  findShown,
  insertConsumer,
  listConsumers,
  moveConsumer,
  setChannels,
  updateConsumer,
} from './repository.ts'
import type { Consumer, ConsumerChannel, ConsumerRecord, ConsumerRef } from './repository.ts'
import type { ConsumerQuery, ConsumerUpdate, NewConsumer } from './schema.ts'

export type ConsumersDeps = {
  database: Database
  journal: Journal
  access: AccessPolicy
  gate: Pick<MessageGate, 'authorize'>
  quotas: Pick<Quotas, 'requireRoom'>
}

const notFound = () => new ServiceError('not_found', 'consumer not found')

function consumerRef({ domainKey }: DomainAccess, nameOrId: string): ConsumerRef {
  return { domainKey, nameOrId, isId: isId(nameOrId) }
}

/** The consumer of a caller with this action in the domain. Throws the same `not_found` for an unknown one and one of another domain. */
export async function enterConsumer(
  { database, access }: Pick<ConsumersDeps, 'database' | 'access'>,
  caller: UserPrincipal,
  at: { domainId: string; nameOrId: string },
  action: DomainAction,
): Promise<{ domain: DomainAccess; consumer: Consumer }> {
  const domain = await access.enter(caller, at.domainId)
  domain.require(action)
  const consumer = await findConsumer(database.db, consumerRef(domain, at.nameOrId))
  if (consumer === undefined) throw notFound()
  return { domain, consumer }
}

/** Throws `forbidden` unless the caller may subscribe to each of these channels, and each is enabled. */
export async function requireSubscribe(
  gate: Pick<MessageGate, 'authorize'>,
  principal: UserPrincipal,
  domainId: string,
  channelIds: readonly string[],
): Promise<ConsumerChannel[]> {
  const found: ConsumerChannel[] = []
  for (const channel of channelIds) {
    try {
      const access = await gate.authorize({ kind: 'user', principal }, { domain: domainId, channel }, 'subscribe')
      found.push({ key: access.channelKey, id: access.channelId })
    } catch (error) {
      if (kindOf(error) !== 'forbidden' && kindOf(error) !== 'not_found') throw error
      throw new ServiceError(
        'forbidden',
        `failed to perform authorization: requires subscribe on the channel ${channel}, which must exist and be enabled`,
        { cause: error },
      )
    }
  }
  return found
}

function entryOf(operation: string, { domainKey, id, name }: Pick<Consumer, 'domainKey' | 'id' | 'name'>) {
  return { operation: `consumer.${operation}`, domainKey, entityKeys: [], attributes: { id, name } }
}

export class ConsumersService {
  readonly #database: Database
  readonly #journal: Journal
  readonly #access: AccessPolicy
  readonly #gate: Pick<MessageGate, 'authorize'>
  readonly #quotas: Pick<Quotas, 'requireRoom'>

  constructor({ database, journal, access, gate, quotas }: ConsumersDeps) {
    this.#database = database
    this.#journal = journal
    this.#access = access
    this.#gate = gate
    this.#quotas = quotas
  }

  /** Throws `malformed`, `conflict` for a name in use, `quota_exceeded`, `gone` for a position that is no longer kept. */
  async create(caller: UserPrincipal, domainId: string, input: NewConsumer): Promise<ConsumerRecord> {
    const fields = fieldsOf(input)
    const domain = await this.#enter(caller, domainId, 'consumer_create')
    const { domainKey } = domain
    const channels = await requireSubscribe(this.#gate, caller, domain.domainId, input.channels)
    const id = newId()
    await this.#journal.change(caller, async (tx, record) => {
      await this.#quotas.requireRoom(tx, domainKey, 'consumers', 1, (db) => countConsumers(db, domainKey))
      const start = await startOf(tx, input.from ?? 'latest')
      const key = await insertConsumer(tx, { ...fields, ...start, id, domainKey, createdBy: caller.id })
      await setChannels(
        tx,
        key,
        channels.map((channel) => channel.key),
      )
      record(entryOf('create', { domainKey, id, name: fields.name }))
    })
    return await this.#shown(domain, id)
  }

  /** Finds a consumer by name or id. Throws `not_found`. */
  async get(caller: UserPrincipal, domainId: string, nameOrId: string): Promise<ConsumerRecord> {
    return await this.#shown(await this.#enter(caller, domainId, 'consumer_read'), nameOrId)
  }

  async list(caller: UserPrincipal, domainId: string, query: ConsumerQuery): Promise<Page<ConsumerRecord>> {
    const { offset, limit, cursor, name, channel } = query
    const { domainKey } = await this.#enter(caller, domainId, 'consumer_read')
    const page = { domainKey, name, channel, offset, limit, cursor }
    const { total, consumers, next } = await listConsumers(this.#database.db, page)
    return { total, offset, limit, items: consumers, next }
  }

  /** Absent fields are unchanged; its position too. */
  async update(
    caller: UserPrincipal,
    domainId: string,
    nameOrId: string,
    input: ConsumerUpdate,
  ): Promise<ConsumerRecord> {
    const domain = await this.#enter(caller, domainId, 'consumer_update')
    const channels =
      input.channels === undefined
        ? undefined
        : await requireSubscribe(this.#gate, caller, domain.domainId, input.channels)
    let id = ''
    await this.#change(caller, domain, nameOrId, async (tx, consumer, record) => {
      const fields = fieldsOf(input, consumer)
      // Pages are of the order that was.
      await unpackAll(tx, consumer.key)
      await updateConsumer(tx, consumer.key, fields, caller.id)
      if (channels !== undefined)
        await setChannels(
          tx,
          consumer.key,
          channels.map((channel) => channel.key),
        )
      record(entryOf('update', { ...consumer, name: fields.name }))
      ;({ id } = consumer)
    })
    return await this.#shown(domain, id)
  }

  /** Returns its key. */
  async remove(caller: UserPrincipal, domainId: string, nameOrId: string): Promise<number> {
    const domain = await this.#enter(caller, domainId, 'consumer_delete')
    let key = 0
    await this.#change(caller, domain, nameOrId, async (tx, consumer, record) => {
      await deleteConsumer(tx, consumer.key)
      record(entryOf('remove', consumer))
      ;({ key } = consumer)
    })
    return key
  }

  /** Moves it. What is in doubt is forgotten, dead letters stay. Throws `malformed` and `gone`. Returns its key with the record. */
  async seek(caller: UserPrincipal, domainId: string, nameOrId: string, from: string): Promise<ConsumerRecord> {
    const domain = await this.#enter(caller, domainId, 'consumer_update')
    await this.#change(caller, domain, nameOrId, async (tx, consumer, record) => {
      await moveConsumer(tx, consumer.key, await startOf(tx, from))
      const entry = entryOf('seek', consumer)
      record({ ...entry, attributes: { ...entry.attributes, from } })
    })
    return await this.#shown(domain, nameOrId)
  }

  async #shown(domain: DomainAccess, nameOrId: string): Promise<ConsumerRecord> {
    const found = await findShown(this.#database.db, consumerRef(domain, nameOrId))
    if (found === undefined) throw notFound()
    return found
  }

  /** Locks the consumer and changes it. */
  async #change(
    caller: UserPrincipal,
    domain: DomainAccess,
    nameOrId: string,
    work: (tx: Transaction, consumer: Consumer, record: Recorder) => Promise<void>,
  ): Promise<void> {
    await this.#journal.change(caller, async (tx, record) => {
      const consumer = await findConsumer(tx, consumerRef(domain, nameOrId), true)
      if (consumer === undefined) throw notFound()
      await work(tx, consumer, record)
    })
  }

  async #enter(caller: UserPrincipal, domainId: string, action: DomainAction): Promise<DomainAccess> {
    const domain = await this.#access.enter(caller, domainId)
    domain.require(action)
    return domain
  }
}
