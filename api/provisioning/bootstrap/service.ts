/**
 * The rules of bootstrap configurations (contract 9.1). A configuration contains the secrets of its client, so viewing
 * and changing it requires `update` on the client. The device gets it for its external id and key, active or not.
 */
import { BOTH, openClientSecret } from '#api/devices/index.ts'
import type { Devices } from '#api/devices/index.ts'
import type { AccessPolicy, DomainAccess, Journal, Recorder, UserPrincipal } from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { Page } from '#core/page.ts'
import { inTransaction } from '../joined/index.ts'
import { requireProfile, requireSizeLimit } from '../profiles/index.ts'
import type { Profile } from '../profiles/index.ts'
import { ConfigChanges, notFound } from './changes.ts'
import { Enrolments } from './enrolments.ts'
import type { FactoryKeys } from './factory-keys.ts'
import type { BootstrapConfig, ConfigChange } from './repository.ts'
import {
  findConfig,
  findKeys,
  insertConfig,
  listConfigs,
  removeConfig,
  setChannels,
  updateConfig,
} from './repository.ts'
import type {
  BootstrapQuery,
  BootstrapSecrets,
  BootstrapPatch,
  CertificatesUpdate,
  DeviceAnswer,
  NewBootstrapConfig,
} from './schema.ts'
import { createConfigSealing } from './sealing.ts'
import type { ConfigSealing } from './sealing.ts'

export type ShownConfig = { config: BootstrapConfig; secrets: BootstrapSecrets }

/** A client and its channels that the transaction has created or checked. */
export type ConfiguredClient = {
  domainKey: number
  clientKey: number
  clientId: string
  channelKeys: readonly number[]
  profile?: Profile | undefined
}

export type BootstrapDeps = {
  database: Database
  journal: Journal
  access: AccessPolicy
  keyring: Keyring
  devices: Devices
  factoryKeys: FactoryKeys
  /** SKEIN_BOOTSTRAP_WEAK_KEYS. */
  allowsWeakKeys: boolean
}

export class BootstrapService {
  readonly enrolments: Enrolments
  readonly #deps: BootstrapDeps
  readonly #sealing: ConfigSealing
  readonly #changes: ConfigChanges

