/** Routes that issue, read and revoke certificates of clients (contract 9.3). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { refusedField } from '#core/errors/index.ts'
import { NoBody, responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import type { Page } from '#core/page.ts'
import { givenUnder, namesOf } from '#older/index.ts'
import type { Authority } from './authority.ts'
import {
  Certificate,
  CertificateOrder,
  CertificatePage,
  CertificateQuery,
  CertificatesQuery,
  NewCertificate,
  RenewedCertificate,
  Revocation,
  SigningOrder,
  Ttl,
  presentCertificate,
} from './schema.ts'
import type { CertificatesService, ShownCertificate } from './service.ts'
import { formatTime } from '#core/time.ts'

const tags = ['certificates']
const Serial = Type.String({ maxLength: 64, description: 'Hexadecimal serial number; colons are allowed' })

const DomainParams = Type.Object({ domain_id: Id })
const ClientParams = Type.Object({ domain_id: Id, client_id: Id })
const SerialParams = Type.Object({ domain_id: Id, serial: Serial })
const EitherParams = Type.Object({
  domain_id: Id,
  serial: Type.String({
    maxLength: 64,
    description: 'Serial number, or the id of a client for all of its certificates',
  }),
})

type Routes = {
  certificates: CertificatesService
  present: (shown: ShownCertificate) => ReturnType<typeof presentCertificate>
  presentPage: (page: Page<ShownCertificate['certificate']>) => Static<typeof CertificatePage>
}

export function certificateRoutes(certificates: CertificatesService, authority: Authority): RoutePlugin {
  const routes: Routes = {
    certificates,
    present: ({ certificate, key }) => presentCertificate(certificate, authority, key),
    presentPage: ({ items, ...page }) => {
      const certs = items.map((certificate) => presentCertificate(certificate, authority))
      return { ...page, certs, certificates: certs }
    },
  }
  return (app) => {
    issueRoutes(app, routes)
    readRoutes(app, routes)
    revokeRoutes(app, routes)
  }
}

/** The names of the client of a request whose path does not name it. */
const CLIENT_NAMES = namesOf('api/provisioning/certs/routes.ts', 'client_id')

function issueRoutes(app: HttpApp, { certificates, present }: Routes): void {
  app.post(
    '/:domain_id/certs',
    {
      config: { action: 'client_update' },
      schema: {
        tags,
        summary: 'Issue a certificate for a client',
        description: 'Generates a key pair (P-256). Only this response contains the private key, which is not stored.',
        params: DomainParams,
        body: NewCertificate,
        response: responses({ 201: Certificate }, 'not_found'),
      },
    },
    async (request, reply) => {
      const clientId = givenUnder(request.body, CLIENT_NAMES)
      if (clientId === undefined || clientId === '') throw refusedField('/client_id', 'is required')
      void reply.code(201)
      return present(await certificates.issue(request.principal, request.params.domain_id, clientId, request.body))
    },
  )
  app.post(
    '/:domain_id/certs/issue/:client_id',
    {
      config: { action: 'update' },
      schema: {
        tags,
        summary: 'Issue a certificate for the client of the path',
        description:
          'Also accepts names for the certificate. The certificate always authenticates the client of the path, independent of its names.',
        params: ClientParams,
        body: CertificateOrder,
        response: responses({ 201: Certificate }, 'not_found'),
      },
    },
    async (request, reply) => {
      const { domain_id: domainId, client_id: clientId } = request.params
      void reply.code(201)
      return present(await certificates.issue(request.principal, domainId, clientId, request.body))
    },
  )
  app.post(
    '/:domain_id/certs/csrs/:client_id',
    {
      config: { action: 'update' },
      schema: {
        tags,
        summary: 'Sign a certificate signing request',
        description:
          'Accepts a signing request (PKCS #10) with a valid signature, so that the private key stays on the device. The names in the request are ignored.',
        params: ClientParams,
        querystring: Type.Object({ ttl: Type.Optional(Ttl) }),
        body: SigningOrder,
        response: responses({ 200: Certificate }, 'not_found'),
      },
    },
    async (request) => {
      const { domain_id: domainId, client_id: clientId } = request.params
      const { csr, ttl = request.query.ttl } = request.body
      const order = { csr: pemOf(csr), ...(ttl === undefined ? {} : { ttl }) }
      return present(await certificates.sign(request.principal, domainId, clientId, order))
    },
  )
  app.patch(
    '/:domain_id/certs/:serial/renew',
    {
      config: { action: 'client_update' },
      schema: {
        tags,
        summary: 'Renew a certificate for the same key',
        description:
          'Returns a new certificate with a new serial number and the same lifetime. The old certificate remains valid until it expires.',
        params: SerialParams,
        response: responses({ 200: RenewedCertificate }, 'not_found', 'invalid_state'),
      },
    },
    async (request) => {
      const { domain_id: domainId, serial } = request.params
      return { renewed: true, certificate: present(await certificates.renew(request.principal, domainId, serial)) }
    },
  )
}

