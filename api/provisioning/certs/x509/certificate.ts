/** Making certificates (RFC 5280 section 4): of an authority, of a device, of a server. */
import { createHash, createPublicKey } from 'node:crypto'
import type { KeyObject } from 'node:crypto'
import { explicit, implicit, integer, namedBits, octetString, oid, sequence, time, trueValue } from './der.ts'
import { alternativeNames, distinguishedName, distributionPoint, uriName } from './names.ts'
import type { AlternativeNames, SubjectName } from './names.ts'
import { OID } from './oids.ts'
import { childrenOf, parseDer } from './read-der.ts'
import { algorithmIdentifier, signatureAlgorithmOf, signed } from './signing.ts'

export type Issuer = {
  /** DER of the issuer's name, byte for byte as in its own certificate. */
  name: Buffer
  keyId: Buffer
  key: KeyObject
}

/** A device proves who it is with its certificate, a server to its clients; nobody may be both. */
export type Purpose = 'client' | 'server' | 'authority'

export type CertificateParts = {
  purpose: Purpose
  /** Big-endian bytes of a positive number, at most 20 (RFC 5280 section 4.1.2.2). */
  serial: Buffer
  subject: SubjectName
  names?: AlternativeNames
  /** DER of SubjectPublicKeyInfo. */
  publicKey: Buffer
  notBefore: Date
  notAfter: Date
  /** Where OCSP and the list of revoked certificates are asked for. */
  ocspUrl?: string | undefined
  crlUrl?: string | undefined
}

const DIGITAL_SIGNATURE = 0
const KEY_CERT_SIGN = 5
const CRL_SIGN = 6

/** DER of the certificate; without an issuer it is signed by its own key, `selfKey`. */
export function makeCertificate(parts: CertificateParts, issuer: Issuer | { selfKey: KeyObject }): Buffer {
  const subject = distinguishedName(parts.subject)
  const isSelf = 'selfKey' in issuer
  const key = isSelf ? issuer.selfKey : issuer.key
  const toBeSigned = sequence(
    explicit(0, integer(2)),
    integer(parts.serial),
    algorithmIdentifier(signatureAlgorithmOf(key)),
    isSelf ? subject : issuer.name,
    sequence(time(parts.notBefore), time(parts.notAfter)),
    subject,
    parts.publicKey,
    explicit(3, sequence(...extensionsOf(parts, isSelf ? keyIdOf(parts.publicKey) : issuer.keyId))),
  )
  const { algorithm, signature } = signed(toBeSigned, key)
  return sequence(toBeSigned, algorithm, signature)
}

function extensionsOf(parts: CertificateParts, authorityKeyId: Buffer): Buffer[] {
  const isAuthority = parts.purpose === 'authority'
  const names = alternativeNames(parts.names ?? {})
  const usage = parts.purpose === 'server' ? OID.serverAuthentication : OID.clientAuthentication
  return [
    // An authority signs devices and servers, and no further authority.
    extension(OID.basicConstraints, isAuthority ? sequence(trueValue(), integer(0)) : sequence(), true),
    extension(
      OID.keyUsage,
      isAuthority ? namedBits(DIGITAL_SIGNATURE, KEY_CERT_SIGN, CRL_SIGN) : namedBits(DIGITAL_SIGNATURE),
      true,
    ),
    ...(isAuthority ? [] : [extension(OID.extendedKeyUsage, sequence(oid(usage)))]),
    extension(OID.subjectKeyIdentifier, octetString(keyIdOf(parts.publicKey))),
    extension(OID.authorityKeyIdentifier, sequence(implicit(0, authorityKeyId))),
    ...(names === undefined ? [] : [extension(OID.subjectAlternativeName, names)]),
    ...(parts.crlUrl === undefined
      ? []
      : [extension(OID.crlDistributionPoints, sequence(distributionPoint(parts.crlUrl)))]),
    ...(parts.ocspUrl === undefined
      ? []
      : [extension(OID.authorityInformationAccess, sequence(sequence(oid(OID.accessOcsp), uriName(parts.ocspUrl))))]),
  ]
}

export function extension(id: string, value: Buffer, isCritical = false): Buffer {
  return sequence(oid(id), ...(isCritical ? [trueValue()] : []), octetString(value))
}

/** SHA-1 of the key's bits: a name, no protection (RFC 5280 section 4.2.1.2, method 1). */
export function keyIdOf(publicKey: Buffer): Buffer {
  return createHash('sha1').update(keyBitsOf(publicKey)).digest()
}

/** The bits of SubjectPublicKeyInfo without the count of unused ones. */
export function keyBitsOf(publicKey: Buffer): Buffer {
  const [, bits] = childrenOf(parseDer(publicKey))
  return (bits?.content ?? Buffer.alloc(0)).subarray(1)
}

export function publicKeyDer(key: KeyObject): Buffer {
  const publicKey = key.type === 'private' ? createPublicKey(key) : key
  return publicKey.export({ type: 'spki', format: 'der' })
}
