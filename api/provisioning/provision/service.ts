/**
 * Provisioning (specification section 4 Provision service, contract 9.2): everything that a device needs, in one call and one
 * transaction. Whatever fails, at whatever step, nothing is left behind.
 */
import { enterForCreation } from '#api/devices/index.ts'
import type { Devices } from '#api/devices/index.ts'
import type { AccessPolicy, Journal, UserPrincipal } from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import type { BootstrapService } from '../bootstrap/index.ts'
import type { Certificates } from '../certs/index.ts'
import { joinedTo } from '../joined.ts'
import { EXTERNAL_ID, isGateway } from './layout.ts'
import type { Layout, LayoutItem } from './layout.ts'
import { hasOtherGateway } from './repository.ts'
import type { Mapping, MappingOrder } from './schema.ts'

export type ProvisionService = {
  /**
   * Makes the layout for a device. Without a domain: that of the settings, else the one that is meant by the token. Throws
   * `malformed`, `forbidden`, `conflict` for an external id that is provisioned already.
   */
  provision(
    caller: UserPrincipal,
    domainId: string | undefined,
    order: MappingOrder,
    isAnonymous: boolean,
  ): Promise<Mapping>
  /**
   * Content of bootstrap configurations, for whoever may provision in the domain; without one in that of the settings, else in
   * any. Throws `forbidden`, `unprocessable` where the domain must be named.
   */
  contentFor(caller: UserPrincipal, domainId: string | undefined): Promise<Readonly<Record<string, unknown>>>
}

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

export function createProvisionService(deps: ProvisionDeps): ProvisionService {
  const { database, journal, access, devices, bootstrap, certificates, layout } = deps

  return {
    async contentFor(caller, domainId) {
      const named = domainId ?? layout.domainId
      const domains = named === undefined ? await access.enterAll(caller) : [await access.enter(caller, named)]
      if (!domains.some((domain) => domain.can('client_create')))
        throw new ServiceError('forbidden', 'failed to perform authorization: you may provision nowhere')
      return layout.content
    },
    async provision(caller, domainId, order, isAnonymous) {
      const { clients, channels } = planOf(layout, order)
      const domain = await enterForCreation(access, caller, domainId ?? layout.domainId, 'mapping')
      domain.require('client_create')
      domain.require('channel_create')
      const { domainId: here, domainKey } = domain
      return await journal.change(caller, async (tx: Transaction, record) => {
        const inside = devices.over(joinedTo({ database, journal, access }, tx, record, domain))
        const [madeClients, madeChannels] = await Promise.all([
          inside.clients.create(caller, here, clients),
          inside.channels.create(caller, here, channels),
        ])
        const channelIds = channels.map(({ id }) => id)
        const channelKeys = madeChannels.map(({ channel }) => channel.key)

        const whitelisted: Mapping['whitelisted'] = {}
        const [clientCerts, clientKeys]: [Record<string, string>, Record<string, string>] = [{}, {}]
        for (const [index, plan] of clients.entries()) {
          if (!plan.isGateway) continue
          const { client } = madeClients[index] as (typeof madeClients)[number]
          const owner = { domainKey, clientKey: client.key, clientId: client.id }
          const issued = layout.hasCertificates
            ? certificates.service.issueWithin(tx, record, caller, owner, { ttl: layout.certificateTtl })
            : undefined
          if (issued !== undefined) {
            clientCerts[client.id] = issued.certificate.pem
            clientKeys[client.id] = issued.key ?? ''
          }
          if (layout.hasBootstrap) {
            const content = Object.keys(layout.content).length === 0 ? '' : JSON.stringify(layout.content)
            const config = {
              external_id: order.external_id,
              external_key: order.external_key,
              name: client.name,
              content,
              ...(issued === undefined
                ? {}
                : {
                    client_cert: issued.certificate.pem,
                    client_key: issued.key ?? '',
                    ca_cert: certificates.authority.chain,
                  }),
            }
            bootstrap.createWithin(tx, record, caller, { ...owner, channelKeys }, config, layout.isWhitelisted)
            if (layout.isWhitelisted) whitelisted[client.id] = true
          } else if (await hasOtherGateway(tx, domainKey, order.external_id, client.key)) {
            throw new ServiceError('conflict', 'a client of this external id exists in the domain')
          }
        }
        const connected = madeClients
          .filter((_client, index) => !clients[index]?.isGateway || !layout.hasBootstrap || layout.isWhitelisted)
          .map(({ client }) => client)
        if (connected.length > 0) {
          const made = { clients: connected, channels: madeChannels.map(({ channel }) => channel) }
          await inside.connections.connectMade(caller, domain, made)
        }
        record({
          operation: 'provision.mapping',
          domainKey,
          entityKeys: [...madeClients.map(({ client }) => client.key), ...channelKeys],
          attributes: {
            external_id: order.external_id,
            client_ids: clients.map(({ id }) => id),
            channel_ids: channelIds,
            ...(isAnonymous ? { credentials_of: 'service' } : {}),
          },
        })
        return {
          clients: madeClients.map(({ client, secret }) => ({
            id: client.id,
            name: client.name,
            key: secret,
            credentials: { secret },
            domain_id: here,
            metadata: client.metadata,
          })),
          channels: madeChannels.map(({ channel }) => ({
            id: channel.id,
            name: channel.name,
            domain_id: here,
            metadata: channel.metadata,
          })),
          whitelisted,
          ...(layout.hasCertificates
            ? { client_cert: clientCerts, client_key: clientKeys, ca_cert: certificates.authority.chain }
            : {}),
        }
      })
    },
  }
}

/** Ids are known before anything is written, so that each client is written once, with all that it says of the channels. */
function planOf(
  layout: Layout,
  { name, external_id: externalId, external_key: externalKey }: MappingOrder,
): { clients: (Planned & { isGateway: boolean })[]; channels: Planned[] } {
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
