/** Field schemas that the records of every resource share (contract section 0). */
import { Type } from 'typebox'
import { recordOf, shown } from '#core/http/index.ts'

/** Longest name of any entity, in characters. */
export const MAX_NAME_CHARS = 1024
export const MAX_TAGS = 100
export const MAX_TAG_CHARS = 255
/** In a query: three times as many bytes, as percent-encoding may make of it, fit into the 16 KiB that Node takes as the head of a request. */
export const MAX_METADATA_FILTER_CHARS = 4096

/** Another text is no fault: it is an id that nothing has. */
export const Id = Type.String({ description: 'UUID', maxLength: 36, ...shown({ format: 'uuid' }) })
/** An id that a caller chooses: UUID text in lower case. */
export const ChosenId = Type.String({
  pattern: '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$',
  description: 'UUID in lower case',
})
export const Name = Type.String({ maxLength: MAX_NAME_CHARS })
export const RequiredName = Type.String({ minLength: 1, maxLength: MAX_NAME_CHARS })
export const Tags = Type.Array(Type.String({ maxLength: MAX_TAG_CHARS }), { maxItems: MAX_TAGS })
export const Metadata = recordOf(Type.Unknown(), { description: 'Free-form key and value' })
export const Timestamp = Type.String({ description: 'RFC 3339 in UTC; 0001-01-01T00:00:00Z: never' })
export const EnabledStatus = Type.Enum(['enabled', 'disabled'])
/** `status` of a listing. */
export const StatusFilter = Type.Enum(['enabled', 'disabled', 'all'], { default: 'enabled' })
/** Anything but the named keys is sorted as by default (contract 4.1). */
export const OrderKey = Type.String({
  maxLength: 32,
  default: 'updated_at',
  description: 'name, created_at or updated_at',
  ...shown({ enum: ['name', 'created_at', 'updated_at'] }),
})
/** `actions` of a listing, which the type of its entities must know. */
export const ActionsFilter = (description: string) =>
  Type.Optional(Type.String({ maxLength: 4096, description, ...shown({ pattern: '^[a-z_]+(,[a-z_]+)*$' }) }))
/** URL-encoded JSON object; matches by containment. */
export const MetadataFilter = Type.String({
  maxLength: MAX_METADATA_FILTER_CHARS,
  description: 'JSON object that the metadata must contain',
})
export const MessageBody = Type.Object({ message: Type.String() })
