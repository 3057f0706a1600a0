/** Wire shapes of clients (specification section 2, contract 4.1, decisions 14 and 51). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { EffectiveAccessFields, Id, ShownRolesFields } from '#api/identity/index.ts'
import { pageFields } from '#core/page.ts'
import { MAX_BULK_ITEMS } from '../connectable/bulk.ts'
import { creationFields, presentRecord, queryFields, recordFields, updateFields } from '../connectable/schema.ts'
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
        description: 'Shown on creation, after a change, and in lists to callers with `update`; else empty',
      }),
    }),
    status: Type.String({ description: 'enabled or disabled; after a change of the secret: `secret updated`' }),
    owner: Type.Optional(Id),
    ...EffectiveAccessFields.properties,
    ...ShownRolesFields.properties,
  },
  { $id: 'Client', description: 'Client: a device or application' },
)
export type Client = Static<typeof Client>

export const NewClient = Type.Object(
  {
    ...creationFields,
    credentials: Type.Optional(
      Type.Object({ identity: Type.Optional(Type.String({ maxLength: 254 })), secret: Type.Optional(Secret) }),
    ),
  },
  { $id: 'ClientCreate' },
)
export type NewClient = Static<typeof NewClient>

export const NewClients = Type.Array(NewClient, { minItems: 1, description: `At most ${MAX_BULK_ITEMS}` })

export const ClientUpdate = Type.Object(updateFields)
export type ClientUpdate = Static<typeof ClientUpdate>

/** `secret` at the top or inside `credentials`. */
export const ClientSecretUpdate = Type.Object({
  secret: Type.Optional(Secret),
  credentials: Type.Optional(Type.Object({ secret: Type.Optional(Secret) })),
})

export const ClientQuery = Type.Object({
  ...queryFields('channel'),
  channel: Type.Optional(Type.String({ maxLength: 36, description: 'Connected to this channel' })),
})
export type ClientQuery = Static<typeof ClientQuery>

export const ClientPage = Type.Object({ ...pageFields, clients: Type.Array(Client) })
export type ClientPage = Static<typeof ClientPage>

/** `secret` is what this view of the record may show; empty hides it. */
export function presentClient(client: ClientRecord, secret: string): Client {
  return {
    ...presentRecord(client),
    credentials: { identity: client.identity, secret },
    status: client.status,
    ...(client.createdBy === null ? {} : { owner: client.createdBy }),
  }
}
