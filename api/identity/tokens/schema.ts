/** Wire shapes of tokens (specification sections 2 and 4, contract decisions 1, 35, 40). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import { Timestamp } from '../wire/index.ts'
import type { SessionRecord } from './repository.ts'

export const TokenPair = Type.Object(
  {
    access_token: Type.String(),
    refresh_token: Type.String(),
    access_type: Type.Literal('Bearer'),
  },
  { $id: 'TokenPair', description: 'Access and refresh token' },
)
export type TokenPair = Static<typeof TokenPair>

const login = { maxLength: 1024, description: 'Username or email' }
const password = { maxLength: 1024 }

/** Either generation's names, and mixtures of them. */
export const IssueToken = Type.Object(
  {
    identity: Type.Optional(Type.String(login)),
    username: Type.Optional(Type.String(login)),
    secret: Type.Optional(Type.String(password)),
    password: Type.Optional(Type.String(password)),
    domain_id: Type.Optional(Type.String({ maxLength: 36, description: 'Binds the tokens to this domain' })),
  },
  { $id: 'IssueToken' },
)
export type IssueToken = Static<typeof IssueToken>

/** The body may be absent altogether. */
export const RefreshToken = Type.Union([
  Type.Object({ domain_id: Type.Optional(Type.String({ maxLength: 36 })) }),
  Type.Null(),
])

export const Jwks = Type.Object(
  {
    keys: Type.Array(
      Type.Object({ kty: Type.String(), kid: Type.String(), alg: Type.String(), crv: Type.String(), x: Type.String() }),
    ),
  },
  { $id: 'Jwks', description: 'RFC 7517 key set' },
)

export const SessionQuery = Type.Object(pageQuery())
export type SessionQuery = Static<typeof SessionQuery>

export const Session = Type.Object(
  {
    id: Type.String(),
    address: Type.String({ description: 'Where the login came from; empty: not known' }),
    user_agent: Type.String({ description: 'What the program that logged in called itself' }),
    domain_id: Type.Optional(Type.String({ description: 'The only domain in which its tokens work' })),
    created_at: Timestamp,
    last_used_at: Type.String({ description: 'To the minute' }),
    expires_at: Timestamp,
    current: Type.Boolean({ description: 'The login of this very request' }),
  },
  { $id: 'Session', description: 'A login and everything refreshed from it' },
)

export const SessionPage = Type.Object({ ...pageFields, refresh_tokens: Type.Array(Session) }, { $id: 'SessionPage' })

export function presentSession(session: SessionRecord, currentId: string | undefined): Static<typeof Session> {
  return {
    id: session.id,
    address: session.address ?? '',
    user_agent: session.userAgent ?? '',
    ...(session.domainId === null ? {} : { domain_id: session.domainId }),
    created_at: formatTime(session.createdAt),
    last_used_at: formatTime(session.lastUsedAt),
    expires_at: formatTime(session.expiresAt),
    current: session.id === currentId,
  }
}

export const RotatedKey = Type.Object(
  { kid: Type.String({ description: 'Id of the key that signs from now on' }) },
  { $id: 'RotatedKey' },
)
