/** Signing requests (PKCS #10, RFC 2986): a device keeps its private key and proves possession. */
import { createPublicKey, verify } from 'node:crypto'
import type { KeyObject } from 'node:crypto'
import { CertificationRequest } from '@peculiar/asn1-csr'
import { AsnConvert, AsnSerializer } from '@peculiar/asn1-schema'
import { BitString, Sequence, fromBER } from 'asn1js'
import { ServiceError, fieldName } from '#core/errors/index.ts'
import { parseDer } from './der.ts'
import type { DerBounds } from './der.ts'
import { AlgorithmProvider, Name, Pkcs10CertificateRequestGenerator, PublicKey } from './library.ts'
import type { HashedAlgorithm } from './library.ts'
import type { SigningKey } from './signing-key.ts'

const MAX_REQUEST_BYTES = 16_384
/** DER values of a request: a name, a key and some attributes have fewer than a hundred. */
const MAX_NODES = 1_000
const MAX_DEPTH = 16
const BOUNDS: DerBounds = { maxContentLength: MAX_REQUEST_BYTES, maxNodes: MAX_NODES, maxDepth: MAX_DEPTH }
const MIN_RSA_BITS = 2048
const MAX_RSA_BITS = 8192
const CURVES: ReadonlySet<string> = new Set(['prime256v1', 'secp384r1', 'secp521r1'])
/** WebCrypto algorithms and their types of key. */
const KEY_TYPES: Readonly<Record<string, string>> = { ECDSA: 'ec', 'RSASSA-PKCS1-v1_5': 'rsa', Ed25519: 'ed25519' }
/** SHA-1 and MD5 are not accepted. */
const HASHES: ReadonlySet<string> = new Set(['SHA-256', 'SHA-384', 'SHA-512'])

const PEM = /-----BEGIN (?:NEW )?CERTIFICATE REQUEST-----([A-Za-z0-9+/=\s]+)-----END (?:NEW )?CERTIFICATE REQUEST-----/

/**
 * DER of the public key of a request in PEM or DER, whose signature proves possession of the private key. Names and extensions of
 * the request are ignored. Throws `malformed` with the field that contained the request.
 */
export function readSigningRequest(request: string | Buffer, field: string): Buffer {
  const refuse = (message: string, cause?: unknown) =>
    new ServiceError('malformed', `${fieldName(field)} ${message}`, { cause, details: [{ path: field, message }] })
  const der = typeof request === 'string' ? decodePem(request) : request
  if (der === undefined) throw refuse('must be a signing request in PEM')
  let parsed: CertificationRequest
  let key: KeyObject
  try {
    parsed = parseDer(der, CertificationRequest, BOUNDS)
    const { subjectPKInfo } = parsed.certificationRequestInfo
    key = createPublicKey({ key: Buffer.from(AsnConvert.serialize(subjectPKInfo)), type: 'spki', format: 'der' })
  } catch (error) {
    throw refuse(
      `must be a signing request (PKCS #10) with a public key, in DER of at most ${MAX_REQUEST_BYTES} bytes`,
      error,
    )
  }
  if (!isAccepted(key)) throw refuse('must have a key of P-256, P-384, P-521, Ed25519 or RSA with 2048 to 8192 bits')
  if (!isSignedBy(key, parsed, der)) throw refuse('must be signed by its own key, with SHA-256 or better')
  // Encoded again, so that a certificate contains the canonical form.
  return key.export({ type: 'spki', format: 'der' })
}

function decodePem(text: string): Buffer | undefined {
  const encoded = PEM.exec(text)?.[1]
  return encoded === undefined ? undefined : Buffer.from(encoded, 'base64')
}

function isAccepted(key: KeyObject): boolean {
  const { modulusLength = 0, namedCurve = '' } = key.asymmetricKeyDetails ?? {}
  if (key.asymmetricKeyType === 'rsa') return modulusLength >= MIN_RSA_BITS && modulusLength <= MAX_RSA_BITS
  return key.asymmetricKeyType === 'ed25519' || (key.asymmetricKeyType === 'ec' && CURVES.has(namedCurve))
}

function isSignedBy(key: KeyObject, request: CertificationRequest, der: Buffer): boolean {
  const { certificationRequestInfoRaw: info = new ArrayBuffer(), signatureAlgorithm, signature } = request
  try {
    const algorithm: { name?: string } & Partial<HashedAlgorithm> = new AlgorithmProvider().toWebAlgorithm(
      signatureAlgorithm,
    )
    const hash = algorithm.hash?.name
    if (KEY_TYPES[algorithm.name ?? ''] !== key.asymmetricKeyType) return false
    if (key.asymmetricKeyType !== 'ed25519' && !HASHES.has(hash ?? '')) return false
    // The library accepts BER too; a signature needs one encoding.
    const value = [
      fromBER(info, BOUNDS).result,
      AsnSerializer.toASN(signatureAlgorithm),
      new BitString({ valueHex: signature }),
    ]
    if (!Buffer.from(new Sequence({ value }).toBER()).equals(der)) return false
    return verify(hash ?? null, Buffer.from(info), key, Buffer.from(signature))
  } catch {
    // An error in verification means an invalid signature.
    return false
  }
}

/** DER of a signing request for the key. */
export async function createSigningRequest(
  commonName: string,
  { algorithm, cryptoKey, publicKey }: SigningKey,
): Promise<Buffer> {
  const request = await Pkcs10CertificateRequestGenerator.create({
    name: new Name([{ CN: [{ utf8String: commonName }] }]),
    keys: { privateKey: cryptoKey, publicKey: await new PublicKey(publicKey).export() },
    signingAlgorithm: algorithm,
  })
  return Buffer.from(request.rawData)
}
