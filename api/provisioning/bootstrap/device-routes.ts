/** Routes for devices, which authenticate with their external id and key (specification section 5, contract 9.1). */
import type { IncomingHttpHeaders } from 'node:http'
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { originOf } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { deviceKeyOf } from '#core/authorization.ts'
import { BINARY, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { DeviceConfig, presentForDevice } from './schema.ts'
import type { BootstrapCipher } from './secure.ts'
import type { BootstrapService } from './service.ts'

const tags = ['bootstrap']
const KINDS = ['not_found', 'unprocessable', 'rate_limited'] as const
const SECURE_TYPE = 'application/octet-stream+json'
const ExternalId = Type.String({ minLength: 1, maxLength: 1024 })

/** Returns the external key, or its cipher text. Throws `unauthenticated`. */
function keyOf({ authorization }: IncomingHttpHeaders): string {
  const key = deviceKeyOf(authorization)
  if (key === undefined)
    throw new ServiceError('unauthenticated', 'failed to perform authentication: missing or invalid external key')
  return key
}

/** Clients were called things in Mainflux. Devices in the field still use that path. */
const COLLECTIONS = ['/clients', '/things'] as const

export function deviceBootstrapRoutes(
  bootstrap: BootstrapService,
  cipher: BootstrapCipher | undefined,
  onSecureOff: () => void,
): RoutePlugin {
  const respond = async (request: FastifyRequest, externalId: string, externalKey: string | undefined) => {
    return presentForDevice(await bootstrap.retrieve(externalId, externalKey, originOf(request).address))
  }
  return (app) => {
    for (const collection of COLLECTIONS) {
      app.get(
        `${collection}/bootstrap/:external_id`,
        {
          config: { ownCredentials: ['external_key'] },
          schema: {
            tags,
            summary: 'Get the configuration of a device',
            description:
              'Authorization: `Client <external key>`. Available for active and inactive configurations. With a profile `content` is rendered for this device; returns 422 when rendering fails.',
            params: Type.Object({ external_id: ExternalId }),
            response: responses({ 200: DeviceConfig }, ...KINDS),
          },
        },
        async (request) => await respond(request as FastifyRequest, request.params.external_id, keyOf(request.headers)),
      )
      app.get(
        `${collection}/bootstrap/secure/:external_id`,
        {
          config: { ownCredentials: ['external_key'], mediaType: SECURE_TYPE, isSecret: true },
          schema: {
            tags,
            summary: 'Get the encrypted configuration of a device',
            description:
              'Authorization: `Client <hex of IV and encrypted external key>`. Returns the IV and the encrypted JSON (AES-256-CFB). Returns 404 when SKEIN_BOOTSTRAP_ENCRYPT_KEY is not set.',
            params: Type.Object({ external_id: ExternalId }),
            response: responses({ 200: BINARY }, ...KINDS),
          },
        },
        async (request, reply) => {
          const sent = keyOf(request.headers)
          if (cipher === undefined) {
            onSecureOff()
            throw new ServiceError('not_found', 'entity not found')
          }
          const answer = await respond(request as FastifyRequest, request.params.external_id, cipher.decrypt(sent))
          return await reply.type(SECURE_TYPE).send(cipher.encrypt(JSON.stringify(answer)))
        },
      )
      app.get(
        `${collection}/bootstrap`,
        {
          config: { ownCredentials: ['external_key'] },
          schema: {
            tags,
            summary: 'Error for a path without an external id',
            response: responses({ 200: DeviceConfig }, ...KINDS),
          },
        },
        () => {
          throw new ServiceError('malformed', `the external id is required: use ${collection}/bootstrap/<external_id>`)
        },
      )
    }
  }
}
