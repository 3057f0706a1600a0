/** The rules of clients (specification section 4 Clients, contract 4.1, decisions 13, 14, 31, 45, 46). */
import { allOf, grantAdmin, removeRolesOf } from '#api/identity/index.ts'
import type { AccessPolicy, DomainAccess, Journal, UserPrincipal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId, newId } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { Page } from '#core/page.ts'
import { requireDistinct, requireFewItems } from '../bulk.ts'
import { openSecret, sealSecret, secretMac } from '../client-secrets.ts'
import { connectedTo, deviceConditions, readableIn } from '../listing.ts'
import type { ClientChange, ClientRecord } from './repository.ts'
import { countClients, deleteClient, findClient, insertClients, listClients, updateClient } from './repository.ts'
import type { ClientQuery, ClientUpdate, NewClient } from './schema.ts'

/** A client and the secret that the caller may see with it; empty: none. */
export type ShownClient = { client: ClientRecord; secret: string }

export type ClientsService = {
  /** Creates all or none; single creation is bulk creation of one. Throws `too_large`, `forbidden`, `conflict`. */
  create(caller: UserPrincipal, domainId: string, inputs: readonly NewClient[]): Promise<ShownClient[]>
  get(caller: UserPrincipal, domainId: string, id: string): Promise<ShownClient>
  /** Clients of the domain that the caller may read; without a domain those of every domain that he reaches (decision 31). */
  list(caller: UserPrincipal, domainId: string | undefined, query: ClientQuery): Promise<Page<ShownClient>>
  /** Fields that are absent stay. */
  update(caller: UserPrincipal, domainId: string, id: string, input: ClientUpdate): Promise<ShownClient>
  /** The old secret is invalid at once. Throws `conflict` for one that is used in the domain. */
  changeSecret(caller: UserPrincipal, domainId: string, id: string, secret: string): Promise<ShownClient>
  /** Idempotent (decision 13). */
  setStatus(caller: UserPrincipal, domainId: string, id: string, status: 'enabled' | 'disabled'): Promise<ShownClient>
  /** Removes the client, its connections and its roles; its stored messages stay (decision 46). */
  remove(caller: UserPrincipal, domainId: string, id: string): Promise<void>
}

export type ClientsDeps = { database: Database; journal: Journal; access: AccessPolicy; keyring: Keyring }

