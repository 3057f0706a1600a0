/** Creates certificates (RFC 5280 section 4) of authorities, clients and servers. */
import { randomBytes } from 'node:crypto'
import { isIPv6 } from 'node:net'
import { AsnConvert, OctetString } from '@peculiar/asn1-schema'
import {
  AccessDescription,
  AttributeTypeAndValue,
  AttributeValue,
  AuthorityInfoAccessSyntax,
  AuthorityKeyIdentifier,
  BasicConstraints,
  CRLDistributionPoints,
  DistributionPoint,
  DistributionPointName,
  ExtendedKeyUsage,
  Extension,
  Extensions,
  GeneralName,
  KeyIdentifier,
  KeyUsage,
  KeyUsageFlags,
  Name,
  RelativeDistinguishedName,
  SubjectAlternativeName,
  SubjectKeyIdentifier,
  SubjectPublicKeyInfo,
  TBSCertificate,
  Validity,
  Version,
  id_ad_ocsp,
  id_ce_authorityKeyIdentifier,
  id_ce_basicConstraints,
  id_ce_cRLDistributionPoints,
  id_ce_extKeyUsage,
  id_ce_keyUsage,
  id_ce_subjectAltName,
  id_ce_subjectKeyIdentifier,
  id_kp_clientAuth,
  id_kp_serverAuth,
  id_pe_authorityInfoAccess,
} from '@peculiar/asn1-x509'
import { PemConverter } from './library.ts'
import { keyIdOf } from './signing-key.ts'
import type { SigningKey } from './signing-key.ts'

export type Issuer = {
  subject: Name
  /** DER of the name, identical to that in its own certificate. */
  name: Buffer
  keyId: Buffer
  /** DER of its own certificate. */
  certificateDer: Buffer
  key: SigningKey
}

/** A client authenticates itself to servers, a server to its clients; a peer does both. */
export type Purpose = 'client' | 'server' | 'peer' | 'authority'

export type SubjectName = {
  commonName: string
  organization?: readonly string[] | undefined
  organizationalUnit?: readonly string[] | undefined
  country?: readonly string[] | undefined
  province?: readonly string[] | undefined
  locality?: readonly string[] | undefined
  street?: readonly string[] | undefined
  postalCode?: readonly string[] | undefined
}

export type AlternativeNames = {
  dnsNames?: readonly string[]
  ipAddresses?: readonly string[]
  uris?: readonly string[]
}

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
  /** The addresses of OCSP and of the revocation list. */
  ocspUrl?: string | undefined
  crlUrl?: string | undefined
}

/** RFC 5280 section 4.1.2.2 allows 20 bytes; 16 random bytes are unique in practice. */
const SERIAL_BYTES = 16

/** A serial number that is positive without a leading zero byte. */
export function newSerial(): Buffer {
  const bytes = randomBytes(SERIAL_BYTES)
  bytes[0] = ((bytes[0] ?? 0) & 0x3f) | 0x40
  return bytes
}

/** DER of the certificate; without an issuer it is signed by its own key, `selfKey`. */
export async function createCertificate(
  parts: CertificateParts,
  issuer: Issuer | { selfKey: SigningKey },
): Promise<Buffer> {
  const subject = distinguishedName(parts.subject)
  const isSelf = 'selfKey' in issuer
  const key = isSelf ? issuer.selfKey : issuer.key
  return await key.sign(
    new TBSCertificate({
      version: Version.v3,
      serialNumber: positiveInteger(parts.serial),
      signature: key.algorithmIdentifier,
      issuer: isSelf ? subject : issuer.subject,
      validity: new Validity({ notBefore: wholeSeconds(parts.notBefore), notAfter: wholeSeconds(parts.notAfter) }),
      subject,
      subjectPublicKeyInfo: AsnConvert.parse(parts.publicKey, SubjectPublicKeyInfo),
      extensions: new Extensions(extensionsOf(parts, isSelf ? keyIdOf(parts.publicKey) : issuer.keyId)),
    }),
  )
}

/** The content of an INTEGER: positive, in the shortest form (X.690 section 8.3). */
export function positiveInteger(bytes: Buffer): ArrayBuffer {
  const first = bytes.findIndex((byte) => byte !== 0)
  const digits = first === -1 ? Buffer.alloc(1) : bytes.subarray(first)
  return Uint8Array.from((digits[0] ?? 0) >= 0x80 ? [0, ...digits] : digits).buffer
}

/** Times of certificates have no fraction (RFC 5280 section 4.1.2.5). */
export function wholeSeconds(date: Date): Date {
  return new Date(Math.floor(date.getTime() / 1000) * 1000)
}

