/** Reading a signing request (PKCS #10, RFC 2986): a device keeps its key and proves that it has it. */
import { createPublicKey } from 'node:crypto'
import type { KeyObject } from 'node:crypto'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { childrenOf, parseDer, readOid, requireTag } from './read-der.ts'
import { isSignedBy } from './signing.ts'
import { TAG } from './der.ts'

const PEM = /-----BEGIN (?:NEW )?CERTIFICATE REQUEST-----([A-Za-z0-9+/=\s]+)-----END (?:NEW )?CERTIFICATE REQUEST-----/
const MIN_RSA_BITS = 2048
const MAX_RSA_BITS = 8192
const CURVES = new Set(['prime256v1', 'secp384r1', 'secp521r1'])

const refuse = (message: string) => refusedField('/csr', message)

/**
 * The public key of a request in PEM, whose signature shows that its sender has the private one. Names and extensions that
 * it asks for are not read: who the certificate is for, the path says. Throws `malformed`.
 */
export function readSigningRequest(text: string): { publicKey: Buffer } {
  const encoded = PEM.exec(text)?.[1]
  if (encoded === undefined) throw refuse('must be a signing request in PEM')
  const [info, algorithm, signature] = childrenOf(requireTag(parseDer(Buffer.from(encoded, 'base64')), TAG.sequence))
  const [, , spki] = childrenOf(requireTag(info, TAG.sequence))
  const { whole } = requireTag(spki, TAG.sequence)
  const [name] = childrenOf(requireTag(algorithm, TAG.sequence))
  const key = readKey(whole)
  const { content } = requireTag(signature, TAG.bitString)
  if (info === undefined || content[0] !== 0 || !isSignedBy(info.whole, readOid(name), content.subarray(1), key))
    throw refuse('must be signed by its own key, with SHA-256 or better')
  // Written anew, so that a certificate holds nothing but the canonical form.
  return { publicKey: key.export({ type: 'spki', format: 'der' }) }
}

function readKey(spki: Buffer): KeyObject {
  let key: KeyObject
  try {
    key = createPublicKey({ key: spki, type: 'spki', format: 'der' })
  } catch (error) {
    throw new ServiceError('malformed', 'csr must hold a public key', { cause: error })
  }
  const { modulusLength = 0, namedCurve = '' } = key.asymmetricKeyDetails ?? {}
  const isGood =
    key.asymmetricKeyType === 'ed25519' ||
    (key.asymmetricKeyType === 'ec' && CURVES.has(namedCurve)) ||
    (key.asymmetricKeyType === 'rsa' && modulusLength >= MIN_RSA_BITS && modulusLength <= MAX_RSA_BITS)
  if (!isGood) throw refuse('must hold a key of P-256, P-384, P-521, Ed25519 or RSA with 2048 to 8192 bits')
  return key
}