  constructor(deps: BootstrapDeps) {
    const { database, access, keyring } = deps
    this.#deps = deps
    this.#sealing = createConfigSealing(keyring, deps)
    this.#changes = new ConfigChanges(deps)
    this.enrolments = new Enrolments({ database, access, keyring, sealing: this.#sealing, changes: this.#changes })
  }

  /**
   * Creates a configuration for a client of the domain, or for a new one. Returns the id of the client. Throws
   * `malformed` for an unknown channel, `not_found` for an unknown client, `conflict` for an external id that exists in
   * the domain and a client that already has a configuration, `rate_limited` (see `compareKey`).
   */
  async create(caller: UserPrincipal, domainId: string, input: NewBootstrapConfig): Promise<string> {
    const { database, journal, access, devices } = this.#deps
    const profileId = input.profile_id ?? ''
    requireWhole(input)
    const clientId = input.client_id === '' ? undefined : input.client_id
    const located = clientId === undefined ? undefined : await this.#changes.locate(caller, domainId, clientId)
    const domain = located?.domain ?? (await access.enter(caller, domainId))
    // Checked before the profile is read, so that its existence is not revealed. The content for the device reveals the
    // profile.
    if (located === undefined && profileId !== '') domain.require('client_create')
    if (profileId !== '') domain.require('profile_read')
    await this.compareKey(caller, domain.domainKey, input)
    return await journal.change(caller, async (tx, record) => {
      const inside = devices.over(inTransaction({ database, journal, access }, tx, record, domain))
      const channelIds = input.channels ?? []
      const channelKeys = await channelKeysOf(tx, domain, channelIds)
      const { domainKey } = domain
      const profile = profileId === '' ? undefined : await requireProfile(tx, domainKey, profileId, 'use')
      const made =
        located === undefined ? await inside.clients.create(caller, domain.domainId, [{ name: input.name ?? '' }]) : []
      const client = located?.client ?? made[0]?.client
      if (client === undefined) throw new Error('no client was made')
      const { key: clientKey, id } = client
      const isEnabled = input.status === 'enabled'
      this.createWithin(
        tx,
        record,
        caller,
        { domainKey, clientKey, clientId: id, channelKeys, profile },
        input,
        isEnabled,
      )
      if (profile !== undefined && input.bindings !== undefined)
        await this.enrolments.bindWithin(tx, domain, caller, { clientKey, clientId: id, profile }, input.bindings)
      if (isEnabled && channelIds.length > 0)
        await inside.connections.connect(caller, { domainId }, [both(id, new Set(channelIds))])
      return id
    })
  }

  /**
   * Call it before the transaction that creates a configuration with this external id and key. Throws `rate_limited` after too many
   * keys that other domains do not have for their external ids.
   */
  async compareKey(
    caller: UserPrincipal,
    domainKey: number,
    { external_id: externalId, external_key: externalKey }: Pick<NewBootstrapConfig, 'external_id' | 'external_key'>,
  ): Promise<void> {
    await this.#deps.factoryKeys.compare(caller, domainKey, externalId, this.#sealing.externalKeyMac(externalKey))
  }

  /** Creates a configuration for a client that this transaction has created. It checks no permissions. */
  createWithin(
    tx: Transaction,
    record: Recorder,
    caller: UserPrincipal,
    client: ConfiguredClient,
    input: Omit<NewBootstrapConfig, 'channels'>,
    isEnabled: boolean,
  ): void {
    const { domainKey, clientKey, profile } = client
    const row = {
      domainKey,
      clientKey,
      externalId: input.external_id,
      ...this.#sealing.newExternalKey(client, input.external_key),
      name: input.name ?? '',
      content: input.content ?? '',
      clientCert: input.client_cert ?? '',
      privateKeySealed: this.#sealing.sealPrivateKey(client, input.client_key),
      caCert: input.ca_cert ?? '',
      isEnabled,
      profileKey: profile?.key ?? null,
      renderContextSealed: this.#sealing.sealVariables(client, input.render_context),
      createdBy: caller.id,
    }
    tx.defer(insertConfig(tx, row, client.channelKeys))
    record({
      operation: 'bootstrap.config.create',
      domainKey,
      entityKeys: [clientKey, ...client.channelKeys],
      attributes: {
        client_id: client.clientId,
        external_id: input.external_id,
        name: input.name ?? '',
        ...(profile === undefined ? {} : { profile_id: profile.id }),
      },
    })
  }

  async get(caller: UserPrincipal, domainId: string, clientId: string): Promise<ShownConfig> {
    const { client } = await this.#changes.locate(caller, domainId, clientId)
    const config = await findConfig(this.#deps.database.db, client.key)
    if (config === undefined) throw notFound()
    return this.#shown(config)
  }

  async list(caller: UserPrincipal, domainId: string, query: BootstrapQuery): Promise<Page<ShownConfig>> {
    const { offset, limit, cursor } = query
    const domain = await this.#deps.access.enter(caller, domainId)
    const { total, configs, next } = await listConfigs(this.#deps.database.db, {
      domainKey: domain.domainKey,
      permitted: domain.reachable('client', 'update', 'c'),
      filter: {
        state: query.state ?? stateOf(query.status),
        name: query.name,
        externalId: query.external_id,
        clientId: query.client_id ?? query.id,
        channelId: query.channel,
        profileId: query.profile_id,
      },
      offset,
      limit,
      cursor,
    })
    return { total, offset, limit, items: configs.map((config) => this.#shown(config)), next }
  }

  async update(caller: UserPrincipal, domainId: string, clientId: string, input: BootstrapPatch): Promise<void> {
    const { name, content, external_key: externalKey = '', render_context: variables } = input
    if (variables !== undefined) requireSizeLimit('render_context', variables)
    if (externalKey !== '') {
      const { client } = await this.#changes.locate(caller, domainId, clientId)
      const config = await findConfig(this.#deps.database.db, client.key)
      if (config === undefined) throw notFound()
      await this.compareKey(caller, config.domainKey, { external_id: config.externalId, external_key: externalKey })
    }
    await this.#changes.change(caller, domainId, clientId, async ({ tx, config, record }) => {
      const wanted: ConfigChange = {
        ...(name === undefined ? {} : { name }),
        ...(content === undefined ? {} : { content }),
        ...(externalKey === '' ? {} : this.#sealing.newExternalKey(config, externalKey)),
        ...(variables === undefined ? {} : { renderContextSealed: this.#sealing.sealVariables(config, variables) }),
      }
      await updateConfig(tx, config.clientKey, wanted, caller.id)
      record('config.update', { external_id: config.externalId, name: name ?? config.name })
    })
  }

  async updateCertificates(
    caller: UserPrincipal,
    domainId: string,
    clientId: string,
    input: CertificatesUpdate,
  ): Promise<BootstrapConfig> {
    return await this.#changes.change(caller, domainId, clientId, async ({ tx, config, record }) => {
      const sealed = this.#sealing.sealPrivateKey(config, input.client_key)
      const wanted: ConfigChange = {
        ...(input.client_cert === undefined ? {} : { clientCert: input.client_cert }),
        ...(sealed === null ? {} : { privateKeySealed: sealed }),
        ...(input.ca_cert === undefined ? {} : { caCert: input.ca_cert }),
      }
      await updateConfig(tx, config.clientKey, wanted, caller.id)
      record('cert.update', { external_id: config.externalId })
      return { ...config, ...wanted }
    })
  }

  /** Replaces the channels. While the configuration is active, its connections change with them. */
  async updateConnections(
    caller: UserPrincipal,
    domainId: string,
    clientId: string,
    channelIds: readonly string[],
  ): Promise<void> {
    await this.#changes.change(caller, domainId, clientId, async (inside) => {
      const { tx, config, domain } = inside
      const keys = await channelKeysOf(tx, domain, channelIds)
      if (config.isActive) {
        const [before, after] = [new Set(config.channels.map(({ id }) => id)), new Set(channelIds)]
        const gone = before.difference(after)
        if (gone.size > 0)
          await inside.devices.connections.disconnect(caller, { domainId }, [both(config.clientId, gone)])
        await inside.devices.connections.connect(caller, { domainId }, [both(config.clientId, after)])
      }
      await setChannels(tx, config.clientKey, keys)
      inside.record('client.update_connections', { channel_ids: [...new Set(channelIds)] })
    })
  }

  /** Activating connects the client with all its channels in both directions. Idempotent. */
  async setState(caller: UserPrincipal, domainId: string, clientId: string, isActive: boolean): Promise<void> {
    await this.#changes.change(caller, domainId, clientId, async (inside) => {
      const { tx, config } = inside
      if (config.isActive === isActive) return
      const { connections } = inside.devices
      const all = [both(config.clientId, new Set(config.channels.map(({ id }) => id)))]
      if (config.channels.length > 0) {
        await (isActive
          ? connections.connect(caller, { domainId }, all)
          : connections.disconnect(caller, { domainId }, all))
      }
      await updateConfig(tx, config.clientKey, { isEnabled: isActive }, caller.id)
      inside.record('client.change_state', { external_id: config.externalId, state: isActive ? 1 : 0 })
    })
  }

