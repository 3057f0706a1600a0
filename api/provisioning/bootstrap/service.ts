/**
 * The rules of bootstrap configurations (contract 9.1). A configuration holds the secrets of its client, so whoever may
 * update the client sees and changes it. The device itself gets it for its external id and key, active or not.
 */
import { timingSafeEqual } from 'node:crypto'
import { openClientSecret } from '#api/devices/index.ts'
import type { DeviceServices, Devices } from '#api/devices/index.ts'
import type { AccessPolicy, DomainAccess, Journal, Recorder, UserPrincipal } from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { Page } from '#core/page.ts'
import { joinedTo } from '../joined.ts'
import type { BootstrapConfig, ConfigChange } from './repository.ts'
import {
  findByExternalId,
  findChannelKeys,
  findConfig,
  insertConfig,
  listConfigs,
  lockConfig,
  removeConfig,
  setChannels,
  updateConfig,
} from './repository.ts'
import type {
  BootstrapQuery,
  BootstrapSecrets,
  BootstrapUpdate,
  CertificatesUpdate,
  NewBootstrapConfig,
} from './schema.ts'
import { clientIdOf } from './schema.ts'

export type ShownConfig = { config: BootstrapConfig; secrets: BootstrapSecrets }

/** What the device gets: the secrets are its own. */
export type DeviceAnswer = { config: BootstrapConfig; clientSecret: string; privateKey: string }

/** A client and its channels that the transaction has made or checked. */
export type ConfiguredClient = {
  domainKey: number
  clientKey: number
  clientId: string
  channelKeys: readonly number[]
}

export type BootstrapService = {
  /**
   * For a client of the domain, or for a new one. Gives the id of the client. Throws `malformed` for a channel that is none,
   * `not_found` for an unknown client, `conflict` for an external id that is used in the domain, an external id and key that
   * are used anywhere, and a client that has a configuration.
   */
  create(caller: UserPrincipal, domainId: string, input: NewBootstrapConfig): Promise<string>
  /** The same for a client that this transaction made; nothing is asked again. */
  createWithin(
    tx: Transaction,
    record: Recorder,
    caller: UserPrincipal,
    client: ConfiguredClient,
    input: Omit<NewBootstrapConfig, 'channels'>,
    isEnabled: boolean,
  ): Promise<void>
  get(caller: UserPrincipal, domainId: string, clientId: string): Promise<ShownConfig>
  list(caller: UserPrincipal, domainId: string, query: BootstrapQuery): Promise<Page<ShownConfig>>
  update(caller: UserPrincipal, domainId: string, clientId: string, input: BootstrapUpdate): Promise<void>
  updateCertificates(
    caller: UserPrincipal,
    domainId: string,
    clientId: string,
    input: CertificatesUpdate,
  ): Promise<BootstrapConfig>
  /** These channels and no others; while it is active, connections follow. */
  updateConnections(
    caller: UserPrincipal,
    domainId: string,
    clientId: string,
    channelIds: readonly string[],
  ): Promise<void>
  /** Active: connected in both directions with all its channels. The state that it has changes nothing. */
  setState(caller: UserPrincipal, domainId: string, clientId: string, isActive: boolean): Promise<void>
  remove(caller: UserPrincipal, domainId: string, clientId: string): Promise<void>
  /** Throws `not_found` for an unknown external id, `forbidden` for a wrong key and for a disabled client or domain. */
  retrieve(externalId: string, externalKey: string): Promise<DeviceAnswer>
}

export type BootstrapDeps = {
  database: Database
  journal: Journal
  access: AccessPolicy
  keyring: Keyring
  devices: Devices
}

const KEY_PURPOSE = 'bootstrap external key'
const PRIVATE_KEY_PURPOSE = 'bootstrap private key'

const notFound = () => new ServiceError('not_found', 'entity not found')

