/** Wire shapes of certificates, with current and legacy names (contract 9.3). */
import { isIP } from 'node:net'
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { SECRET, documented } from '#http/index.ts'
import { Id, Timestamp } from '#api/identity/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { DURATION_PATTERN, formatTime } from '#core/time.ts'
import type { Authority } from './authority.ts'
import type { CertificateRecord } from './repository.ts'

const MAX_NAMES = 10
/** RFC 5280 appendix A: ub-common-name and similar limits. */
const NamePart = Type.String({ minLength: 1, maxLength: 64 })
const NameParts = Type.Optional(Type.Array(NamePart, { maxItems: MAX_NAMES }))

export const Ttl = Type.String({
  maxLength: 32,
  description: 'Lifetime as a Go duration such as 8760h, which is the default',
  ...documented({ pattern: DURATION_PATTERN }),
})

export const CertificateOptions = Type.Object(
  {
    common_name: Type.Optional(
      Type.String({
        maxLength: 64,
        description: 'Common name; defaults to the id of the client and must not be another UUID',
      }),
    ),
    organization: NameParts,
    organizational_unit: NameParts,
    country: Type.Optional(Type.Array(Type.String({ pattern: '^[A-Z]{2}$' }), { maxItems: 1 })),
    province: NameParts,
    locality: NameParts,
    street_address: NameParts,
    postal_code: NameParts,
    dns_names: Type.Optional(
      Type.Array(Type.String({ pattern: '^[A-Za-z0-9*]([A-Za-z0-9.*-]{0,251}[A-Za-z0-9])?$' }), {
        maxItems: MAX_NAMES,
      }),
    ),
  },
  documented({}, 'CertificateOptions'),
)

const Addresses = Type.Array(
  Type.Refine(
    Type.String({ maxLength: 45 }),
    (text) => isIP(text) !== 0,
    () => 'must be an IP address',
  ),
  {
    maxItems: MAX_NAMES,
  },
)

const issuing = {
  ttl: Type.Optional(Ttl),
  options: Type.Optional(CertificateOptions),
  ip_addresses: Type.Optional(Addresses),
}

/** Request for the client of the path. */
export const CertificateOrder = Type.Object(issuing, { $id: 'CertificateOrder' })
export type CertificateOrder = Static<typeof CertificateOrder>

/** Request for the client of the body, with its current or legacy name. */
export const NewCertificate = Type.Object(
  { client_id: Type.Optional(Id), thing_id: Type.Optional(Id), ...issuing },
  { $id: 'CertificateCreate' },
)

export const SigningOrder = Type.Object(
  {
    csr: Type.String({
      minLength: 1,
      maxLength: 16_384,
      description: 'Certificate signing request (PKCS #10) in PEM, or the PEM in base64',
    }),
    ttl: Type.Optional(Ttl),
  },
  { $id: 'SigningOrder' },
)
export type SigningOrder = Static<typeof SigningOrder>

export const Certificate = Type.Object(
  {
    client_id: Id,
    entity_id: Id,
    serial_number: Type.String({ description: 'Hexadecimal serial number' }),
    certificate: Type.String({ description: 'Certificate in PEM' }),
    key: Type.String({
      ...SECRET,
      description: 'Private key in PEM, only in the response that created it; otherwise empty',
    }),
    ca_chain: Type.Array(Type.String()),
    issuing_ca: Type.String(),
    expiry_time: Timestamp,
    revoked: Type.Boolean(),
    revocation_time: Type.Optional(Timestamp),
  },
  { $id: 'Certificate', description: 'Certificate of a client' },
)
export type Certificate = Static<typeof Certificate>

/** The answer to a renewal. */
export const RenewedCertificate = Type.Object({
  renewed: Type.Boolean(),
  certificate: Certificate,
})

export const CertificateQuery = Type.Object({
  ...pageQuery(),
  revoked: Type.Enum(['true', 'false', 'all'], { default: 'all' }),
})

/** The query of the list of a domain. */
export const CertificatesQuery = Type.Object({
  ...CertificateQuery.properties,
  entity_id: Type.Optional(Type.String({ maxLength: 36, description: 'Only certificates of this client' })),
})
export type CertificatesQuery = Static<typeof CertificatesQuery>
export type CertificateQuery = Static<typeof CertificateQuery>

export const CertificatePage = Type.Object({
  ...pageFields,
  certs: Type.Array(Certificate),
  certificates: Type.Array(Certificate, { description: 'Alias of `certs`' }),
})

export const Revocation = Type.Object({ revocation_time: Timestamp })

export const OcspStatusRequest = Type.Object({
  serial_number: Type.Optional(Type.String({ maxLength: 64 })),
  certificate: Type.Optional(Type.String({ maxLength: 16_384, description: 'PEM' })),
})
export type OcspStatusRequest = Static<typeof OcspStatusRequest>

export const OcspState = Type.Object({
  serial_number: Type.String(),
  status: Type.Enum(['good', 'revoked', 'unknown']),
  revocation_time: Type.Optional(Timestamp),
})
export type OcspState = Static<typeof OcspState>

export const RevocationListView = Type.Object({
  crl: Type.String({ description: 'The revocation list: DER in base64' }),
})

export const AuthorityView = Type.Object({
  certificate: Type.String({ description: 'PEM' }),
  ca_chain: Type.Array(Type.String()),
  serial_number: Type.String(),
  expiry_time: Timestamp,
})

/** `key` is empty except in the response that created it. */
export function presentCertificate(record: CertificateRecord, authority: Authority, key = ''): Certificate {
  return {
    client_id: record.clientId,
    entity_id: record.clientId,
    serial_number: record.serial,
    certificate: record.pem,
    key,
    ca_chain: [authority.chain],
    issuing_ca: authority.certificate,
    expiry_time: formatTime(record.notAfter),
    revoked: record.revokedAt !== null,
    ...(record.revokedAt === null ? {} : { revocation_time: formatTime(record.revokedAt) }),
  }
}
