/** Wire shapes of clients (specification section 2, contract 4.1, decisions 14 and 51). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { EffectiveAccessFields, Id, PrivateMetadata, ShownRolesFields, Timestamp } from '#api/identity/index.ts'
import { SECRET, documented } from '#http/index.ts'
import { pageFields } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import { MAX_BULK_ITEMS } from '../connectable/bulk.ts'
import { creationFields, presentRecord, queryFields, recordFields, updateFields } from '../connectable/schema.ts'
import type { Activity } from './activity.ts'
import type { ClientRecord } from './repository.ts'

/** Secrets travel in headers and MQTT packets: visible ASCII, 1 to 250 characters (contract 4.1). */
export const Secret = Type.String({
  pattern: '^[\\x21-\\x7e]{1,250}$',
  description: '1 to 250 characters of visible ASCII',
})

export const Client = Type.Object(
  {
    ...recordFields,
    credentials: Type.Object({
      identity: Type.String(),
      secret: Type.String({
        ...SECRET,
        description:
          'Secret of the client: present on creation, after a change of the secret, and in lists for callers with `update`; otherwise empty',
      }),
    }),
    private_metadata: Type.Optional(PrivateMetadata),
    status: Type.String({
      description: '`enabled` or `disabled`; `secret updated` in the response to a change of the secret',
    }),
    owner: Type.Optional(Id),
    online: Type.Optional(
      Type.Boolean({
        description:
          'Whether the client holds an MQTT or WebSocket connection, an event stream or a CoAP observation. In lists and views; up to a second old',
      }),
    ),
    last_seen: Type.Optional(Timestamp),
    ...EffectiveAccessFields.properties,
    ...ShownRolesFields.properties,
  },
  { $id: 'Client', description: 'Client: a device or application' },
)
export type Client = Static<typeof Client>

export const NewClient = Type.Object(
  {
    ...creationFields,
    private_metadata: Type.Optional(PrivateMetadata),
    credentials: Type.Optional(
      Type.Object({ identity: Type.Optional(Type.String({ maxLength: 254 })), secret: Type.Optional(Secret) }),
    ),
  },
  { $id: 'ClientCreate' },
)
export type NewClient = Static<typeof NewClient>

export const NewClients = Type.Array(NewClient, { minItems: 1, description: `At most ${MAX_BULK_ITEMS}` })

export const ClientUpdate = Type.Object({ ...updateFields, private_metadata: Type.Optional(PrivateMetadata) })
export type ClientUpdate = Static<typeof ClientUpdate>

/** Accepts `secret` at the top level or inside `credentials`. */
export const ClientSecretUpdate = Type.Object({
  secret: Type.Optional(Secret),
  credentials: Type.Optional(Type.Object({ secret: Type.Optional(Secret) })),
})

export const ClientQuery = Type.Object({
  ...queryFields('channel'),
  channel: Type.Optional(Type.String({ maxLength: 36, description: 'Connected to this channel' })),
  online: Type.Optional(Type.Boolean({ description: 'true: clients that are online; false: the others' })),
  reported: Type.Optional(
    Type.String({
      maxLength: 8192,
      description:
        'Clients that report at least this: a JSON object, such as `{"firmware":"1.4"}`. Only clients whose state the caller may read',
    }),
  ),
  out_of_sync: Type.Optional(
    Type.Boolean({
      description:
        'true: clients of which a document differs from what is desired; false: the others. Only clients whose state the caller may read',
    }),
  ),
  order: Type.String({
    maxLength: 32,
    default: 'updated_at',
    description:
      'Sort key: `name`, `created_at`, `updated_at`, `online` or `last_seen`. With `dir=desc`, clients that are online, or were seen last, come first. `last_seen` requires that at most 20,000 clients match: use filters to select fewer. It changes with each message, so its pages can repeat a client or leave one out',
    ...documented({ enum: ['name', 'created_at', 'updated_at', 'online', 'last_seen'] }),
  }),
  secrets: Type.Optional(
    Type.Boolean({ description: 'false: the secrets are empty, whatever the caller may do. Default: true' }),
  ),
})
export type ClientQuery = Static<typeof ClientQuery>

export const ClientPage = Type.Object({ ...pageFields, clients: Type.Array(Client) })
export type ClientPage = Static<typeof ClientPage>

/**
 * `secret` is the secret to present. An empty string hides it. `withPrivate`: the caller may update the client, and so sees its private
 * metadata.
 */
export function presentClient(client: ClientRecord, secret: string, withPrivate: boolean, activity?: Activity): Client {
  const isShown = withPrivate && Object.keys(client.privateMetadata).length > 0
  return {
    ...presentRecord(client),
    credentials: { identity: client.identity, secret },
    ...(isShown ? { private_metadata: client.privateMetadata } : {}),
    status: client.status,
    ...(client.createdBy === null ? {} : { owner: client.createdBy }),
    ...(activity === undefined ? {} : { online: activity.isOnline, last_seen: formatTime(activity.lastSeen) }),
  }
}
