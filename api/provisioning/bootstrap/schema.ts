/** Wire shapes of bootstrap configurations, and the names that older clients have for them (contract 9.1). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Id, Metadata, Name } from '#api/identity/index.ts'
import { MAX_OFFSET, MAX_LIMIT, pageFields } from '#core/page.ts'
import type { BootstrapConfig } from './repository.ts'

const MAX_CONTENT_CHARS = 262_144
const MAX_PEM_CHARS = 65_536
const MAX_CHANNELS = 100

const Content = Type.String({ maxLength: MAX_CONTENT_CHARS, description: 'Whatever the device understands' })
const Pem = Type.String({ maxLength: MAX_PEM_CHARS })
const ExternalText = Type.String({ minLength: 1, maxLength: 1024 })
const ChannelIds = Type.Array(Type.String({ maxLength: 36 }), { minItems: 1, maxItems: MAX_CHANNELS })

/** Every generation calls the client differently. */
const clientNames = {
  client_id: Type.Optional(Type.String({ maxLength: 36, description: 'Absent or empty: a new client is made' })),
  thing_id: Type.Optional(Type.String({ maxLength: 36 })),
  magistrala_id: Type.Optional(Type.String({ maxLength: 36 })),
  mainflux_id: Type.Optional(Type.String({ maxLength: 36 })),
}

export const NewBootstrapConfig = Type.Object(
  {
    ...clientNames,
    external_id: ExternalText,
    external_key: ExternalText,
    channels: ChannelIds,
    name: Type.Optional(Name),
    content: Type.Optional(Content),
    client_cert: Type.Optional(Pem),
    client_key: Type.Optional(Pem),
    ca_cert: Type.Optional(Pem),
  },
  { $id: 'NewBootstrapConfig' },
)
export type NewBootstrapConfig = Static<typeof NewBootstrapConfig>

export const BootstrapUpdate = Type.Object({ name: Type.Optional(Name), content: Type.Optional(Content) })
export type BootstrapUpdate = Static<typeof BootstrapUpdate>

export const CertificatesUpdate = Type.Object({
  client_cert: Type.Optional(Pem),
  client_key: Type.Optional(Pem),
  ca_cert: Type.Optional(Pem),
})
export type CertificatesUpdate = Static<typeof CertificatesUpdate>

export const ConnectionsUpdate = Type.Object({ channels: ChannelIds })

export const StateUpdate = Type.Object({
  state: Type.Integer({ minimum: 0, maximum: 1, description: '0: inactive, 1: connected with all its channels' }),
})

const ChannelView = Type.Object({ id: Id, name: Type.String(), metadata: Type.Optional(Metadata) })

const recordFields = {
  client_id: Id,
  client_secret: Type.String(),
  channels: Type.Array(ChannelView),
  external_id: Type.String(),
  external_key: Type.String(),
  content: Type.String(),
  name: Type.String(),
  state: Type.Integer({ description: '0: inactive, 1: active' }),
  client_cert: Type.String(),
  ca_cert: Type.String(),
}

export const BootstrapView = Type.Object(recordFields, {
  $id: 'BootstrapConfig',
  description: 'What a device is given for its external id and key',
})
export type BootstrapView = Static<typeof BootstrapView>

export const CertificatesView = Type.Object({
  client_id: Id,
  client_cert: Type.String(),
  client_key: Type.String({ description: 'Always empty: the device alone gets it' }),
  ca_cert: Type.String(),
})

export const BootstrapQuery = Type.Object({
  offset: Type.Integer({ minimum: 0, maximum: MAX_OFFSET, default: 0 }),
  // The smallest is not checked (contract section 0): 0 is the whole first page of older clients.
  limit: Type.Integer({ minimum: 0, maximum: MAX_LIMIT, default: 10 }),
  state: Type.Optional(Type.Integer({ minimum: 0, maximum: 1 })),
  name: Type.Optional(Name),
  external_id: Type.Optional(ExternalText),
  client_id: Type.Optional(Type.String({ maxLength: 36 })),
  channel: Type.Optional(Type.String({ maxLength: 36, description: 'Id of one of its channels' })),
})
export type BootstrapQuery = Static<typeof BootstrapQuery>

export const BootstrapPage = Type.Object({ ...pageFields, configs: Type.Array(BootstrapView) })

/** For the device: the names of every generation beside each other, so that an agent of any finds its own. */
export const DeviceConfig = Type.Object(
  {
    client_id: Id,
    client_secret: Type.String(),
    thing_id: Id,
    thing_key: Type.String(),
    mainflux_id: Id,
    mainflux_key: Type.String(),
    channels: Type.Array(ChannelView),
    mainflux_channels: Type.Array(ChannelView),
    content: Type.Optional(Type.String()),
    client_cert: Type.Optional(Type.String()),
    client_key: Type.Optional(Type.String()),
    ca_cert: Type.Optional(Type.String()),
  },
  { $id: 'DeviceConfig', description: 'What the device needs to connect' },
)
export type DeviceConfig = Static<typeof DeviceConfig>

/** The id under whichever name; undefined: a new client is wanted. */
export function clientIdOf(body: NewBootstrapConfig): string | undefined {
  return [body.client_id, body.thing_id, body.magistrala_id, body.mainflux_id].find((one) => (one ?? '') !== '')
}

export type BootstrapSecrets = { clientSecret: string; externalKey: string }

export function presentConfig(config: BootstrapConfig, { clientSecret, externalKey }: BootstrapSecrets): BootstrapView {
  return {
    client_id: config.clientId,
    client_secret: clientSecret,
    channels: config.channels,
    external_id: config.externalId,
    external_key: externalKey,
    content: config.content,
    name: config.name,
    state: config.isActive ? 1 : 0,
    client_cert: config.clientCert,
    ca_cert: config.caCert,
  }
}

export function presentForDevice(config: BootstrapConfig, clientSecret: string, privateKey: string): DeviceConfig {
  const filled = (name: 'content' | 'client_cert' | 'client_key' | 'ca_cert', text: string) =>
    text === '' ? {} : { [name]: text }
  return {
    client_id: config.clientId,
    client_secret: clientSecret,
    thing_id: config.clientId,
    thing_key: clientSecret,
    mainflux_id: config.clientId,
    mainflux_key: clientSecret,
    channels: config.channels,
    mainflux_channels: config.channels,
    ...filled('content', config.content),
    ...filled('client_cert', config.clientCert),
    ...filled('client_key', privateKey),
    ...filled('ca_cert', config.caCert),
  }
}
