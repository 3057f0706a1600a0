/** Wire shapes of tokens (specification sections 2 and 4, contract decisions 1, 35, 40). */
import { Type } from 'typebox'
import type { Static } from 'typebox'

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
