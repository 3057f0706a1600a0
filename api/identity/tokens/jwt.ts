/**
 * Compact JWS with EdDSA over Ed25519 (RFC 7515, RFC 8037) for Skein's own tokens only. Pure except for the given
 * clock.
 */
import { sign, verify } from 'node:crypto'
import type { KeyObject } from 'node:crypto'

/** `type` claim of a token (contract section 6). */
export const TOKEN_TYPE = { access: 0, refresh: 1, recovery: 2, apiKey: 3, personal: 4, invitation: 5 } as const
export type TokenType = (typeof TOKEN_TYPE)[keyof typeof TOKEN_TYPE]

export type Claims = {
  iss: string
  iat: number
  /** Absent for an API key without expiry. */
  exp?: number
  /** `<session id>.<generation>`: the login and the number of its refreshes. An API key has its id here. */
  jti: string
  /** User id. */
  sub: string
  type: TokenType
  role: 'user' | 'admin'
  /** Domain id, for a token that is bound to a domain. */
  domain?: string
}

const ISSUER = 'skein'
/** Longer text is rejected before it is decoded. */
export const MAX_TOKEN_CHARS = 4096

export function newClaims(
  claims: Omit<Claims, 'iss' | 'iat' | 'exp'>,
  nowSeconds: number,
  lifetimeSeconds: number | undefined,
): Claims {
  const expiry = lifetimeSeconds === undefined ? {} : { exp: nowSeconds + lifetimeSeconds }
  return { iss: ISSUER, iat: nowSeconds, ...expiry, ...claims }
}

function encode(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url')
}

/** The header of Skein's tokens: exactly these members in this order. */
const headerOf = (kid: string): string => encode({ alg: 'EdDSA', typ: 'JWT', kid })

export function signToken(claims: Claims, kid: string, privateKey: KeyObject): string {
  const input = `${headerOf(kid)}.${encode(claims)}`
  return `${input}.${sign(null, Buffer.from(input), privateKey).toString('base64url')}`
}

function decode(part: string | undefined): Record<string, unknown> | undefined {
  if (part === undefined) return undefined
  try {
    const value: unknown = JSON.parse(Buffer.from(part, 'base64url').toString('utf8'))
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined
  } catch {
    return undefined
  }
}

function isClaims(value: Record<string, unknown>): boolean {
  return (
    value['iss'] === ISSUER &&
    Number.isInteger(value['iat']) &&
    (Number.isInteger(value['exp']) || (value['exp'] === undefined && value['type'] === TOKEN_TYPE.apiKey)) &&
    typeof value['jti'] === 'string' &&
    typeof value['sub'] === 'string' &&
    Number.isInteger(value['type']) &&
    (value['role'] === 'user' || value['role'] === 'admin') &&
    // Skein sets neither: a token for another audience or a later time is invalid (RFC 7519 sections 4.1.3, 4.1.5).
    value['aud'] === undefined &&
    value['nbf'] === undefined &&
    (value['domain'] === undefined || typeof value['domain'] === 'string')
  )
}

/** Returns the key id in the header of a token, unverified. */
export function kidOf(token: string): string | undefined {
  if (token.length > MAX_TOKEN_CHARS) return undefined
  const kid = decode(token.split('.', 1)[0])?.['kid']
  return typeof kid === 'string' ? kid : undefined
}

/** Returns the domain that a token claims to be bound to, unverified. */
export function claimedDomainOf(token: string): string | undefined {
  if (token.length > MAX_TOKEN_CHARS) return undefined
  const domain = decode(token.split('.', 2)[1])?.['domain']
  return typeof domain === 'string' ? domain : undefined
}

/** Prefix of personal access tokens. */
export const PAT_PREFIX = 'pat_'

/** True when the text has the form of a token: a personal access token, or a JWS whose header contains a key id. */
export const isTokenLike = (text: string): boolean => text.startsWith(PAT_PREFIX) || kidOf(text) !== undefined

export function hasEnded(claims: Claims, nowSeconds: number): boolean {
  return claims.exp !== undefined && claims.exp <= nowSeconds
}

/**
 * Returns the claims of a token with a valid signature that has not expired at `nowSeconds`, and undefined for any
 * other text, without the reason. The algorithm is fixed. The header must be identical to Skein's, so that `crit`,
 * embedded keys, duplicate members and other `typ` values are never read (RFC 8725).
 */
export function verifyToken(
  token: string,
  keyOf: (kid: string) => KeyObject | undefined,
  nowSeconds: number,
): Claims | undefined {
  if (token.length > MAX_TOKEN_CHARS) return undefined
  const parts = token.split('.')
  if (parts.length !== 3) return undefined
  const kid = decode(parts[0])?.['kid']
  if (typeof kid !== 'string' || parts[0] !== headerOf(kid)) return undefined
  const key = keyOf(kid)
  if (key === undefined) return undefined
  const signature = Buffer.from(parts[2] ?? '', 'base64url')
  // Node.js accepts padding and unused bits that RFC 7515 does not allow. A token must have one valid text.
  if (signature.toString('base64url') !== parts[2]) return undefined
  if (!verify(null, Buffer.from(`${parts[0]}.${parts[1]}`), key, signature)) return undefined
  const claims = decode(parts[1])
  // The claims must be encoded exactly as Skein encodes them: no duplicate members, no trailing text.
  if (claims === undefined || !isClaims(claims) || parts[1] !== encode(claims)) return undefined
  return hasEnded(claims as Claims, nowSeconds) ? undefined : (claims as Claims)
}