  async remove(caller: UserPrincipal, domainId: string, clientId: string): Promise<void> {
    await this.#changes.change(caller, domainId, clientId, async ({ tx, config, record }) => {
      if (!(await removeConfig(tx, config.clientKey))) throw notFound()
      record('config.remove', { external_id: config.externalId })
    })
  }

  /**
   * Returns the configuration for a device. `externalKey` is undefined when it could not be decrypted, and then it is
   * treated as a wrong key. Throws `unprocessable` when the profile cannot be rendered, `not_found` for an unknown
   * external id, `forbidden` for a wrong key and for a disabled client or domain, `rate_limited` after too many wrong
   * keys for the external id or from the address.
   */
  async retrieve(externalId: string, externalKey: string | undefined, address: string): Promise<DeviceAnswer> {
    const mac = externalKey === undefined ? undefined : this.#sealing.externalKeyMac(externalKey)
    const match = await this.#deps.factoryKeys.match(externalId, mac, address)
    if (!match.isEnabled) throw refusal('the client or its domain is disabled')
    const config = await findConfig(this.#deps.database.db, match.clientKey)
    if (config === undefined) throw notFound()
    return {
      config,
      clientSecret: this.#clientSecretOf(config),
      privateKey: this.#sealing.privateKeyOf(config),
      rendered: await this.enrolments.renderFor(config),
    }
  }

  #shown(config: BootstrapConfig): ShownConfig {
    return {
      config,
      secrets: {
        clientSecret: this.#clientSecretOf(config),
        externalKey: this.#sealing.externalKeyOf(config),
        variables: this.#sealing.variablesOf(config),
      },
    }
  }

  #clientSecretOf({ domainKey, clientId, secretSealed }: BootstrapConfig) {
    return openClientSecret(this.#deps.keyring, { domainKey, id: clientId, secretSealed })
  }
}

const refusal = (reason: string) => new ServiceError('forbidden', `failed to perform authorization: ${reason}`)

/**
 * Returns the keys of channels on which the caller has `read`, in the given order. Throws `malformed` for any other.
 */
async function channelKeysOf(tx: Transaction, domain: DomainAccess, ids: readonly string[]): Promise<number[]> {
  const wanted = [...new Set(ids)]
  const refuse = (id: string) => {
    const message = `channel ${id} does not exist in this domain`
    return new ServiceError('malformed', message, { details: [{ path: '/channels', message }] })
  }
  for (const id of wanted) if (!isId(id)) throw refuse(id)
  const keys = await findKeys(tx, domain, 'channel', wanted, 'read')
  return wanted.map((id) => {
    const key = keys.get(id)
    if (key === undefined) throw refuse(id)
    return key
  })
}

/** A request that connects the client with these channels in both directions. */
function both(clientId: string, channelIds: ReadonlySet<string>) {
  return { clientIds: [clientId], channelIds: [...channelIds], bits: BOTH }
}

/**
 * Throws `malformed` for a configuration without a profile and without channels, and for bindings without a profile.
 */
function requireWhole({
  channels = [],
  profile_id: profileId = '',
  render_context: variables,
  bindings,
}: NewBootstrapConfig): void {
  const refuse = (path: string, message: string) =>
    new ServiceError('malformed', `${path.slice(1)}: ${message}`, { details: [{ path, message }] })
  if (profileId === '' && channels.length === 0)
    throw refuse('/channels', 'at least one channel is required without a profile')
  if (profileId === '' && bindings !== undefined) throw refuse('/bindings', 'bindings require a profile_id')
  if (variables !== undefined) requireSizeLimit('render_context', variables)
}

/** Converts the filter `status` to a state. */
const stateOf = (status: 'enabled' | 'disabled' | 'all' | undefined) =>
  status === undefined || status === 'all' ? undefined : Number(status === 'enabled')
