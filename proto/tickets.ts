/**
 * Tickets of modules: bearer tokens that let their reader pull one module from the proxy, or from a worker of its site. Signed
 * with Ed25519: who checks tickets need not be able to make them. JSON Web Tokens (RFC 7519) with one algorithm (RFC 8037).
 */
import { createPrivateKey, createPublicKey, hkdfSync, sign, timingSafeEqual, verify } from 'node:crypto'

/** What a ticket allows: this reader pulls this module, from this reference when it is not cached. */
export type TicketGrant = {
  /** `worker:<id>`, `domain:<id>`, `platform` or `proxy`. */
  reader: string
  digest: string
  /** As in `ModuleRef.reference`; empty for an upload. */
  reference: string
}

export type TicketSigner = {
  /** DER, SubjectPublicKeyInfo: all that a verifier needs. */
  readonly publicKey: Buffer
  sign(grant: TicketGrant, expiresSeconds: number): string
}

/** What the ticket allows; undefined: it is none of this installation, or expired. */
export type TicketVerifier = (ticket: string, nowSeconds: number) => TicketGrant | undefined

const SEED_BYTES = 32
/** RFC 8410 section 7: everything of a PKCS #8 Ed25519 key but the seed. */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex')
/** The only header that is made and taken: no ticket chooses how it is checked. */
const HEADER = encode({ alg: 'EdDSA', typ: 'JWT' })
const TICKET = /^([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{1,4096})\.([A-Za-z0-9_-]{86})$/

/** The key that manager and proxy both derive from the proxy token, so that it need not be handed around. */
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

/** Throws when the bytes are no key. */
export function createTicketVerifier(publicKey: Uint8Array): TicketVerifier {
  const key = createPublicKey({ key: Buffer.from(publicKey), format: 'der', type: 'spki' })
  return (ticket, nowSeconds) => {
    const [, header, payload = '', signature = ''] = TICKET.exec(ticket) ?? []
    if (header !== HEADER) return undefined
    if (!verify(null, Buffer.from(`${header}.${payload}`), key, Buffer.from(signature, 'base64url'))) return undefined
    const { sub, exp, digest, reference } = JSON.parse(Buffer.from(payload, 'base64url').toString()) as Claims
    // As it is written here, whoever signed it: no `aud` or `nbf`, no member twice (RFC 7519 sections 4.1.3, 4.1.5).
    if (payload !== encode({ sub, exp, digest, reference })) return undefined
    return typeof exp === 'number' && exp > nowSeconds ? { reader: sub, digest, reference } : undefined
  }
}

/** Compares a token in constant time; false for one of another length. */
export function isSameToken(given: string, expected: string): boolean {
  const [left, right] = [Buffer.from(given), Buffer.from(expected)]
  return left.length === right.length && timingSafeEqual(left, right)
}

/** What a ticket says. */
type Claims = { sub: string; exp: number; digest: string; reference: string }

function encode(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url')
}
