/** Wire shapes of provisioning (specification section 4 Provision service, contract 9.2). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { SECRET, recordOf } from '#http/index.ts'
import { Id, Metadata, Name } from '#api/identity/index.ts'

const ExternalText = Type.String({ minLength: 1, maxLength: 1024 })

export const MappingOrder = Type.Object(
  { external_id: ExternalText, external_key: ExternalText, name: Type.Optional(Name) },
  { $id: 'MappingOrder' },
)
export type MappingOrder = Static<typeof MappingOrder>

const ProvisionedClient = Type.Object({
  id: Id,
  name: Type.String(),
  key: Type.String({ ...SECRET, description: 'Secret of the client' }),
  credentials: Type.Object({ secret: Type.String(SECRET) }),
  domain_id: Id,
  metadata: Metadata,
})
const ProvisionedChannel = Type.Object({ id: Id, name: Type.String(), domain_id: Id, metadata: Metadata })
const ById = (description: string, mark: Partial<typeof SECRET> = {}) =>
  Type.Optional(recordOf(Type.String(mark), { description }))

export const Mapping = Type.Object(
  {
    clients: Type.Array(ProvisionedClient),
    channels: Type.Array(ProvisionedChannel),
    whitelisted: recordOf(Type.Boolean(), { description: 'Activation by id of the client' }),
    client_cert: ById('Certificates in PEM by the id of the client'),
    client_key: ById('Private keys in PEM by the id of the client', SECRET),
    ca_cert: Type.Optional(Type.String({ description: 'Certificate of the authority in PEM' })),
  },
  { $id: 'Mapping', description: 'Entities that were created for a device' },
)
export type Mapping = Static<typeof Mapping>

export const MappingContent = recordOf(Type.Unknown(), {
  description: 'Content of bootstrap configurations from the layout',
})
