/**
 * Tickets of modules: what a manager gives a worker with an assignment, and what proxy, manager and workers of its site
 * ask for before they send a module. Signed with Ed25519 (RFC 8032): who checks tickets need not be able to make them.
 */
import { createPrivateKey, createPublicKey, hkdfSync, sign, timingSafeEqual, verify } from 'node:crypto'

/** What a ticket allows: this worker reads this module, pulled from this reference when it is not cached. */
export type TicketGrant = {
  workerId: string
  digest: string
  /** As in `ModuleRef.reference`; empty for an upload. */
  reference: string
}

export type TicketSigner = {
  /** DER, SubjectPublicKeyInfo: all that a verifier needs. */
  readonly publicKey: Buffer
  sign(grant: TicketGrant, expiresSeconds: number): string
}

/** The worker whose ticket it is; undefined: it is none, of another module or reference, or expired. */
export type TicketVerifier = (
  ticket: string,
  wanted: Pick<TicketGrant, 'digest' | 'reference'>,
  nowSeconds: number,
) => string | undefined

const SEED_BYTES = 32
/** RFC 8410 section 7: everything of a PKCS #8 Ed25519 key but the seed. */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex')
/** Seconds since 1970, worker id, signature. */
const TICKET = /^(\d{1,12})\.([0-9a-f-]{36})\.([A-Za-z0-9_-]{86})$/

/** The key that manager and proxy both derive from the proxy token, so that it need not be handed around. */
export function createTicketSigner(proxyToken: string): TicketSigner {
  const seed = Buffer.from(hkdfSync('sha256', proxyToken, 'skein', 'module tickets', SEED_BYTES))
  const key = createPrivateKey({ key: Buffer.concat([PKCS8_PREFIX, seed]), format: 'der', type: 'pkcs8' })
  return {
    publicKey: createPublicKey(key).export({ format: 'der', type: 'spki' }),
    sign(grant, expiresSeconds) {
      const signature = sign(null, signedText(grant, expiresSeconds), key)
      return `${expiresSeconds}.${grant.workerId}.${signature.toString('base64url')}`
    },
  }
}

/** Throws when the bytes are no key. */
export function createTicketVerifier(publicKey: Uint8Array): TicketVerifier {
  const key = createPublicKey({ key: Buffer.from(publicKey), format: 'der', type: 'spki' })
  return (ticket, { digest, reference }, nowSeconds) => {
    const [, expires = '', workerId = '', signature = ''] = TICKET.exec(ticket) ?? []
    const expiresSeconds = Number(expires)
    if (workerId === '' || expiresSeconds <= nowSeconds) return undefined
    const text = signedText({ workerId, digest, reference }, expiresSeconds)
    return verify(null, text, key, Buffer.from(signature, 'base64url')) ? workerId : undefined
  }
}

/** Compares a token in constant time; false for one of another length. */
export function isSameToken(given: string, expected: string): boolean {
  const [left, right] = [Buffer.from(given), Buffer.from(expected)]
  return left.length === right.length && timingSafeEqual(left, right)
}

// Lines: none of the parts of a grant that counts holds a line break, and one that does is another module's.
function signedText({ workerId, digest, reference }: TicketGrant, expiresSeconds: number): Buffer {
  return Buffer.from(`skein module ticket 1\n${expiresSeconds}\n${workerId}\n${digest}\n${reference}`)
}
