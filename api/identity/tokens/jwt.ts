/** Compact JWS with EdDSA over Ed25519 (RFC 7515, RFC 8037): our own tokens, nothing else. Pure but for the clock given. */
import { sign, verify } from 'node:crypto'
import type { KeyObject } from 'node:crypto'

/** `type` claim of a token (contract section 6). */
export const TOKEN_TYPE = { access: 0, refresh: 1, recovery: 2, apiKey: 3, personal: 4, invitation: 5 } as const
export type TokenType = (typeof TOKEN_TYPE)[keyof typeof TOKEN_TYPE]

export type Claims = {
  iss: string
  iat: number
  /** Absent: an API key that does not end by itself. */
  exp?: number
  /** `<session id>.<generation>`: which login it came from, and which refresh of it. Of an API key: its id. */
  jti: string
  /** User id. */
  sub: string
  type: TokenType
  role: 'user' | 'admin'
  /** Domain id, only when the token is bound to one. */
  domain?: string
}

const ISSUER = 'skein'
/** Longer text is no token of ours and is refused before it is decoded. */
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

/** The one header of our tokens: no member more, in no other order. */
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
    // We write neither: a token for somebody else, or for later, is none for us (RFC 7519 sections 4.1.3, 4.1.5).
    value['aud'] === undefined &&
    value['nbf'] === undefined &&
    (value['domain'] === undefined || typeof value['domain'] === 'string')
  )
}

/** The key that a token says it was signed with, before anything about it is verified. */
export function kidOf(token: string): string | undefined {
  if (token.length > MAX_TOKEN_CHARS) return undefined
  const kid = decode(token.split('.', 1)[0])?.['kid']
  return typeof kid === 'string' ? kid : undefined
}

/** How a personal access token begins. */
export const PAT_PREFIX = 'pat_'

/** Whether the text has the form of a token of ours: a personal one, or one whose header names a key. */
export const isTokenLike = (text: string): boolean => text.startsWith(PAT_PREFIX) || kidOf(text) !== undefined

export function hasEnded(claims: Claims, nowSeconds: number): boolean {
  return claims.exp !== undefined && claims.exp <= nowSeconds
}

/**
 * The claims of a token whose signature is good and which has not expired at `nowSeconds`; undefined for anything else.
 * Why it was refused is nobody's business but the log's. The algorithm is ours, never the header's: a header is ours letter by
 * letter or refused, so that no `crit`, no key of its own, no member twice and no other `typ` is ever read (RFC 8725).
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
  // Node reads padding and unused bits that RFC 7515 does not allow: one token is one text.
  if (signature.toString('base64url') !== parts[2]) return undefined
  if (!verify(null, Buffer.from(`${parts[0]}.${parts[1]}`), key, signature)) return undefined
  const claims = decode(parts[1])
  // As it is written by us: no member twice, nothing behind it.
  if (claims === undefined || !isClaims(claims) || parts[1] !== encode(claims)) return undefined
  return hasEnded(claims as Claims, nowSeconds) ? undefined : (claims as Claims)
}
