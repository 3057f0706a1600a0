/** Wire shapes of bootstrap configurations, with newer and older field names (contract 9.1). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { SECRET, recordOf } from '#http/index.ts'
import { Id, Metadata, Name } from '#api/identity/index.ts'
import { Cursor, MAX_OFFSET, MAX_LIMIT, pageFields } from '#core/page.ts'
import { namesOf, withOlderNames } from '#older/index.ts'
import { BINDING_TYPES, SlotName } from '../profiles/index.ts'
import type { Rendered } from '../profiles/index.ts'
import type { BootstrapConfig } from './repository.ts'

const MAX_CONTENT_CHARS = 262_144
const MAX_PEM_CHARS = 65_536
const MAX_CHANNELS = 100
const MAX_BINDINGS = 64

const Content = Type.String({ maxLength: MAX_CONTENT_CHARS, description: 'Content of the configuration in any format' })
const Pem = Type.String({ maxLength: MAX_PEM_CHARS })
const ExternalText = Type.String({ minLength: 1, maxLength: 1024 })
const ChannelIds = Type.Array(Type.String({ maxLength: 36 }), { minItems: 1, maxItems: MAX_CHANNELS })

const RenderContext = recordOf(Type.Unknown(), {
  description: 'Values of `.Vars` for this device, which override the defaults of the profile; stored encrypted',
})

export const BindingRequest = Type.Object({
  slot: SlotName,
  type: Type.Enum([...BINDING_TYPES]),
  resource_id: Type.Optional(
    Type.String({
      maxLength: 36,
      description: 'Id of the client or channel; for a client it defaults to the client of the configuration',
    }),
  ),
})
export type BindingRequest = Static<typeof BindingRequest>

const BindingRequests = Type.Array(BindingRequest, { minItems: 1, maxItems: MAX_BINDINGS })

export const BindingsUpdate = Type.Object({ bindings: BindingRequests })

export const ProfileAssignment = Type.Object({ profile_id: Type.String({ minLength: 1, maxLength: 36 }) })

export const PreviewRequest = Type.Object(
  {
    config_id: Type.Optional(Type.String({ maxLength: 36, description: 'Id of the configuration to render for' })),
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
        { maxItems: MAX_BINDINGS, description: 'Sample bindings that replace the stored ones' },
      ),
    ),
  },
  { $id: 'RenderPreview' },
)
export type PreviewRequest = Static<typeof PreviewRequest>

/** Newer and older names of the client id. */
const clientNames = {
  client_id: Type.Optional(
    Type.String({ maxLength: 36, description: 'Id of the client; absent or empty creates a new client' }),
  ),
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
        description: 'Ids of the channels; at least one without a profile',
      }),
    ),
    profile_id: Type.Optional(
      Type.String({ maxLength: 36, description: 'Id of the profile that renders the content' }),
    ),
    render_context: Type.Optional(RenderContext),
    bindings: Type.Optional(BindingRequests),
    status: Type.Optional(
      Type.Enum(['', 'enabled', 'disabled'], {
        description: 'Initial state; `enabled` creates an active configuration',
      }),
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

/** Body of PATCH: only the given fields change. */
export const BootstrapPatch = Type.Object({
  name: Type.Optional(Name),
  content: Type.Optional(Content),
  external_key: Type.Optional(
    Type.String({ maxLength: 1024, description: 'New external key; empty keeps the current one' }),
  ),
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
  state: Type.Integer({ minimum: 0, maximum: 1, description: '0 for inactive, 1 for connected with all its channels' }),
})

const ChannelView = Type.Object({ id: Id, name: Type.String(), metadata: Type.Optional(Metadata) })

const recordFields = {
  client_id: Id,
  client_secret: Type.String(SECRET),
  channels: Type.Array(ChannelView),
  external_id: Type.String(),
  external_key: Type.String(SECRET),
  content: Type.String(SECRET),
  name: Type.String(),
  state: Type.Integer({ description: '0 for inactive, 1 for active' }),
  status: Type.Enum(['enabled', 'disabled'], { description: 'Same value as `state`' }),
  waiting_for_other_owner: Type.Optional(
    Type.Boolean({
      description:
        'Only `true`: a device with this external id and key is served the configuration of another domain, which has had it for longer',
    }),
  ),
  id: Type.String({ description: 'Same value as `client_id`' }),
  profile_id: Type.Optional(Id),
  render_context: Type.Optional(RenderContext),
  client_cert: Type.String(),
  ca_cert: Type.String(),
}

export const BootstrapView = Type.Object(recordFields, {
  $id: 'BootstrapConfig',
  description: 'Bootstrap configuration of a device',
})
export type BootstrapView = Static<typeof BootstrapView>

export const CertificatesView = Type.Object({
  client_id: Id,
  client_cert: Type.String(),
  client_key: Type.String({ description: 'Always empty: only the device gets the key' }),
  ca_cert: Type.String(),
})

export const BootstrapQuery = Type.Object({
  offset: Type.Integer({ minimum: 0, maximum: MAX_OFFSET, default: 0 }),
  cursor: Type.Optional(Cursor),
  // The lower bound is not checked (contract section 0): older clients send 0 for a whole first page.
  limit: Type.Integer({ minimum: 0, maximum: MAX_LIMIT, default: 10 }),
  state: Type.Optional(Type.Integer({ minimum: 0, maximum: 1 })),
  status: Type.Optional(Type.Enum(['enabled', 'disabled', 'all'])),
  id: Type.Optional(Type.String({ maxLength: 36, description: 'Alias of `client_id`' })),
  profile_id: Type.Optional(Type.String({ maxLength: 36 })),
  name: Type.Optional(Name),
  external_id: Type.Optional(ExternalText),
  client_id: Type.Optional(Type.String({ maxLength: 36 })),
  channel: Type.Optional(Type.String({ maxLength: 36, description: 'Id of one of its channels' })),
})
export type BootstrapQuery = Static<typeof BootstrapQuery>

export const BootstrapPage = Type.Object({ ...pageFields, configs: Type.Array(BootstrapView) })

/**
 * Response to the device, with the current and legacy names of each field, so that agents of Mainflux, SuperMQ and
 * Magistrala work.
 */
export const DeviceConfig = Type.Object(
  {
    client_id: Id,
    client_secret: Type.String(SECRET),
    thing_id: Id,
    thing_key: Type.String(SECRET),
    mainflux_id: Id,
    mainflux_key: Type.String(SECRET),
    channels: Type.Array(ChannelView),
    mainflux_channels: Type.Array(ChannelView),
    id: Id,
    content: Type.Optional(Type.String(SECRET)),
    content_type: Type.Optional(Type.String({ description: 'Content type; only with a profile' })),
    client_cert: Type.Optional(Type.String()),
    client_key: Type.Optional(Type.String(SECRET)),
    ca_cert: Type.Optional(Type.String()),
  },
  { $id: 'DeviceConfig', description: 'Configuration for the device' },
)
export type DeviceConfig = Static<typeof DeviceConfig>

const PLACE = 'api/provisioning/bootstrap/schema.ts'
const CLIENT_NAMES = namesOf(PLACE, 'client_id')

/** The body with the id of the client under its newer name. Without an id, or with an empty one, a new client is created. */
export function newerConfig(body: NewBootstrapConfig): NewBootstrapConfig {
  const clientId = CLIENT_NAMES.map((name) => body[name]).find((id) => (id ?? '') !== '')
  return { ...body, client_id: clientId ?? '' }
}

/** The response to a device. Its secrets belong to the device or are bound for it. */
export type DeviceAnswer = {
  config: BootstrapConfig
  clientSecret: string
  privateKey: string
  /** Undefined without a profile. */
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
    ...(config.isWaiting ? { waiting_for_other_owner: true as const } : {}),
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
    ...withOlderNames(PLACE, { client_id: config.clientId, client_secret: clientSecret, channels: config.channels }),
    id: config.clientId,
    ...filled('content', rendered?.content ?? config.content),
    ...(rendered === undefined ? {} : { content_type: rendered.contentType }),
    ...filled('client_cert', config.clientCert),
    ...filled('client_key', privateKey),
    ...filled('ca_cert', config.caCert),
  }
}