export function createClientsService({ database, journal, access, keyring }: ClientsDeps): ClientsService {
  async function requireClient(domain: DomainAccess, id: string, action: string): Promise<ClientRecord> {
    const client = isId(id) ? await findClient(database.db, domain.domainKey, id) : undefined
    return await domain.requireOn(client, action)
  }

  const hidden = (client: ClientRecord): ShownClient => ({ client, secret: '' })

  async function change(
    caller: UserPrincipal,
    client: ClientRecord,
    operation: string,
    fields: ClientChange,
    attributes: Record<string, unknown>,
  ): Promise<ClientRecord> {
    return await journal.change(caller, async (tx, record) => {
      const updated = await updateClient(tx, client.key, fields, caller.id)
      if (updated === undefined) throw new ServiceError('not_found', 'entity not found')
      record({
        operation,
        domainKey: client.domainKey,
        entityKeys: [client.key],
        attributes: { id: client.id, ...attributes },
      })
      return updated
    })
  }

  /** Lists show the secret to callers who could change it (decision 14). */
  async function showListed(domain: DomainAccess, client: ClientRecord): Promise<ShownClient> {
    const maySee = domain.can('client_update') || (await domain.actionsOn(client)).has('update')
    return maySee ? { client, secret: openSecret(keyring, client) } : hidden(client)
  }

  return {
    async create(caller, domainId, inputs) {
      requireFewItems(inputs.length, 'clients')
      const domain = await access.enter(caller, domainId)
      domain.require('client_create')
      requireDistinct(inputs, 'id', (input) => input.id)
      requireDistinct(inputs, 'credentials/secret', (input) => input.credentials?.secret)
      const secrets: string[] = []
      const rows = inputs.map((input) => {
        const id = input.id ?? newId()
        const secret = input.credentials?.secret ?? newId()
        secrets.push(secret)
        return {
          id,
          name: input.name ?? '',
          tags: input.tags ?? [],
          identity: input.credentials?.identity ?? '',
          secretMac: secretMac(keyring, secret),
          secretSealed: sealSecret(keyring, domain.domainKey, id, secret),
          metadata: input.metadata ?? {},
          status: input.status ?? ('enabled' as const),
        }
      })
      const clients = await journal.change(caller, async (tx, record) => {
        const created = await insertClients(tx, domain, rows, caller.id)
        const keys = created.map((client) => client.key)
        await grantAdmin(tx, caller.key, 'client', domain.domainKey, keys)
        record({
          operation: 'client.create',
          domainKey: domain.domainKey,
          entityKeys: keys,
          attributes: attributesOfCreated(created),
        })
        return created
      })
      return clients.map((client, index) => ({ client, secret: secrets[index] ?? '' }))
    },
    async get(caller, domainId, id) {
      const domain = await access.enter(caller, domainId)
      return hidden(await requireClient(domain, id, 'read'))
    },
    async list(caller, domainId, query) {
      const conditions = deviceConditions(query, 'c')
      const domains = domainId === undefined ? await access.enterAll(caller) : [await access.enter(caller, domainId)]
      const byKey = new Map(domains.map((domain) => [domain.domainKey, domain]))
      const connected =
        query.channel === undefined ? [] : [connectedTo('c', 'client', query.channel, query.connection_type)]
      const where = allOf([readableIn(domains, 'client', 'c'), ...conditions, ...connected])
      const [total, clients] = await Promise.all([
        countClients(database.db, where),
        query.only_total === true
          ? []
          : listClients(database.db, {
              where,
              order: query.order,
              dir: query.dir ?? 'asc',
              offset: query.offset,
              limit: query.limit,
            }),
      ])
      const items = await Promise.all(
        clients.map((client) => showListed(byKey.get(client.domainKey) as DomainAccess, client)),
      )
      return { total, offset: query.offset, limit: query.limit, items }
    },
    async update(caller, domainId, id, input) {
      const domain = await access.enter(caller, domainId)
      const client = await requireClient(domain, id, 'update')
      const fields = {
        ...(input.name === undefined ? {} : { name: input.name }),
        ...(input.metadata === undefined ? {} : { metadata: input.metadata }),
        ...(input.tags === undefined ? {} : { tags: input.tags }),
      }
      return hidden(await change(caller, client, 'client.update', fields, fields))
    },
    async changeSecret(caller, domainId, id, secret) {
      const domain = await access.enter(caller, domainId)
      const client = await requireClient(domain, id, 'update')
      const sealed = {
        mac: secretMac(keyring, secret),
        sealed: sealSecret(keyring, domain.domainKey, client.id, secret),
      }
      const updated = await change(caller, client, 'client.update_secret', { secret: sealed }, {})
      return { client: updated, secret }
    },
    async setStatus(caller, domainId, id, status) {
      const domain = await access.enter(caller, domainId)
      const client = await requireClient(domain, id, 'update')
      if (client.status === status) return hidden(client)
      return hidden(
        await change(caller, client, status === 'enabled' ? 'client.enable' : 'client.disable', { status }, { status }),
      )
    },
    async remove(caller, domainId, id) {
      const domain = await access.enter(caller, domainId)
      const client = await requireClient(domain, id, 'delete')
      await journal.change(caller, async (tx, record) => {
        if (!(await deleteClient(tx, client.key))) throw new ServiceError('not_found', 'entity not found')
        await removeRolesOf(tx, [client.key])
        record({
          operation: 'client.remove',
          domainKey: client.domainKey,
          entityKeys: [client.key],
          attributes: { id: client.id },
        })
      })
    },
  }
}

function attributesOfCreated(created: readonly ClientRecord[]): Record<string, unknown> {
  const [only, ...more] = created
  if (only === undefined || more.length > 0) return { ids: created.map((client) => client.id) }
  return {
    id: only.id,
    name: only.name,
    tags: only.tags,
    metadata: only.metadata,
    identity: only.identity,
    status: only.status,
  }
}
