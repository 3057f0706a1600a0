/** Wire shapes of clients (specification section 2, contract 4.1, decision 14). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import {
  ChosenId,
  EnabledStatus,
  Id,
  Metadata,
  MetadataFilter,
  Name,
  OrderKey,
  StatusFilter,
  Tags,
  Timestamp,
} from '#api/identity/index.ts'
import { Direction, pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import { MAX_BULK_ITEMS } from '../bulk.ts'
import type { ClientRecord } from './repository.ts'

/** Secrets travel in headers and MQTT packets: visible ASCII, 1 to 250 characters (contract 4.1). */
export const Secret = Type.String({
  pattern: '^[\\x21-\\x7e]{1,250}$',
  description: '1 to 250 characters of visible ASCII',
})

export const Client = Type.Object(
  {
    id: Id,
    name: Type.String(),
    domain_id: Id,
    tags: Type.Array(Type.String()),
    credentials: Type.Object({
      identity: Type.String(),
      secret: Type.String({
        description: 'Shown on creation, after a change, and in lists to callers with `update`; else empty',
      }),
    }),
    metadata: Metadata,
    parent_group_id: Type.Optional(Id),
    status: Type.String({ description: 'enabled or disabled; after a change of the secret: `secret updated`' }),
    owner: Type.Optional(Id),
    created_by: Type.Optional(Id),
    created_at: Timestamp,
    updated_at: Timestamp,
    updated_by: Type.Optional(Id),
  },
  { $id: 'Client', description: 'Client: a device or application' },
)
export type Client = Static<typeof Client>

export const NewClient = Type.Object(
  {
    id: Type.Optional(ChosenId),
    name: Type.Optional(Name),
    tags: Type.Optional(Tags),
    credentials: Type.Optional(
      Type.Object({ identity: Type.Optional(Type.String({ maxLength: 254 })), secret: Type.Optional(Secret) }),
    ),
    metadata: Type.Optional(Metadata),
    status: Type.Optional(EnabledStatus),
  },
  { $id: 'NewClient' },
)
export type NewClient = Static<typeof NewClient>

export const NewClients = Type.Array(NewClient, { minItems: 1, description: `At most ${MAX_BULK_ITEMS}` })

export const ClientUpdate = Type.Object({
  name: Type.Optional(Name),
  metadata: Type.Optional(Metadata),
  tags: Type.Optional(Tags),
})
export type ClientUpdate = Static<typeof ClientUpdate>

export const TagsUpdate = Type.Object({ tags: Type.Optional(Tags) })

/** `secret` at the top or inside `credentials`. */
export const ClientSecretUpdate = Type.Object({
  secret: Type.Optional(Secret),
  credentials: Type.Optional(Type.Object({ secret: Type.Optional(Secret) })),
})

export const ClientQuery = Type.Object({
  ...pageQuery(),
  name: Type.Optional(Name),
  tag: Type.Optional(Name),
  tags: Type.Optional(Type.String({ maxLength: 4096, description: 'Comma-separated; a client must have all of them' })),
  status: StatusFilter,
  metadata: Type.Optional(MetadataFilter),
  id: Type.Optional(Id),
  channel: Type.Optional(Type.String({ maxLength: 36, description: 'Connected to this channel' })),
  connection_type: Type.Optional(Type.Enum(['publish', 'subscribe'])),
  group: Type.Optional(Type.String({ maxLength: 36, description: 'Parent group; empty: without one' })),
  order: OrderKey,
  dir: Type.Optional(Direction),
  only_total: Type.Optional(Type.Boolean()),
})
export type ClientQuery = Static<typeof ClientQuery>

export const ClientPage = Type.Object({ ...pageFields, clients: Type.Optional(Type.Array(Client)) })

/** `secret` is what this view of the record may show; empty hides it. */
export function presentClient(client: ClientRecord, secret: string): Client {
  return {
    id: client.id,
    name: client.name,
    domain_id: client.domainId,
    tags: client.tags,
    credentials: { identity: client.identity, secret },
    metadata: client.metadata,
    ...(client.parentGroupId === null ? {} : { parent_group_id: client.parentGroupId }),
    status: client.status,
    ...(client.createdBy === null ? {} : { owner: client.createdBy, created_by: client.createdBy }),
    created_at: formatTime(client.createdAt),
    updated_at: formatTime(client.updatedAt),
    ...(client.updatedBy === null ? {} : { updated_by: client.updatedBy }),
  }
}
