/** An authority that exists, by its certificate and key. */
import type { X509Certificate } from 'node:crypto'
import { AsnConvert } from '@peculiar/asn1-schema'
import { Certificate } from '@peculiar/asn1-x509'
import type { Issuer } from './certificate.ts'
import type { SigningKey } from './signing-key.ts'
import { keyIdOf } from './signing-key.ts'

/** What certificates of this authority name as their issuer. Throws where the two do not belong together. */
export function issuerOf(certificate: X509Certificate, key: SigningKey): Issuer {
  if (!certificate.ca) throw new Error('the certificate is not one of an authority')
  if (!certificate.checkPrivateKey(key.key)) throw new Error('they do not fit together')
  const { subject } = AsnConvert.parse(certificate.raw, Certificate).tbsCertificate
  const name = Buffer.from(AsnConvert.serialize(subject))
  // Whoever verifies compares the bytes.
  if (!certificate.raw.includes(name)) throw new Error('the subject of the certificate is not in DER')
  return { subject, name, keyId: keyIdOf(key.publicKey), key }
}
