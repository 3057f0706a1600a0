/** Certificates of clients: issue, read, revoke (contract 9.3). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { refusedField } from '#core/errors/index.ts'
import { NoBody, responses } from '#core/http/index.ts'
import type { HttpApp, RoutePlugin } from '#core/http/index.ts'
import type { Page } from '#core/page.ts'
import type { Authority } from './authority.ts'
import {
  Certificate,
  CertificateOrder,
  CertificatePage,
  CertificateQuery,
  NewCertificate,
  Revocation,
  SigningOrder,
  presentCertificate,
} from './schema.ts'
import type { CertificatesService, ShownCertificate } from './service.ts'
import { formatTime } from '#core/time.ts'

const tags = ['certificates']
const KINDS = ['unauthenticated', 'forbidden', 'not_found'] as const
const Serial = Type.String({ maxLength: 64, description: 'Serial number, hexadecimal; colons are allowed' })

const DomainParams = Type.Object({ domain_id: Id })
const ClientParams = Type.Object({ domain_id: Id, client_id: Id })
const SerialParams = Type.Object({ domain_id: Id, serial: Serial })
const EitherParams = Type.Object({
  domain_id: Id,
  serial: Type.String({ maxLength: 64, description: 'Serial number, or the id of a client: all of its certificates' }),
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
    presentPage: ({ total, offset, limit, items }) => {
      const certs = items.map((certificate) => presentCertificate(certificate, authority))
      return { total, offset, limit, certs, certificates: certs }
    },
  }
  return (app) => {
    issueRoutes(app, routes)
    readRoutes(app, routes)
    revokeRoutes(app, routes)
  }
}

function issueRoutes(app: HttpApp, { certificates, present }: Routes): void {
  app.post(
    '/:domain_id/certs',
    {
      config: { action: 'client_update' },
      schema: {
        tags,
        summary: 'Issue a certificate for a client',
        description:
          'Makes a key pair of its own (P-256). The private key is in this answer and never again: it is not stored.',
        params: DomainParams,
        body: NewCertificate,
        response: responses({ 201: Certificate }, ...KINDS),
      },
    },
    async (request, reply) => {
      const clientId = request.body.client_id ?? request.body.thing_id
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
          'As the call above, with names of your own in the certificate. Who it stands for is the client of the path, whatever the names say.',
        params: ClientParams,
        body: CertificateOrder,
        response: responses({ 201: Certificate }, ...KINDS),
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
        summary: 'Sign the key of a client that keeps it',
        description:
          'Takes a signing request (PKCS #10). Its signature must be good; the names it asks for are not taken over.',
        params: ClientParams,
        body: SigningOrder,
        response: responses({ 201: Certificate }, ...KINDS),
      },
    },
    async (request, reply) => {
      const { domain_id: domainId, client_id: clientId } = request.params
      void reply.code(201)
      return present(await certificates.sign(request.principal, domainId, clientId, request.body))
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
          'Answers a new certificate with a serial number of its own, good for as long again; the old one stays good until it ends.',
        params: SerialParams,
        response: responses({ 200: Certificate }, ...KINDS, 'invalid_state'),
      },
    },
    async (request) =>
      present(await certificates.renew(request.principal, request.params.domain_id, request.params.serial)),
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
        querystring: CertificateQuery,
        response: responses({ 200: CertificatePage }, 'unauthenticated', 'forbidden'),
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
        summary: 'List the certificates of a client, the newest first',
        params: ClientParams,
        querystring: CertificateQuery,
        response: responses({ 200: CertificatePage }, ...KINDS),
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
        response: responses({ 200: Certificate }, ...KINDS),
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
        summary: 'Revoke a certificate, or all of a client',
        description: 'It is refused within a second, in sessions that are open too.',
        params: EitherParams,
        response: responses({ 200: Revocation }, ...KINDS),
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
        response: responses({ 200: Revocation }, ...KINDS),
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
        response: responses({ 204: NoBody }, ...KINDS),
      },
    },
    async (request, reply) => {
      await certificates.revoke(request.principal, request.params.domain_id, request.params.serial)
      return await reply.code(204).send()
    },
  )
  const revokeAll = {
    config: { action: 'update' },
    schema: {
      tags,
      summary: 'Revoke all certificates of a client',
      params: ClientParams,
      response: responses({ 204: NoBody }, ...KINDS),
    },
  } as const
  for (const [method, url] of [
    ['POST', '/:domain_id/certs/:client_id/revoke-all'],
    ['DELETE', '/:domain_id/certs/:client_id/delete'],
  ] as const) {
    app.route({
      method,
      url,
      ...revokeAll,
      handler: async (request, reply) => {
        await certificates.revokeAll(request.principal, request.params.domain_id, request.params.client_id)
        return await reply.code(204).send()
      },
    })
  }
}
