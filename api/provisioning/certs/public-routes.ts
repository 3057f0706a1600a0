/** What anybody may ask about certificates: the authority, the list of revoked ones, and the state of one (contract 9.3). */
import { Type } from 'typebox'
import { BINARY, responses } from '#core/http/index.ts'
import type { HttpApp, RoutePlugin } from '#core/http/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { formatTime } from '#core/time.ts'
import type { Authority } from './authority.ts'
import { AuthorityView, OcspQuestion, OcspState } from './schema.ts'
import type { CertificateStatus } from './status.ts'
import { zipOf } from './zip.ts'

const tags = ['certificates']
const OCSP_REQUEST = 'application/ocsp-request'
const PEM_FILE = 'application/x-pem-file'
const OCSP_RESPONSE = 'application/ocsp-response'
const MAX_OCSP_BYTES = 16_384

export function publicCertificateRoutes(status: CertificateStatus, authority: Authority): RoutePlugin {
  return async (app) => {
    app.get(
      '/certs/view-ca',
      {
        config: { isPublic: true },
        schema: {
          tags,
          summary: 'View the authority that signs certificates of clients',
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
          summary: 'Download the authority',
          description:
            'A ZIP file with `ca.crt`, or with `format=pem` the certificate itself. It is no secret; a `token` is not needed.',
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
        config: { isPublic: true, mediaType: ['application/pkix-crl', PEM_FILE] },
        schema: {
          tags,
          summary: 'The list of revoked certificates',
          description: 'DER; with `format=pem` PEM (RFC 5280 section 5).',
          querystring: Type.Object({ format: Type.Enum(['der', 'pem'], { default: 'der' }) }),
          response: responses({ 200: BINARY }),
        },
      },
      async (request, reply) => {
        const list = await status.revocationList()
        return request.query.format === 'pem'
          ? reply.type(PEM_FILE).send(Buffer.from(list.pem))
          : reply.type('application/pkix-crl').send(list.der)
      },
    )
    app.get(
      '/certs/ocsp/*',
      {
        config: { isPublic: true, mediaType: OCSP_RESPONSE },
        schema: {
          tags,
          summary: 'The state of a certificate, asked in the path',
          description: 'The request in base64 as RFC 6960 appendix A.1 says.',
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

/** DER as every OCSP client sends it, or JSON. */
function ocspRoute(scope: HttpApp, status: CertificateStatus): void {
  scope.addContentTypeParser(OCSP_REQUEST, { parseAs: 'buffer' }, (_request, body, done) => done(null, body))
  scope.post(
    '/certs/ocsp',
    {
      config: {
        isPublic: true,
        mediaType: ['application/json', OCSP_RESPONSE],
        bodies: { [OCSP_REQUEST]: BINARY, 'application/json': OcspQuestion },
      },
      bodyLimit: MAX_OCSP_BYTES,
      schema: {
        tags,
        summary: 'The state of a certificate',
        description: `OCSP (RFC 6960) with \`${OCSP_REQUEST}\`, answered as \`${OCSP_RESPONSE}\`; JSON is answered as JSON.`,
        body: Type.Union([OcspQuestion, BINARY]),
        response: responses({ 200: OcspState }),
      },
    },
    async (request, reply) => {
      const body: unknown = request.body
      if (Buffer.isBuffer(body)) return await reply.type(OCSP_RESPONSE).send((await status.answerOcsp(body)) as never)
      if (typeof body !== 'object' || body === null) throw new ServiceError('malformed', 'the body must be an object')
      return await status.state(body as OcspQuestion)
    },
  )
}