const USAGES: Readonly<Record<Exclude<Purpose, 'authority'>, string[]>> = {
  client: [id_kp_clientAuth],
  server: [id_kp_serverAuth],
  peer: [id_kp_clientAuth, id_kp_serverAuth],
}
const AUTHORITY_USAGE = KeyUsageFlags.digitalSignature | KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign

function extensionsOf({ purpose, publicKey, names, crlUrl, ocspUrl }: CertificateParts, issuerId: Buffer): Extension[] {
  const alternative = alternativeNames(names ?? {})
  return [
    // An authority signs leaf certificates, and no further authority.
    ...(purpose === 'authority'
      ? [
          extension(id_ce_basicConstraints, new BasicConstraints({ cA: true, pathLenConstraint: 0 }), true),
          extension(id_ce_keyUsage, new KeyUsage(AUTHORITY_USAGE), true),
        ]
      : [
          extension(id_ce_basicConstraints, new BasicConstraints(), true),
          extension(id_ce_keyUsage, new KeyUsage(KeyUsageFlags.digitalSignature), true),
          extension(id_ce_extKeyUsage, new ExtendedKeyUsage(USAGES[purpose])),
        ]),
    extension(id_ce_subjectKeyIdentifier, new SubjectKeyIdentifier(keyIdOf(publicKey))),
    authorityKeyIdentifier(issuerId),
    ...(alternative.length === 0 ? [] : [extension(id_ce_subjectAltName, new SubjectAlternativeName(alternative))]),
    ...(crlUrl === undefined ? [] : [extension(id_ce_cRLDistributionPoints, distributionPoints(crlUrl))]),
    ...(ocspUrl === undefined ? [] : [extension(id_pe_authorityInfoAccess, ocspAccess(ocspUrl))]),
  ]
}

export function extension(extnID: string, value: object, critical = false): Extension {
  return new Extension({ extnID, critical, extnValue: new OctetString(AsnConvert.serialize(value)) })
}

export function authorityKeyIdentifier(keyId: Buffer): Extension {
  const value = new AuthorityKeyIdentifier({ keyIdentifier: new KeyIdentifier(keyId) })
  return extension(id_ce_authorityKeyIdentifier, value)
}

const uriName = (uri: string) => new GeneralName({ uniformResourceIdentifier: uri })

function distributionPoints(uri: string): CRLDistributionPoints {
  const distributionPoint = new DistributionPointName({ fullName: [uriName(uri)] })
  return new CRLDistributionPoints([new DistributionPoint({ distributionPoint })])
}

function ocspAccess(uri: string): AuthorityInfoAccessSyntax {
  return new AuthorityInfoAccessSyntax([
    new AccessDescription({ accessMethod: id_ad_ocsp, accessLocation: uriName(uri) }),
  ])
}

function alternativeNames({ dnsNames = [], ipAddresses = [], uris = [] }: AlternativeNames): GeneralName[] {
  return [
    ...dnsNames.map((dNSName) => new GeneralName({ dNSName })),
    ...uris.map(uriName),
    ...ipAddresses.map((address) => new GeneralName({ iPAddress: canonicalAddress(address) })),
  ]
}

/** An IPv6 address in hexadecimal groups: the library does not support an IPv4 suffix. */
function canonicalAddress(address: string): string {
  return isIPv6(address) ? new URL(`http://[${address}]/`).hostname.slice(1, -1) : address
}

const NAME_TYPES = {
  country: '2.5.4.6',
  province: '2.5.4.8',
  locality: '2.5.4.7',
  street: '2.5.4.9',
  postalCode: '2.5.4.17',
  organization: '2.5.4.10',
  organizationalUnit: '2.5.4.11',
} as const satisfies Partial<Record<keyof SubjectName, string>>
const COMMON_NAME = '2.5.4.3'

function distinguishedName(subject: SubjectName): Name {
  const parts = Object.entries(NAME_TYPES).flatMap(([part, type]) =>
    (subject[part as keyof typeof NAME_TYPES] ?? []).map((text) => attribute(type, text)),
  )
  return new Name([...parts, attribute(COMMON_NAME, subject.commonName)])
}

/** A country is a PrintableString of two letters (RFC 5280 appendix A); all others are UTF-8. */
function attribute(type: string, text: string): RelativeDistinguishedName {
  const value = new AttributeValue(type === NAME_TYPES.country ? { printableString: text } : { utf8String: text })
  return new RelativeDistinguishedName([new AttributeTypeAndValue({ type, value })])
}

/** PEM that ends with a line break. */
export function pem(label: 'CERTIFICATE' | 'CERTIFICATE REQUEST' | 'X509 CRL', der: Buffer): string {
  return `${PemConverter.encode(der, label)}\n`
}
