/** An existing authority, with its certificate and key. */
import type { X509Certificate } from 'node:crypto'
import { AsnConvert } from '@peculiar/asn1-schema'
import { Certificate } from '@peculiar/asn1-x509'
import type { Issuer } from './certificate.ts'
import type { SigningKey } from './signing-key.ts'
import { keyIdOf } from './signing-key.ts'

/** The issuer of certificates of this authority. Throws when certificate and key do not match. */
export function issuerOf(certificate: X509Certificate, key: SigningKey): Issuer {
  if (!certificate.ca) throw new Error('the certificate is not a CA certificate')
  if (!certificate.checkPrivateKey(key.key)) throw new Error('the certificate and the key do not match')
  const { subject } = AsnConvert.parse(certificate.raw, Certificate).tbsCertificate
  const name = Buffer.from(AsnConvert.serialize(subject))
  // Verifiers compare the bytes.
  if (!certificate.raw.includes(name)) throw new Error('the subject of the certificate is not in DER')
  return { subject, name, keyId: keyIdOf(key.publicKey), certificateDer: certificate.raw, key }
}
