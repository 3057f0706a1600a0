/** Field schemas that the records of every resource share (contract section 0). */
import { Type } from 'typebox'
import { recordOf } from '#core/http/index.ts'

/** Longest name of any entity, in characters. */
export const MAX_NAME_CHARS = 1024
export const MAX_TAGS = 100
export const MAX_TAG_CHARS = 255

export const Id = Type.String({ description: 'UUID', maxLength: 36 })
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
})
/** URL-encoded JSON object; matches by containment. */
export const MetadataFilter = Type.String({
  maxLength: 16_384,
  description: 'JSON object that the metadata must contain',
})
export const MessageBody = Type.Object({ message: Type.String() })
