/** Field schemas that the records of all resources share (contract section 0). */
import { Type } from 'typebox'
import { recordOf, documented } from '#http/index.ts'

/** Maximum length of a name, in characters. */
export const MAX_NAME_CHARS = 1024
export const MAX_TAGS = 100
export const MAX_TAG_CHARS = 255
/** Limit in a query. Percent-encoding can triple it, and Node.js limits the head of a request to 16 KiB. */
export const MAX_METADATA_FILTER_CHARS = 4096

/** Other texts are valid input: no entity has such an id. */
export const Id = Type.String({ description: 'UUID', maxLength: 36, ...documented({ format: 'uuid' }, 'Id') })
/** The number of ids of one query. */
const MAX_LISTED_IDS = 100
const ID_CHARS = 36
/** `id` of listings of clients and channels. Texts that are not ids select nothing. */
export const IdsFilter = Type.Optional(
  Type.String({
    description: `UUID, or up to ${MAX_LISTED_IDS} UUIDs separated by commas`,
    maxLength: MAX_LISTED_IDS * (ID_CHARS + 1) - 1,
  }),
)
/** An id that the caller chooses: a UUID in lower case. */
export const ChosenId = Type.String({
  pattern: '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$',
  description: 'UUID in lower case',
})
export const Name = Type.String({ maxLength: MAX_NAME_CHARS })
export const RequiredName = Type.String({ minLength: 1, maxLength: MAX_NAME_CHARS })
export const Tags = Type.Array(Type.String({ maxLength: MAX_TAG_CHARS }), { maxItems: MAX_TAGS })
export const Metadata = recordOf(Type.Unknown(), { description: 'Free-form JSON object' })
export const Timestamp = Type.String({
  description: 'RFC 3339 in UTC; `0001-01-01T00:00:00Z` means never',
  ...documented({}, 'Timestamp'),
})
export const EnabledStatus = Type.Enum(['enabled', 'disabled'])
/** `status` of a listing. */
export const StatusFilter = Type.Enum(['enabled', 'disabled', 'all'], { default: 'enabled' })
/** Other keys select the default order (contract 4.1). */
export const OrderKey = Type.String({
  maxLength: 32,
  default: 'updated_at',
  description: 'Sort key: `name`, `created_at` or `updated_at`',
  ...documented({ enum: ['name', 'created_at', 'updated_at'] }),
})
/** `actions` of a listing. They must exist on the entity type. */
export const ActionsFilter = (description: string) =>
  Type.Optional(Type.String({ maxLength: 4096, description, ...documented({ pattern: '^[a-z_]+(,[a-z_]+)*$' }) }))
/** URL-encoded JSON object. Matches by containment. */
export const MetadataFilter = Type.String({
  maxLength: MAX_METADATA_FILTER_CHARS,
  description: 'JSON object that the metadata must contain',
})
const Instant = (description: string) =>
  Type.Optional(
    Type.String({
      maxLength: 64,
      description: `${description}, in RFC 3339 with an offset`,
      ...documented({ format: 'date-time' }),
    }),
  )
/** Filters of listings by the time of creation. */
export const createdFields = {
  created_from: Instant('Created at this time or later'),
  created_to: Instant('Created at this time or earlier'),
}
/** `tags` of listings of users and domains. */
export const TagsFilter = Type.Optional(
  Type.String({
    maxLength: 4096,
    description: '`a,b`: any of these tags; `a+b`, with the sign encoded as %2B: all of them',
  }),
)
/** Free-form JSON beside the metadata. */
export const PrivateMetadata = recordOf(Type.Unknown(), {
  description: 'Free-form JSON object that only callers who may update the entity see',
})
export const MessageBody = Type.Object({ message: Type.String() })
