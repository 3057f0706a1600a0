/**
 * Tickets of modules: bearer tokens with which their reader can pull one module from the proxy, or from a worker of its
 * site. Signed with Ed25519, so that verifiers cannot create tickets. JSON Web Tokens (RFC 7519) with one algorithm (RFC
 * 8037).
 */
import { createPrivateKey, createPublicKey, hkdfSync, sign, timingSafeEqual, verify } from 'node:crypto'

/** The permission of a ticket: this reader can pull this module, from this reference if it is not cached. */
export type TicketGrant = {
  /** `worker:<id>`, `domain:<id>`, `platform` or `proxy`. */
  reader: string
  digest: string
  /** The value of `ModuleRef.reference`; empty for an upload. */
  reference: string
}

export type TicketSigner = {
  /** DER, SubjectPublicKeyInfo: sufficient for a verifier. */
  readonly publicKey: Buffer
  sign(grant: TicketGrant, expiresSeconds: number): string
}

/** The permission of the ticket; undefined: invalid, or expired. */
export type TicketVerifier = (ticket: string, nowSeconds: number) => TicketGrant | undefined

const SEED_BYTES = 32
/** RFC 8410 section 7: a PKCS #8 Ed25519 key without its seed. */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex')
/** The only header that is created and accepted: a ticket cannot choose its verification. */
const HEADER = encode({ alg: 'EdDSA', typ: 'JWT' })
const TICKET = /^([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{1,4096})\.([A-Za-z0-9_-]{86})$/

/** The key that manager and proxy both derive from the proxy token. */
export function createTicketSigner(proxyToken: string): TicketSigner {
  const seed = Buffer.from(hkdfSync('sha256', proxyToken, 'skein', 'module tickets', SEED_BYTES))
  const key = createPrivateKey({ key: Buffer.concat([PKCS8_PREFIX, seed]), format: 'der', type: 'pkcs8' })
  return {
    publicKey: createPublicKey(key).export({ format: 'der', type: 'spki' }),
    sign({ reader, digest, reference }, expiresSeconds) {
      const claims = { sub: reader, exp: expiresSeconds, digest, reference }
      const text = `${HEADER}.${encode(claims)}`
      return `${text}.${sign(null, Buffer.from(text), key).toString('base64url')}`
    },
  }
}

/** Throws if the bytes are not a key. */
export function createTicketVerifier(publicKey: Uint8Array): TicketVerifier {
  const key = createPublicKey({ key: Buffer.from(publicKey), format: 'der', type: 'spki' })
  return (ticket, nowSeconds) => {
    const [, header, payload = '', signature = ''] = TICKET.exec(ticket) ?? []
    if (header !== HEADER) return undefined
    if (!verify(null, Buffer.from(`${header}.${payload}`), key, Buffer.from(signature, 'base64url'))) return undefined
    const { sub, exp, digest, reference } = JSON.parse(Buffer.from(payload, 'base64url').toString()) as Claims
    // Only the canonical form is accepted, also with a valid signature: no `aud` or `nbf`, no duplicate member (RFC 7519 sections 4.1.3,
    // 4.1.5).
    if (payload !== encode({ sub, exp, digest, reference })) return undefined
    return typeof exp === 'number' && exp > nowSeconds ? { reader: sub, digest, reference } : undefined
  }
}

/** Compares a token in constant time; false for a different length. */
export function isSameToken(given: string, expected: string): boolean {
  const [left, right] = [Buffer.from(given), Buffer.from(expected)]
  return left.length === right.length && timingSafeEqual(left, right)
}

/** The claims of a ticket. */
type Claims = { sub: string; exp: number; digest: string; reference: string }

function encode(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url')
}
