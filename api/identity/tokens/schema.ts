/** Wire shapes of tokens (specification sections 2 and 4, contract decisions 1, 35, 40). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { SECRET } from '#http/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import { Timestamp } from '../wire/index.ts'
import type { BrowserSession as ShownSession } from './browser-sessions.ts'
import type { SessionRecord } from './repository.ts'

export const TokenPair = Type.Object(
  {
    access_token: Type.String(SECRET),
    refresh_token: Type.String(SECRET),
    access_type: Type.Literal('Bearer'),
  },
  { $id: 'TokenPair', description: 'Access and refresh token' },
)
export type TokenPair = Static<typeof TokenPair>

const login = { maxLength: 1024, description: 'Username or email' }
const password = { maxLength: 1024 }

/** Accepts newer and older names, in any combination. */
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

export const BrowserLogin = Type.Object(
  {
    identity: Type.String({ ...login, minLength: 1 }),
    secret: Type.String({ ...password, minLength: 1 }),
  },
  { $id: 'BrowserLogin' },
)
export type BrowserLogin = Static<typeof BrowserLogin>

const browserSession = {
  id: Type.String(),
  user_id: Type.String(),
  role: Type.Union([Type.Literal('user'), Type.Literal('admin')]),
  created_at: Timestamp,
  expires_at: Type.String({ description: 'When the session ends unless a page uses it before' }),
}

export const BrowserSession = Type.Object(browserSession, {
  $id: 'BrowserSession',
  description: 'Login of a browser, which holds a cookie',
})

export const PageToken = Type.Object(
  {
    ...browserSession,
    access_token: Type.String({ ...SECRET, description: 'For `Authorization: Bearer` of requests of the page' }),
    access_type: Type.Literal('Bearer'),
    expires_in: Type.Integer({ description: 'Lifetime of the access token in seconds' }),
  },
  { $id: 'PageToken' },
)

export function presentBrowserSession(session: ShownSession): Static<typeof BrowserSession> {
  return {
    id: session.id,
    user_id: session.userId,
    role: session.userRole,
    created_at: formatTime(session.createdAt),
    expires_at: formatTime(session.expiresAt),
  }
}

/** The body is optional. */
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
    address: Type.String({ description: 'Address of the login; empty when unknown' }),
    user_agent: Type.String({ description: 'User-Agent header of the login' }),
    kind: Type.Union([Type.Literal('token'), Type.Literal('browser')], {
      description: '`browser`: a login with a cookie; `token`: a login with a refresh token',
    }),
    domain_id: Type.Optional(Type.String({ description: 'Only domain in which its tokens are valid' })),
    created_at: Timestamp,
    last_used_at: Type.String({ description: 'Time of the last use, with a resolution of one minute' }),
    expires_at: Timestamp,
    current: Type.Boolean({ description: 'True for the login of this request' }),
  },
  { $id: 'Session', description: 'Login with all tokens that were refreshed from it' },
)

export const SessionPage = Type.Object({ ...pageFields, refresh_tokens: Type.Array(Session) }, { $id: 'SessionPage' })

export function presentSession(session: SessionRecord, currentId: string | undefined): Static<typeof Session> {
  return {
    id: session.id,
    address: session.address ?? '',
    user_agent: session.userAgent ?? '',
    kind: session.isBrowser ? 'browser' : 'token',
    ...(session.domainId === null ? {} : { domain_id: session.domainId }),
    created_at: formatTime(session.createdAt),
    last_used_at: formatTime(session.lastUsedAt),
    expires_at: formatTime(session.expiresAt),
    current: session.id === currentId,
  }
}

export const RotatedKey = Type.Object(
  { kid: Type.String({ description: 'Id of the new signing key' }) },
  { $id: 'RotatedKey' },
)

export const RevokeToken = Type.Object({
  token_id: Type.Optional(
    Type.String({
      maxLength: 64,
      description: 'Id of the login, as in `refresh_tokens`',
      pattern: '^$|^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$',
    }),
  ),
})