function readRoutes(app: HttpApp, { certificates, present, presentPage }: Routes): void {
  app.get(
    '/:domain_id/certs',
    {
      config: { action: 'client_read' },
      schema: {
        tags,
        summary: 'List the certificates of the clients that the caller may read',
        params: DomainParams,
        querystring: CertificatesQuery,
        response: responses({ 200: CertificatePage }),
      },
    },
    async (request) =>
      presentPage(await certificates.list(request.principal, request.params.domain_id, undefined, request.query)),
  )
  app.get(
    '/:domain_id/serials/:client_id',
    {
      config: { action: 'read' },
      schema: {
        tags,
        summary: 'List the certificates of a client, newest first',
        params: ClientParams,
        querystring: CertificateQuery,
        response: responses({ 200: CertificatePage }, 'not_found'),
      },
    },
    async (request) => {
      const { domain_id: domainId, client_id: clientId } = request.params
      return presentPage(await certificates.list(request.principal, domainId, clientId, request.query))
    },
  )
  app.get(
    '/:domain_id/certs/:serial',
    {
      config: { action: 'client_read' },
      schema: {
        tags,
        summary: 'View a certificate',
        params: SerialParams,
        response: responses({ 200: Certificate }, 'not_found'),
      },
    },
    async (request) =>
      present(await certificates.get(request.principal, request.params.domain_id, request.params.serial)),
  )
}

function revokeRoutes(app: HttpApp, { certificates }: Routes): void {
  app.delete(
    '/:domain_id/certs/:serial',
    {
      config: { action: 'client_update' },
      schema: {
        tags,
        summary: 'Revoke a certificate, or all certificates of a client',
        description: 'The certificate is rejected within a second, also in open sessions.',
        params: EitherParams,
        response: responses({ 200: Revocation }, 'not_found'),
      },
    },
    async (request) => {
      const { domain_id: domainId, serial } = request.params
      const revokedAt = await certificates.revoke(request.principal, domainId, serial)
      return { revocation_time: formatTime(revokedAt) }
    },
  )
  app.post(
    '/:domain_id/certs/:serial/revoke',
    {
      config: { action: 'client_update' },
      schema: {
        tags,
        summary: 'Revoke a certificate',
        params: SerialParams,
        response: responses({ 200: Revocation }, 'not_found'),
      },
    },
    async (request) => {
      const { domain_id: domainId, serial } = request.params
      return { revocation_time: formatTime(await certificates.revoke(request.principal, domainId, serial)) }
    },
  )
  app.patch(
    '/:domain_id/certs/:serial/revoke',
    {
      config: { action: 'client_update' },
      schema: {
        tags,
        summary: 'Revoke a certificate',
        params: SerialParams,
        response: responses({ 204: NoBody }, 'not_found'),
      },
    },
    async (request, reply) => {
      await certificates.revoke(request.principal, request.params.domain_id, request.params.serial)
      return await reply.code(204).send()
    },
  )
  app.post(
    '/:domain_id/certs/:client_id/revoke-all',
    {
      config: { action: 'update' },
      schema: {
        tags,
        summary: 'Revoke all certificates of a client',
        description: 'A client without certificates is not an error; the time is then that of the request.',
        params: ClientParams,
        response: responses({ 200: Revocation }, 'not_found'),
      },
    },
    async (request) => {
      const { domain_id: domainId, client_id: clientId } = request.params
      return { revocation_time: formatTime(await certificates.revokeAll(request.principal, domainId, clientId)) }
    },
  )
  app.delete(
    '/:domain_id/certs/:client_id/delete',
    {
      config: { action: 'update' },
      schema: {
        tags,
        summary: 'Revoke all certificates of a client',
        params: ClientParams,
        response: responses({ 204: NoBody }, 'not_found'),
      },
    },
    async (request, reply) => {
      await certificates.revokeAll(request.principal, request.params.domain_id, request.params.client_id)
      return await reply.code(204).send()
    },
  )
}

/** Go clients send the PEM as bytes, which JSON has in base64. */
function pemOf(csr: string): string {
  return csr.includes('-----BEGIN') ? csr : Buffer.from(csr, 'base64').toString('latin1')
}