export function createBootstrapService(deps: BootstrapDeps): BootstrapService {
  const { database, journal, access, keyring, devices } = deps
  const contextOf = (one: { domainKey: number; clientKey: number }) => `${one.domainKey}/${one.clientKey}`

  const shown = (config: BootstrapConfig): ShownConfig => ({
    config,
    secrets: {
      clientSecret: clientSecretOf(config),
      externalKey: keyring.open(KEY_PURPOSE, contextOf(config), config.externalKeySealed),
    },
  })
  const clientSecretOf = ({ domainKey, clientId, secretSealed }: BootstrapConfig) =>
    openClientSecret(keyring, { domainKey, id: clientId, secretSealed })

  /** The client of a path; its configuration is looked for by key. */
  async function locate(caller: UserPrincipal, domainId: string, clientId: string) {
    const { domain, entity } = await access.locate(caller, domainId, 'client', clientId)
    const client = await domain.requireOn(entity, 'update')
    return { domain, client }
  }

  /** Locks the configuration of a path and lets `work` change it together with what else must change. */
  async function change<T>(
    caller: UserPrincipal,
    domainId: string,
    clientId: string,
    work: (inside: {
      tx: Transaction
      config: BootstrapConfig
      domain: DomainAccess
      devices: DeviceServices
      record: (operation: string, attributes: Record<string, unknown>) => void
    }) => Promise<T>,
  ): Promise<T> {
    const { domain, client } = await locate(caller, domainId, clientId)
    return await journal.change(caller, async (tx, record) => {
      const config = await lockConfig(tx, client.key)
      if (config === undefined) throw notFound()
      const joined = joinedTo({ database, journal, access }, tx, record, domain)
      return await work({
        tx,
        config,
        domain,
        devices: devices.over(joined),
        record: (operation, attributes) =>
          record({
            operation: `bootstrap.${operation}`,
            domainKey: domain.domainKey,
            entityKeys: [client.key],
            attributes: { client_id: clientId, ...attributes },
          }),
      })
    })
  }

  async function createWithin(
    tx: Transaction,
    record: Recorder,
    caller: UserPrincipal,
    client: ConfiguredClient,
    input: Omit<NewBootstrapConfig, 'channels'>,
    isEnabled: boolean,
  ): Promise<void> {
    const { domainKey, clientKey } = client
    await insertConfig(
      tx,
      {
        domainKey,
        clientKey,
        externalId: input.external_id,
        externalKeyMac: keyring.mac(KEY_PURPOSE, input.external_key),
        externalKeySealed: keyring.seal(KEY_PURPOSE, contextOf(client), input.external_key),
        name: input.name ?? '',
        content: input.content ?? '',
        clientCert: input.client_cert ?? '',
        privateKeySealed: sealedPrivateKey(client, input.client_key),
        caCert: input.ca_cert ?? '',
        isEnabled,
        createdBy: caller.id,
      },
      client.channelKeys,
    )
    record({
      operation: 'bootstrap.config.create',
      domainKey,
      entityKeys: [clientKey, ...client.channelKeys],
      attributes: { client_id: client.clientId, external_id: input.external_id, name: input.name ?? '' },
    })
  }

  const sealedPrivateKey = (client: { domainKey: number; clientKey: number }, key: string | undefined) =>
    key === undefined || key === '' ? null : keyring.seal(PRIVATE_KEY_PURPOSE, contextOf(client), key)

  /** The keys of channels that the caller may read, in the order given. Throws `malformed` for any other. */
  async function channelKeysOf(tx: Transaction, domain: DomainAccess, ids: readonly string[]): Promise<number[]> {
    const wanted = [...new Set(ids)]
    const refuse = (id: string) => {
      const message = `there is no channel ${id} in this domain`
      return new ServiceError('malformed', message, { details: [{ path: '/channels', message }] })
    }
    for (const id of wanted) if (!isId(id)) throw refuse(id)
    const keys = await findChannelKeys(tx, domain.domainKey, wanted, domain.reachable('channel', 'read', 'h'))
    return wanted.map((id) => {
      const key = keys.get(id)
      if (key === undefined) throw refuse(id)
      return key
    })
  }

  return {
    async create(caller, domainId, input) {
      const clientId = clientIdOf(input)
      const located = clientId === undefined ? undefined : await locate(caller, domainId, clientId)
      const domain = located?.domain ?? (await access.enter(caller, domainId))
      return await journal.change(caller, async (tx, record) => {
        const channelKeys = await channelKeysOf(tx, domain, input.channels)
        const client = located?.client ?? (await makeClient())
        const { key: clientKey, id } = client
        await createWithin(
          tx,
          record,
          caller,
          { domainKey: domain.domainKey, clientKey, clientId: id, channelKeys },
          input,
          false,
        )
        return id

        async function makeClient() {
          const { clients } = devices.over(joinedTo({ database, journal, access }, tx, record, domain))
          const [made] = await clients.create(caller, domain.domainId, [{ name: input.name ?? '' }])
          if (made === undefined) throw new Error('no client was made')
          return made.client
        }
      })
    },
    createWithin,
    async get(caller, domainId, clientId) {
      const { client } = await locate(caller, domainId, clientId)
      const config = await findConfig(database.db, client.key)
      if (config === undefined) throw notFound()
      return shown(config)
    },
    async list(
      caller,
      domainId,
      { offset, limit, state, name, external_id: externalId, client_id: clientId, channel },
    ) {
      const domain = await access.enter(caller, domainId)
      const { total, configs } = await listConfigs(database.db, {
        domainKey: domain.domainKey,
        permitted: domain.reachable('client', 'update', 'c'),
        filter: { state, name, externalId, clientId, channelId: channel },
        offset,
        limit,
      })
      return { total, offset, limit, items: configs.map(shown) }
    },
    async update(caller, domainId, clientId, { name, content }) {
      await change(caller, domainId, clientId, async ({ tx, config, record }) => {
        const wanted: ConfigChange = {
          ...(name === undefined ? {} : { name }),
          ...(content === undefined ? {} : { content }),
        }
        await updateConfig(tx, config.clientKey, wanted, caller.id)
        record('config.update', { external_id: config.externalId, name: name ?? config.name })
      })
    },
    async updateCertificates(caller, domainId, clientId, input) {
      return await change(caller, domainId, clientId, async ({ tx, config, record }) => {
        const sealed = sealedPrivateKey(config, input.client_key)
        const wanted: ConfigChange = {
          ...(input.client_cert === undefined ? {} : { clientCert: input.client_cert }),
          ...(sealed === null ? {} : { privateKeySealed: sealed }),
          ...(input.ca_cert === undefined ? {} : { caCert: input.ca_cert }),
        }
        await updateConfig(tx, config.clientKey, wanted, caller.id)
        record('cert.update', { external_id: config.externalId })
        return { ...config, ...wanted }
      })
    },
    async updateConnections(caller, domainId, clientId, channelIds) {
      await change(caller, domainId, clientId, async (inside) => {
        const { tx, config, domain } = inside
        const keys = await channelKeysOf(tx, domain, channelIds)
        if (config.isActive) {
          const [before, after] = [new Set(config.channels.map(({ id }) => id)), new Set(channelIds)]
          const gone = before.difference(after)
          if (gone.size > 0) await inside.devices.connections.disconnect(caller, { domainId }, [both(config, gone)])
          await inside.devices.connections.connect(caller, { domainId }, [both(config, after)])
        }
        await setChannels(tx, config.clientKey, keys)
        inside.record('client.update_connections', { channel_ids: [...new Set(channelIds)] })
      })
    },
    async setState(caller, domainId, clientId, isActive) {
      await change(caller, domainId, clientId, async (inside) => {
        const { tx, config } = inside
        if (config.isActive === isActive) return
        const { connections } = inside.devices
        const all = both(config, new Set(config.channels.map(({ id }) => id)))
        if (config.channels.length > 0)
          await (isActive ? connections.connect : connections.disconnect)(caller, { domainId }, [all])
        await updateConfig(tx, config.clientKey, { isEnabled: isActive }, caller.id)
        inside.record('client.change_state', { external_id: config.externalId, state: isActive ? 1 : 0 })
      })
    },
    async remove(caller, domainId, clientId) {
      await change(caller, domainId, clientId, async ({ tx, config, record }) => {
        if (!(await removeConfig(tx, config.clientKey))) throw notFound()
        record('config.remove', { external_id: config.externalId })
      })
    },
    async retrieve(externalId, externalKey) {
      const mac = keyring.mac(KEY_PURPOSE, externalKey)
      const found = await findByExternalId(database.db, externalId, mac)
      if (found.length === 0) throw notFound()
      const match = found.find((one) => timingSafeEqual(one.externalKeyMac, mac))
      const refuse = (reason: string) => new ServiceError('forbidden', `failed to perform authorization: ${reason}`)
      if (match === undefined) throw refuse('wrong external key')
      if (!match.isEnabled) throw refuse('the client or its domain is disabled')
      const config = await findConfig(database.db, match.clientKey)
      if (config === undefined) throw notFound()
      const { privateKeySealed } = config
      return {
        config,
        clientSecret: clientSecretOf(config),
        privateKey:
          privateKeySealed === null ? '' : keyring.open(PRIVATE_KEY_PURPOSE, contextOf(config), privateKeySealed),
      }
    },
  }
}

/** The client with these channels, in both directions. */
function both(config: BootstrapConfig, channelIds: ReadonlySet<string>) {
  return { client_ids: [config.clientId], channel_ids: [...channelIds] }
}
