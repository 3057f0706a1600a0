/** A private key that signs certificates, revocation lists and OCSP responses, with the algorithm of its type. */
import { createHash, createPublicKey, generateKeyPairSync, webcrypto } from 'node:crypto'
import type { KeyObject } from 'node:crypto'
import { AsnConvert, AsnSerializer } from '@peculiar/asn1-schema'
import { SubjectPublicKeyInfo } from '@peculiar/asn1-x509'
import type { AlgorithmIdentifier } from '@peculiar/asn1-x509'
import { BitString, Constructed, Sequence, fromBER } from 'asn1js'
import { ServiceError } from '#core/errors/index.ts'
import { AlgorithmProvider, AsnEcSignatureFormatter } from './library.ts'

const CURVES: Readonly<Record<string, string>> = { prime256v1: 'P-256', secp384r1: 'P-384', secp521r1: 'P-521' }

const CONTEXT_SPECIFIC = 3

/** Names of WebCrypto. */
type SigningAlgorithm = { name: string; hash: string; namedCurve?: string }

export class SigningKey {
  readonly key: KeyObject
  /** DER of SubjectPublicKeyInfo. */
  readonly publicKey: Buffer
  readonly algorithm: SigningAlgorithm
  readonly algorithmIdentifier: AlgorithmIdentifier
  readonly cryptoKey: webcrypto.CryptoKey

  /** Throws `malformed` for an unsupported type of key. */
  constructor(key: KeyObject) {
    this.key = key
    this.publicKey = publicKeyDer(key)
    this.algorithm = algorithmOf(key)
    this.algorithmIdentifier = new AlgorithmProvider().toAsnAlgorithm(this.algorithm)
    this.cryptoKey = key.toCryptoKey(this.algorithm, false, ['sign'])
  }

  static generate(): SigningKey {
    return new SigningKey(generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey)
  }

  /** PEM of PKCS #8. */
  toPem(): string {
    return this.key.export({ type: 'pkcs8', format: 'pem' }).toString()
  }

  /**
   * Signs a certificate, revocation list or OCSP response: a sequence of content, algorithm and signature, in DER. The content is
   * encoded once, because a revocation list may have many thousand entries. An OCSP response has certificates after the signature.
   */
  async sign(toBeSigned: object, certificates: readonly Buffer[] = []): Promise<Buffer> {
    const signed = AsnSerializer.toASN(toBeSigned)
    const signature = await webcrypto.subtle.sign(this.algorithm, this.cryptoKey, signed.toBER())
    const valueHex = new AsnEcSignatureFormatter().toAsnSignature(this.algorithm, signature) ?? signature
    const value = [
      signed,
      AsnSerializer.toASN(this.algorithmIdentifier),
      new BitString({ valueHex }),
      ...certificatesOf(certificates),
    ]
    return Buffer.from(new Sequence({ value }).toBER())
  }
}

/** The field `certs` of an OCSP response (RFC 6960 section 4.2.1). */
function certificatesOf(certificates: readonly Buffer[]): Constructed[] {
  if (certificates.length === 0) return []
  const value = [new Sequence({ value: certificates.map((certificate) => fromBER(certificate).result) })]
  return [new Constructed({ idBlock: { tagClass: CONTEXT_SPECIFIC, tagNumber: 0 }, value })]
}

function algorithmOf(key: KeyObject): SigningAlgorithm {
  const hash = 'SHA-256'
  const namedCurve = CURVES[key.asymmetricKeyDetails?.namedCurve ?? '']
  if (key.asymmetricKeyType === 'rsa') return { name: 'RSASSA-PKCS1-v1_5', hash }
  if (key.asymmetricKeyType === 'ed25519') return { name: 'Ed25519', hash }
  if (key.asymmetricKeyType === 'ec' && namedCurve !== undefined) return { name: 'ECDSA', namedCurve, hash }
  throw new ServiceError('malformed', 'the key of an authority must be P-256, P-384, P-521, RSA or Ed25519')
}

export function publicKeyDer(key: KeyObject): Buffer {
  const publicKey = key.type === 'private' ? createPublicKey(key) : key
  return publicKey.export({ type: 'spki', format: 'der' })
}

/** The key bits of SubjectPublicKeyInfo without the count of unused bits. */
export function keyBitsOf(publicKey: Buffer): Buffer {
  return Buffer.from(AsnConvert.parse(publicKey, SubjectPublicKeyInfo).subjectPublicKey)
}

/** SHA-1 of the key bits: an identifier, not a protection (RFC 5280 section 4.2.1.2, method 1). */
export function keyIdOf(publicKey: Buffer): Buffer {
  return createHash('sha1').update(keyBitsOf(publicKey)).digest()
}
