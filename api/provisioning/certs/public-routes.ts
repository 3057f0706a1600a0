/** Public routes of certificates: the authority, the revocation list and OCSP (contract 9.3). */
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { BINARY, responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { formatTime } from '#core/time.ts'
import type { Authority } from './authority.ts'
import { AuthorityView, OcspStatusRequest, OcspState, RevocationListView } from './schema.ts'
import type { CertificateStatus } from './status.ts'
import { zipOf } from './zip.ts'

const tags = ['certificates']
const OCSP_REQUEST = 'application/ocsp-request'
const PEM_FILE = 'application/x-pem-file'
const OCSP_RESPONSE = 'application/ocsp-response'
const REVOCATION_LIST = 'application/pkix-crl'
const JSON_TYPE = 'application/json'
const MAX_OCSP_BYTES = 16_384

/** Whether the caller names JSON. A wildcard does not: the usual type of the answer is another. */
const wantsJson = ({ headers }: FastifyRequest) => headers.accept?.includes(JSON_TYPE) === true

export function publicCertificateRoutes(status: CertificateStatus, authority: Authority): RoutePlugin {
  return async (app) => {
    app.get(
      '/certs/view-ca',
      {
        config: { isPublic: true },
        schema: {
          tags,
          summary: 'View the certificate authority of clients',
          response: responses({ 200: AuthorityView }),
        },
      },
      () => ({
        certificate: authority.certificate,
        ca_chain: [authority.chain],
        serial_number: authority.serial,
        expiry_time: formatTime(authority.notAfter),
      }),
    )
    app.get(
      '/certs/download-ca',
      {
        config: { isPublic: true, mediaType: ['application/zip', PEM_FILE] },
        schema: {
          tags,
          summary: 'Download the certificate of the authority',
          description: 'A ZIP file with `ca.crt`, or the certificate with `format=pem`. Requires no token.',
          querystring: Type.Object({ format: Type.Enum(['zip', 'pem'], { default: 'zip' }) }),
          response: responses({ 200: BINARY }),
        },
      },
      async (request, reply) => {
        const isPem = request.query.format === 'pem'
        void reply.type(isPem ? PEM_FILE : 'application/zip')
        void reply.header('Content-Disposition', `attachment; filename="ca.${isPem ? 'crt' : 'zip'}"`)
        return await reply.send(isPem ? Buffer.from(authority.chain) : zipOf({ 'ca.crt': authority.chain }))
      },
    )
    app.get(
      '/certs/crl',
      {
        config: { isPublic: true, mediaType: [REVOCATION_LIST, PEM_FILE, JSON_TYPE] },
        schema: {
          tags,
          summary: 'Get the certificate revocation list',
          description:
            'DER by default, PEM with `format=pem` (RFC 5280 section 5). With `Accept: application/json`, or with this `Content-Type`, an object with the DER in base64.',
          querystring: Type.Object({ format: Type.Enum(['der', 'pem'], { default: 'der' }) }),
          response: responses({ 200: Type.Union([RevocationListView, BINARY]) }),
        },
      },
      async (request, reply) => {
        const list = await status.revocationList()
        if (request.query.format === 'pem') return await reply.type(PEM_FILE).send(Buffer.from(list.pem))
        const isJson = wantsJson(request) || request.headers['content-type']?.startsWith(JSON_TYPE) === true
        return isJson ? { crl: list.der.toString('base64') } : await reply.type(REVOCATION_LIST).send(list.der)
      },
    )
    app.get(
      '/certs/ocsp/*',
      {
        config: { isPublic: true, mediaType: OCSP_RESPONSE },
        schema: {
          tags,
          summary: 'Get the status of a certificate with an OCSP request in the path',
          description: 'The path contains the request in base64 (RFC 6960 appendix A.1).',
          params: Type.Object({ '*': Type.String({ maxLength: 1024 }) }),
          response: responses({ 200: BINARY }),
        },
      },
      async (request, reply) =>
        reply.type(OCSP_RESPONSE).send(await status.answerOcsp(Buffer.from(request.params['*'], 'base64'))),
    )
    await app.register((scope, _options, done) => {
      ocspRoute(scope as unknown as HttpApp, status)
      done()
    })
  }
}

/** Accepts DER, as OCSP clients send it, or JSON. The answer is in DER unless the caller asks for JSON. */
function ocspRoute(scope: HttpApp, status: CertificateStatus): void {
  scope.addContentTypeParser(OCSP_REQUEST, { parseAs: 'buffer' }, (_request, body, done) => done(null, body))
  scope.post(
    '/certs/ocsp',
    {
      config: {
        isPublic: true,
        isReading: true,
        mediaType: ['application/json', OCSP_RESPONSE],
        bodies: { [OCSP_REQUEST]: BINARY, 'application/json': OcspStatusRequest },
      },
      bodyLimit: MAX_OCSP_BYTES,
      schema: {
        tags,
        summary: 'Get the status of a certificate',
        description: `OCSP (RFC 6960) with \`${OCSP_REQUEST}\`, which returns \`${OCSP_RESPONSE}\`. A JSON request returns the same, or JSON with \`Accept: application/json\`.`,
        body: Type.Union([OcspStatusRequest, BINARY]),
        response: responses({ 200: Type.Union([OcspState, BINARY]) }),
      },
    },
    async (request, reply) => {
      const body: unknown = request.body
      if (Buffer.isBuffer(body)) return await reply.type(OCSP_RESPONSE).send(await status.answerOcsp(body))
      if (typeof body !== 'object' || body === null)
        throw new ServiceError('malformed', 'the body must be a JSON object')
      const question = body as OcspStatusRequest
      if (wantsJson(request)) return await status.state(question)
      return await reply.type(OCSP_RESPONSE).send(await status.ocspOf(question))
    },
  )
}
