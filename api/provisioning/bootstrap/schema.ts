/** Wire shapes of bootstrap configurations, and the names that older clients have for them (contract 9.1). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { recordOf } from '#core/http/index.ts'
import { Id, Metadata, Name } from '#api/identity/index.ts'
import { MAX_OFFSET, MAX_LIMIT, pageFields } from '#core/page.ts'
import { BINDING_TYPES, SlotName } from '../profiles/index.ts'
import type { Rendered } from '../profiles/index.ts'
import type { BootstrapConfig } from './repository.ts'

const MAX_CONTENT_CHARS = 262_144
const MAX_PEM_CHARS = 65_536
const MAX_CHANNELS = 100
const MAX_BINDINGS = 64

const Content = Type.String({ maxLength: MAX_CONTENT_CHARS, description: 'Whatever the device understands' })
const Pem = Type.String({ maxLength: MAX_PEM_CHARS })
const ExternalText = Type.String({ minLength: 1, maxLength: 1024 })
const ChannelIds = Type.Array(Type.String({ maxLength: 36 }), { minItems: 1, maxItems: MAX_CHANNELS })

const RenderContext = recordOf(Type.Unknown(), {
  description: '.Vars of the template for this one device, over the defaults of the profile; kept encrypted',
})

export const BindingRequest = Type.Object({
  slot: SlotName,
  type: Type.Enum([...BINDING_TYPES]),
  resource_id: Type.Optional(
    Type.String({ maxLength: 36, description: 'Absent for a client: that of the configuration itself' }),
  ),
})
export type BindingRequest = Static<typeof BindingRequest>

const BindingRequests = Type.Array(BindingRequest, { minItems: 1, maxItems: MAX_BINDINGS })

export const BindingsUpdate = Type.Object({ bindings: BindingRequests })

export const ProfileAssignment = Type.Object({ profile_id: Type.String({ minLength: 1, maxLength: 36 }) })

export const PreviewRequest = Type.Object(
  {
    config_id: Type.Optional(
      Type.String({ maxLength: 36, description: 'A configuration to render for, as it stands' }),
    ),
    config: Type.Optional(
      Type.Object({
        id: Type.Optional(Type.String({ maxLength: 36 })),
        external_id: Type.Optional(Type.String({ maxLength: 1024 })),
        render_context: Type.Optional(Metadata),
      }),
    ),
    render_context: Type.Optional(Metadata),
    bindings: Type.Optional(
      Type.Array(
        Type.Object({
          slot: SlotName,
          type: Type.Enum([...BINDING_TYPES]),
          resource_id: Type.Optional(Type.String({ maxLength: 36 })),
          snapshot: Type.Optional(Metadata),
          secret_snapshot: Type.Optional(Metadata),
        }),
        { maxItems: MAX_BINDINGS, description: 'Samples, in place of what is bound' },
      ),
    ),
  },
  { $id: 'RenderPreview' },
)
export type PreviewRequest = Static<typeof PreviewRequest>

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
    channels: Type.Optional(
      Type.Array(Type.String({ maxLength: 36 }), {
        maxItems: MAX_CHANNELS,
        description: 'At least one; with a profile there may be none',
      }),
    ),
    profile_id: Type.Optional(Type.String({ maxLength: 36, description: 'Content is rendered from this profile' })),
    render_context: Type.Optional(RenderContext),
    bindings: Type.Optional(BindingRequests),
    status: Type.Optional(
      Type.Enum(['', 'enabled', 'disabled'], { description: 'enabled: active at once; as `state`, by its newer name' }),
    ),
    name: Type.Optional(Name),
    content: Type.Optional(Content),
    client_cert: Type.Optional(Pem),
    client_key: Type.Optional(Pem),
    ca_cert: Type.Optional(Pem),
  },
  { $id: 'BootstrapConfigCreate' },
)
export type NewBootstrapConfig = Static<typeof NewBootstrapConfig>

export const BootstrapUpdate = Type.Object({ name: Type.Optional(Name), content: Type.Optional(Content) })

/** Of the newer call, which changes what is named and nothing else. */
export const BootstrapPatch = Type.Object({
  name: Type.Optional(Name),
  content: Type.Optional(Content),
  external_key: Type.Optional(Type.String({ maxLength: 1024, description: 'Empty: it stays' })),
  render_context: Type.Optional(RenderContext),
})
export type BootstrapPatch = Static<typeof BootstrapPatch>

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
  status: Type.Enum(['enabled', 'disabled'], { description: 'The state by its newer name' }),
  id: Type.String({ description: 'The client_id by its newer name' }),
  profile_id: Type.Optional(Id),
  render_context: Type.Optional(RenderContext),
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
  status: Type.Optional(Type.Enum(['enabled', 'disabled', 'all'])),
  id: Type.Optional(Type.String({ maxLength: 36, description: 'The client_id by its newer name' })),
  profile_id: Type.Optional(Type.String({ maxLength: 36 })),
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
    id: Id,
    content: Type.Optional(Type.String()),
    content_type: Type.Optional(Type.String({ description: 'Of content that was rendered from a profile' })),
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

/** What the device gets: the secrets are its own, or were bound for it. */
export type DeviceAnswer = {
  config: BootstrapConfig
  clientSecret: string
  privateKey: string
  /** Undefined: it has no profile. */
  rendered: Rendered | undefined
}

export type BootstrapSecrets = { clientSecret: string; externalKey: string; variables: Record<string, unknown> }

export function presentConfig(
  config: BootstrapConfig,
  { clientSecret, externalKey, variables }: BootstrapSecrets,
): BootstrapView {
  return {
    client_id: config.clientId,
    client_secret: clientSecret,
    channels: config.channels,
    external_id: config.externalId,
    external_key: externalKey,
    content: config.content,
    name: config.name,
    state: config.isActive ? 1 : 0,
    status: config.isActive ? 'enabled' : 'disabled',
    id: config.clientId,
    ...(config.profileId === null ? {} : { profile_id: config.profileId }),
    ...(Object.keys(variables).length === 0 ? {} : { render_context: variables }),
    client_cert: config.clientCert,
    ca_cert: config.caCert,
  }
}

export function presentForDevice({ config, clientSecret, privateKey, rendered }: DeviceAnswer): DeviceConfig {
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
    id: config.clientId,
    ...filled('content', rendered?.content ?? config.content),
    ...(rendered === undefined ? {} : { content_type: rendered.contentType }),
    ...filled('client_cert', config.clientCert),
    ...filled('client_key', privateKey),
    ...filled('ca_cert', config.caCert),
  }
}
