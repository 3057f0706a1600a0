/** Wire shapes of API keys (contract section 6). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { SECRET } from '#http/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import { Timestamp } from '../wire/index.ts'
import { TOKEN_TYPE } from '../tokens/index.ts'
import type { ApiKeyRecord } from './repository.ts'

/** A hundred years. A key without expiry has no duration. */
const MAX_DURATION_SECONDS = 100 * 365 * 86_400

export const NewApiKey = Type.Object(
  {
    type: Type.Literal(TOKEN_TYPE.apiKey, { description: '3 for an API key. Logins issue the other types' }),
    duration: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: MAX_DURATION_SECONDS,
        description: 'Lifetime in seconds; absent or 0 means until the key is deleted',
      }),
    ),
  },
  { $id: 'ApiKeyCreate' },
)
export type NewApiKey = Static<typeof NewApiKey>

export const IssuedApiKey = Type.Object(
  {
    id: Type.String(),
    value: Type.String({ ...SECRET, description: 'The key; never returned again' }),
    issued_at: Timestamp,
    expires_at: Type.Optional(Timestamp),
  },
  { $id: 'IssuedApiKey', description: 'New API key' },
)

export const ApiKey = Type.Object(
  {
    id: Type.String(),
    issuer_id: Type.String({ description: 'Id of the user' }),
    subject: Type.String({ description: 'Id of the user' }),
    type: Type.Literal(TOKEN_TYPE.apiKey),
    domain_id: Type.Optional(Type.String({ description: 'Only domain in which the key is valid' })),
    issued_at: Timestamp,
    expires_at: Type.Optional(Timestamp),
    last_used_at: Timestamp,
  },
  { $id: 'ApiKey', description: 'API key' },
)

export const ApiKeyQuery = Type.Object(pageQuery())
export type ApiKeyQuery = Static<typeof ApiKeyQuery>
export const ApiKeyPage = Type.Object({ ...pageFields, keys: Type.Array(ApiKey) }, { $id: 'ApiKeyPage' })

export function presentIssuedApiKey(key: ApiKeyRecord, value: string): Static<typeof IssuedApiKey> {
  return { id: key.id, value, issued_at: formatTime(key.issuedAt), ...expiryOf(key) }
}

export function presentApiKey(key: ApiKeyRecord): Static<typeof ApiKey> {
  return {
    id: key.id,
    issuer_id: key.userId,
    subject: key.userId,
    type: TOKEN_TYPE.apiKey,
    ...(key.domainId === null ? {} : { domain_id: key.domainId }),
    issued_at: formatTime(key.issuedAt),
    ...expiryOf(key),
    last_used_at: formatTime(key.lastUsedAt),
  }
}

const expiryOf = ({ expiresAt }: ApiKeyRecord) => (expiresAt === null ? {} : { expires_at: formatTime(expiresAt) })
