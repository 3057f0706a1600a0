/** Creates the certificate of a client, with or without a key pair. The service handles storage and access. */
import { createHash } from 'node:crypto'
import { ServiceError } from '#core/errors/index.ts'
import { formatDurationMs, parseDurationMs } from '#core/time.ts'
import { SigningKey, createCertificate, newSerial, pem } from '#x509/index.ts'
import { CLOCK_SKEW_MS } from './authority.ts'
import type { Authority } from './authority.ts'
import type { CertificateOrder } from './schema.ts'

/** A year (contract 9.3: `8760h`). */
const DEFAULT_TTL = '8760h'
const MIN_TTL_MS = 1000

export type CreatedCertificate = {
  serial: string
  fingerprint: Buffer
  pem: string
  /** PEM of the private key. Undefined when the device keeps it. */
  key: string | undefined
  notBefore: Date
  notAfter: Date
}

/** Decoration of UUIDs that readers of certificates may ignore: `urn:uuid:`, braces, dashes, blanks and upper case. */
const AROUND_UUID = /^urn:uuid:|[{}\s-]/gi
const UUID_DIGITS = /^[0-9a-f]{32}$/

/**
 * Throws `malformed` for a name that is a UUID other than the id of the client: a reader of certificates would take it
 * for another client, of any tenant. It is not checked whether that client exists.
 */
function requireNoOtherClientId(clientId: string, field: string, name: string): void {
  const digits = name.normalize('NFKC').replaceAll(AROUND_UUID, '').toLowerCase()
  if (!UUID_DIGITS.test(digits) || digits === clientId.replaceAll('-', '')) return
  const message = 'must not be a UUID other than the id of the client'
  throw new ServiceError('malformed', `${field} ${message}`, { details: [{ path: `/options/${field}`, message }] })
}

/** URLs of OCSP and the revocation list in a certificate. */
export type StatusUrls = { ocspUrl: string; crlUrl: string }

/**
 * Throws `malformed` for an invalid duration, for less than a second and for one that exceeds the validity of the
 * authority.
 */
export function lifetimeOf(
  ttl: string | undefined,
  authority: Authority,
  now: Date,
): { notBefore: Date; notAfter: Date } {
  const ttlMs = parseDurationMs(ttl === undefined || ttl === '' ? DEFAULT_TTL : ttl, '/ttl')
  const longestMs = authority.notAfter.getTime() - now.getTime()
  if (ttlMs < MIN_TTL_MS || ttlMs > longestMs) {
    const message = `must be between 1s and ${formatDurationMs(longestMs)}, the remaining validity of the authority`
    throw new ServiceError('malformed', `ttl ${message}`, { details: [{ path: '/ttl', message }] })
  }
  return { notBefore: new Date(now.getTime() - CLOCK_SKEW_MS), notAfter: new Date(now.getTime() + ttlMs) }
}

/** Throws `malformed` for a name that could be taken for another client. */
export async function issueClientCertificate(
  authority: Authority,
  urls: StatusUrls,
  options: {
    clientId: string
    lifetime: { notBefore: Date; notAfter: Date }
    order?: CertificateOrder
    /** DER of the public key of the device. Absent to generate a key pair. */
    publicKey?: Buffer
  },
): Promise<CreatedCertificate> {
  const { clientId, lifetime, order = {}, publicKey } = options
  const { common_name: commonName = '', dns_names: dnsNames = [], ...subject } = order.options ?? {}
  requireNoOtherClientId(clientId, 'common_name', commonName)
  for (const name of dnsNames) requireNoOtherClientId(clientId, 'dns_names', name)
  const made = publicKey === undefined ? SigningKey.generate() : undefined
  const serial = newSerial()
  const der = await createCertificate(
    {
      purpose: 'client',
      serial,
      subject: {
        commonName: commonName === '' ? clientId : commonName,
        organization: subject.organization,
        organizationalUnit: subject.organizational_unit,
        country: subject.country,
        province: subject.province,
        locality: subject.locality,
        street: subject.street_address,
        postalCode: subject.postal_code,
      },
      names: { uris: [`urn:uuid:${clientId}`], dnsNames, ipAddresses: order.ip_addresses ?? [] },
      publicKey: publicKey ?? (made as SigningKey).publicKey,
      ...lifetime,
      ...urls,
    },
    authority,
  )
  return {
    serial: serial.toString('hex'),
    fingerprint: createHash('sha256').update(der).digest(),
    pem: pem('CERTIFICATE', der),
    key: made?.toPem(),
    ...lifetime,
  }
}
