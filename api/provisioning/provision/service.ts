/**
 * Provisioning (specification section 4 Provision service, contract 9.2): creates all entities of a device in one
 * request and one transaction. A failure at any step leaves nothing behind.
 */
import { enterForCreation } from '#api/identity/index.ts'
import type { Devices } from '#api/devices/index.ts'
import type { AccessPolicy, DomainAccess, Journal, Recorder, UserPrincipal } from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError, takenField } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import type { BootstrapService } from '../bootstrap/index.ts'
import type { Certificates, CreatedCertificate } from '../certs/index.ts'
import { inTransaction } from '../joined/index.ts'
import { EXTERNAL_ID, isGateway } from './layout.ts'
import type { Layout, LayoutItem } from './layout.ts'
import { hasOtherGateway } from './repository.ts'
import type { Mapping, MappingOrder } from './schema.ts'

export type ProvisionDeps = {
  database: Database
  journal: Journal
  access: AccessPolicy
  devices: Devices
  bootstrap: BootstrapService
  certificates: Certificates
  layout: Layout
}

type Planned = LayoutItem & { id: string }
type Plan = { clients: (Planned & { isGateway: boolean })[]; channels: Planned[] }
type CreatedClient = Awaited<ReturnType<Devices['clients']['create']>>[number]
type CreatedChannel = Awaited<ReturnType<Devices['channels']['create']>>[number]
/** Certificates by the id of their client. */
type CreatedCertificates = ReadonlyMap<string, CreatedCertificate>

export class ProvisionService {
  readonly #deps: ProvisionDeps

  constructor(deps: ProvisionDeps) {
    this.#deps = deps
  }

  /**
   * Returns the content of bootstrap configurations. Requires `client_create` in the domain, in the domain of the
   * settings, or in any domain. Throws `forbidden`, `unprocessable` when the domain is required.
   */
  async contentFor(caller: UserPrincipal, domainId: string | undefined): Promise<Readonly<Record<string, unknown>>> {
    const { access, layout } = this.#deps
    const named = domainId ?? layout.domainId
    const domains = named === undefined ? await access.enterAll(caller) : [await access.enter(caller, named)]
    if (!domains.some((domain) => domain.can('client_create')))
      throw new ServiceError('forbidden', 'failed to perform authorization: no domain allows you to provision')
    return layout.content
  }

  /**
   * Creates the layout for a device. The domain defaults to that of the settings, then to that of the token. Throws
   * `malformed`, `forbidden`, `conflict` for an external id that is already provisioned in the domain, `rate_limited` as `compareKey`.
   */
  async provision(
    caller: UserPrincipal,
    domainId: string | undefined,
    order: MappingOrder,
    isAnonymous: boolean,
  ): Promise<Mapping> {
    const { access, journal, layout } = this.#deps
    const plan = planOf(layout, order)
    const domain = await enterForCreation(access, caller, domainId ?? layout.domainId, 'mapping')
    domain.require('client_create')
    domain.require('channel_create')
    if (layout.hasBootstrap) await this.#deps.bootstrap.compareKey(caller, domain.domainKey, order)
    const certificates = await this.#certificatesFor(plan)
    return await journal.change(caller, async (tx, record) => {
      const made = await this.#make(tx, record, caller, domain, { plan, order, certificates })
      record({
        operation: 'provision.mapping',
        domainKey: domain.domainKey,
        entityKeys: [
          ...made.clients.map(({ client }) => client.key),
          ...made.channels.map(({ channel }) => channel.key),
        ],
        attributes: {
          external_id: order.external_id,
          client_ids: plan.clients.map(({ id }) => id),
          channel_ids: plan.channels.map(({ id }) => id),
          ...(isAnonymous ? { credentials_of: 'service' } : {}),
        },
      })
      return this.#present(domain.domainId, plan, made, certificates)
    })
  }

