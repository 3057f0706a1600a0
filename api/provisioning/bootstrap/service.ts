/**
 * The rules of bootstrap configurations (contract 9.1). A configuration holds the secrets of its client, so whoever may
 * update the client sees and changes it. The device itself gets it for its external id and key, active or not.
 */
import { timingSafeEqual } from 'node:crypto'
import { openClientSecret } from '#api/devices/index.ts'
import type { Devices } from '#api/devices/index.ts'
import { networkOf } from '#api/identity/index.ts'
import type {
  AccessPolicy,
  DomainAccess,
  Journal,
  LoginThrottle,
  Recorder,
  UserPrincipal,
} from '#api/identity/index.ts'
import type { Database, Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'
import type { Page } from '#core/page.ts'
import { joinedTo } from '../joined.ts'
import { requireProfile, requireSmall } from '../profiles/index.ts'
import type { Profile } from '../profiles/index.ts'
import { createConfigChanges, notFound } from './changes.ts'
import { createEnrolments } from './enrolments.ts'
import type { Enrolments } from './enrolments.ts'
import type { BootstrapConfig, ConfigChange, ExternalMatch } from './repository.ts'
import {
  findByExternalId,
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
import { clientIdOf } from './schema.ts'
import { createConfigSealing } from './sealing.ts'

export type ShownConfig = { config: BootstrapConfig; secrets: BootstrapSecrets }

/** A client and its channels that the transaction has made or checked. */
export type ConfiguredClient = {
  domainKey: number
  clientKey: number
  clientId: string
  channelKeys: readonly number[]
  profile?: Profile | undefined
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
  ): void
  get(caller: UserPrincipal, domainId: string, clientId: string): Promise<ShownConfig>
  list(caller: UserPrincipal, domainId: string, query: BootstrapQuery): Promise<Page<ShownConfig>>
  update(caller: UserPrincipal, domainId: string, clientId: string, input: BootstrapPatch): Promise<void>
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
  readonly enrolments: Enrolments
  /**
   * `externalKey` undefined: what was sent could not be decrypted, and counts as a wrong key. Throws `unprocessable` when its
   * profile cannot be rendered; `not_found` for an unknown external id, `forbidden` for a wrong key and for a disabled client
   * or domain, `rate_limited` after too many wrong keys for the external id or from the address.
   */
  retrieve(externalId: string, externalKey: string | undefined, address: string): Promise<DeviceAnswer>
}

export type BootstrapDeps = {
  database: Database
  journal: Journal
  access: AccessPolicy
  keyring: Keyring
  devices: Devices
  /** Of wrong external keys. */
  throttle: LoginThrottle
  /** SKEIN_BOOTSTRAP_WEAK_KEYS. */
  allowsWeakKeys: boolean
}

export function createBootstrapService(deps: BootstrapDeps): BootstrapService {
  const { database, journal, access, keyring, devices, throttle } = deps
  const sealing = createConfigSealing(keyring, deps)
  const changes = createConfigChanges(deps)
  const { locate, change } = changes
  const enrolments = createEnrolments({ database, access, keyring, sealing, changes })

  const shown = (config: BootstrapConfig): ShownConfig => ({
    config,
    secrets: {
      clientSecret: clientSecretOf(config),
      externalKey: sealing.externalKeyOf(config),
      variables: sealing.variablesOf(config),
    },
  })
  const clientSecretOf = ({ domainKey, clientId, secretSealed }: BootstrapConfig) =>
    openClientSecret(keyring, { domainKey, id: clientId, secretSealed })

  function createWithin(
    tx: Transaction,
    record: Recorder,
    caller: UserPrincipal,
    client: ConfiguredClient,
    input: Omit<NewBootstrapConfig, 'channels'>,
    isEnabled: boolean,
  ): void {
    const { domainKey, clientKey, profile } = client
    tx.defer(
      insertConfig(
        tx,
        {
          domainKey,
          clientKey,
          externalId: input.external_id,
          ...sealing.newExternalKey(client, input.external_key),
          name: input.name ?? '',
          content: input.content ?? '',
          clientCert: input.client_cert ?? '',
          privateKeySealed: sealing.sealPrivateKey(client, input.client_key),
          caCert: input.ca_cert ?? '',
          isEnabled,
          profileKey: profile?.key ?? null,
          renderContextSealed: sealing.sealVariables(client, input.render_context),
          createdBy: caller.id,
        },
        client.channelKeys,
      ),
    )
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

  /** The keys of channels that the caller may read, in the order given. Throws `malformed` for any other. */
  async function channelKeysOf(tx: Transaction, domain: DomainAccess, ids: readonly string[]): Promise<number[]> {
    const wanted = [...new Set(ids)]
    const refuse = (id: string) => {
      const message = `there is no channel ${id} in this domain`
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

  return {
    enrolments,
    async create(caller, domainId, input) {
      const profileId = input.profile_id ?? ''
      requireWhole(input)
      const clientId = clientIdOf(input)
      const located = clientId === undefined ? undefined : await locate(caller, domainId, clientId)
      const domain = located?.domain ?? (await access.enter(caller, domainId))
      // Before the profile is looked for: whether there is one is not for everybody. What the device is given shows it.
      if (located === undefined && profileId !== '') domain.require('client_create')
      if (profileId !== '') domain.require('profile_read')
      return await journal.change(caller, async (tx, record) => {
        const inside = devices.over(joinedTo({ database, journal, access }, tx, record, domain))
        const channelIds = input.channels ?? []
        const channelKeys = await channelKeysOf(tx, domain, channelIds)
        const profile = profileId === '' ? undefined : await requireProfile(tx, domain.domainKey, profileId, 'use')
        const client = located?.client ?? (await makeClient())
        const { key: clientKey, id } = client
        const isEnabled = input.status === 'enabled'
        createWithin(
          tx,
          record,
          caller,
          { domainKey: domain.domainKey, clientKey, clientId: id, channelKeys, profile },
          input,
          isEnabled,
        )
        if (profile !== undefined && input.bindings !== undefined)
          await enrolments.bindWithin(tx, domain, caller, { clientKey, clientId: id, profile }, input.bindings)
        if (isEnabled && channelIds.length > 0)
          await inside.connections.connect(caller, { domainId }, [{ client_ids: [id], channel_ids: [...channelIds] }])
        return id

        async function makeClient() {
          const [made] = await inside.clients.create(caller, domain.domainId, [{ name: input.name ?? '' }])
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
      {
        offset,
        limit,
        state,
        status,
        name,
        external_id: externalId,
        client_id: clientId,
        id,
        channel,
        profile_id: profileId,
      },
    ) {
      const domain = await access.enter(caller, domainId)
      const { total, configs } = await listConfigs(database.db, {
        domainKey: domain.domainKey,
        permitted: domain.reachable('client', 'update', 'c'),
        filter: {
          state: state ?? stateOf(status),
          name,
          externalId,
          clientId: clientId ?? id,
          channelId: channel,
          profileId,
        },
        offset,
        limit,
      })
      return { total, offset, limit, items: configs.map(shown) }
    },
    async update(caller, domainId, clientId, input) {
      const { name, content, external_key: externalKey = '', render_context: variables } = input
      if (variables !== undefined) requireSmall('render_context', variables)
      await change(caller, domainId, clientId, async ({ tx, config, record }) => {
        const wanted: ConfigChange = {
          ...(name === undefined ? {} : { name }),
          ...(content === undefined ? {} : { content }),
          ...(externalKey === '' ? {} : sealing.newExternalKey(config, externalKey)),
          ...(variables === undefined ? {} : { renderContextSealed: sealing.sealVariables(config, variables) }),
        }
        await updateConfig(tx, config.clientKey, wanted, caller.id)
        record('config.update', { external_id: config.externalId, name: name ?? config.name })
      })
    },
    async updateCertificates(caller, domainId, clientId, input) {
      return await change(caller, domainId, clientId, async ({ tx, config, record }) => {
        const sealed = sealing.sealPrivateKey(config, input.client_key)
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
    async retrieve(externalId, externalKey, address) {
      const refuse = (reason: string) => new ServiceError('forbidden', `failed to perform authorization: ${reason}`)
      const admission = await throttle.admit({ account: externalId, address: networkOf(address), isKnown: false })
      let match: ExternalMatch | undefined
      try {
        if (externalKey === undefined) {
          admission.fail()
          throw refuse('the external key cannot be decrypted')
        }
        const mac = sealing.externalKeyMac(externalKey)
        const found = await findByExternalId(database.db, externalId, mac)
        if (found.length === 0) throw notFound()
        match = found.find((one) => timingSafeEqual(one.externalKeyMac, mac))
        if (match === undefined) {
          admission.fail()
          throw refuse('wrong external key')
        }
      } finally {
        admission.release()
      }
      if (!match.isEnabled) throw refuse('the client or its domain is disabled')
      const config = await findConfig(database.db, match.clientKey)
      if (config === undefined) throw notFound()
      return {
        config,
        clientSecret: clientSecretOf(config),
        privateKey: sealing.privateKeyOf(config),
        rendered: await enrolments.renderFor(config),
      }
    },
  }
}

/** The client with these channels, in both directions. */
function both(config: BootstrapConfig, channelIds: ReadonlySet<string>) {
  return { client_ids: [config.clientId], channel_ids: [...channelIds] }
}

/** A configuration without a profile is about its channels; one with a profile may have none. Throws `malformed`. */
function requireWhole({
  channels = [],
  profile_id: profileId = '',
  render_context: variables,
  bindings,
}: NewBootstrapConfig): void {
  const refuse = (path: string, message: string) =>
    new ServiceError('malformed', `${path.slice(1)}: ${message}`, { details: [{ path, message }] })
  if (profileId === '' && channels.length === 0) throw refuse('/channels', 'at least one channel must be named')
  if (profileId === '' && bindings !== undefined)
    throw refuse('/bindings', 'only a profile has slots: name a profile_id')
  if (variables !== undefined) requireSmall('render_context', variables)
}

/** The newer name of the filter. */
const stateOf = (status: 'enabled' | 'disabled' | 'all' | undefined) =>
  status === undefined || status === 'all' ? undefined : Number(status === 'enabled')