  /** Created before the transaction that stores them, because signing waits for another thread. */
  async #certificatesFor({ clients }: Plan): Promise<CreatedCertificates> {
    const { certificates, layout } = this.#deps
    if (!layout.hasCertificates) return new Map()
    const gateways = clients.filter(({ isGateway }) => isGateway)
    const ttl = layout.certificateTtl
    return new Map(
      await Promise.all(gateways.map(async ({ id }) => [id, await certificates.service.prepare(id, { ttl })] as const)),
    )
  }

  /** Creates all entities of the plan in the transaction. */
  async #make(
    tx: Transaction,
    record: Recorder,
    caller: UserPrincipal,
    domain: DomainAccess,
    { plan, order, certificates }: { plan: Plan; order: MappingOrder; certificates: CreatedCertificates },
  ): Promise<{ clients: CreatedClient[]; channels: CreatedChannel[] }> {
    const { database, journal, access, devices, layout } = this.#deps
    const { domainId, domainKey } = domain
    const inside = devices.over(inTransaction({ database, journal, access }, tx, record, domain))
    const [clients, channels] = await Promise.all([
      inside.clients.create(caller, domainId, plan.clients),
      inside.channels.create(caller, domainId, plan.channels),
    ])
    const isGateway = (index: number) => plan.clients[index]?.isGateway === true
    for (const { client } of clients.filter((_client, index) => isGateway(index))) {
      const owner = { domainKey, clientKey: client.key, clientId: client.id }
      const certificate = certificates.get(client.id)
      if (certificate !== undefined) this.#deps.certificates.service.storeWithin(tx, record, caller, owner, certificate)
      if (layout.hasBootstrap) {
        const config = this.#bootstrapConfig(client.name, order, certificate)
        const channelKeys = channels.map(({ channel }) => channel.key)
        this.#deps.bootstrap.createWithin(tx, record, caller, { ...owner, channelKeys }, config, layout.isWhitelisted)
      } else if (await hasOtherGateway(tx, domainKey, order.external_id, client.key)) {
        throw takenField('/external_id', 'a client with this external id exists in the domain')
      }
    }
    const connected = clients
      .filter((_client, index) => !isGateway(index) || !layout.hasBootstrap || layout.isWhitelisted)
      .map(({ client }) => client)
    if (connected.length > 0) {
      const made = { clients: connected, channels: channels.map(({ channel }) => channel) }
      await inside.connections.connectCreated(caller, domain, made)
    }
    return { clients, channels }
  }

  #bootstrapConfig(name: string, order: MappingOrder, certificate: CreatedCertificate | undefined) {
    const { content } = this.#deps.layout
    return {
      external_id: order.external_id,
      external_key: order.external_key,
      name,
      content: Object.keys(content).length === 0 ? '' : JSON.stringify(content),
      ...(certificate === undefined
        ? {}
        : {
            client_cert: certificate.pem,
            client_key: certificate.key ?? '',
            ca_cert: this.#deps.certificates.authority.chain,
          }),
    }
  }

  #present(
    domainId: string,
    plan: Plan,
    { clients, channels }: { clients: CreatedClient[]; channels: CreatedChannel[] },
    certificates: CreatedCertificates,
  ): Mapping {
    const { layout } = this.#deps
    const gateways = plan.clients.filter(({ isGateway }) => isGateway)
    const isWhitelisted = layout.hasBootstrap && layout.isWhitelisted
    const texts = (text: (made: CreatedCertificate) => string) =>
      Object.fromEntries([...certificates].map(([id, made]) => [id, text(made)]))
    return {
      clients: clients.map(({ client, secret }) => ({
        id: client.id,
        name: client.name,
        key: secret,
        credentials: { secret },
        domain_id: domainId,
        metadata: client.metadata,
      })),
      channels: channels.map(({ channel }) => ({
        id: channel.id,
        name: channel.name,
        domain_id: domainId,
        metadata: channel.metadata,
      })),
      whitelisted: isWhitelisted ? Object.fromEntries(gateways.map(({ id }) => [id, true])) : {},
      ...(layout.hasCertificates
        ? {
            client_cert: texts(({ pem }) => pem),
            client_key: texts(({ key }) => key ?? ''),
            ca_cert: this.#deps.certificates.authority.chain,
          }
        : {}),
    }
  }
}

/** Ids are generated before the first write, so that each client is written once, with its references to channels. */
function planOf(layout: Layout, { name, external_id: externalId, external_key: externalKey }: MappingOrder): Plan {
  const title = name ?? ''
  const channels = layout.channels.map((item) => ({
    ...item,
    id: newId(),
    name: title === '' ? item.name : `${title}_${item.name}`,
  }))
  const ofType = (type: string) => channels.find(({ metadata }) => metadata['type'] === type)?.id
  const clients = layout.clients.map((item) => {
    const id = newId()
    const named = { id, name: title === '' ? item.name : title }
    if (!isGateway(item)) return { ...named, metadata: item.metadata, isGateway: false }
    const facts = {
      [EXTERNAL_ID]: externalId,
      external_key: externalKey,
      type: 'gateway',
      ctrl_channel_id: ofType('control'),
      data_channel_id: ofType('data'),
      export_channel_id: ofType('export'),
      cfg_id: layout.hasBootstrap ? id : undefined,
    }
    const known = Object.entries(facts).filter(([, value]) => value !== undefined)
    return { ...named, metadata: { ...item.metadata, ...Object.fromEntries(known) }, isGateway: true }
  })
  return { clients, channels }
}
