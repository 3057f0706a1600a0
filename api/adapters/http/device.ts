/**
 * Routes of a device about itself, `/c/{domain}/…`: its own secret or certificate says which one it is. The same 401 answers wrong
 * credentials, an unknown domain and a device of another domain.
 */
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import type { IdentifiedDevice } from '#api/devices/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Credential, HttpApp } from '#http/index.ts'
import { readCredentials } from '../credentials/credentials.ts'
import type { ChannelAccessDeps } from './access.ts'
import { credentialsOf } from './access.ts'

export const DEVICE_CREDENTIALS: readonly Credential[] = ['client', 'basic']

/** The parameter of these routes. */
export const DeviceDomain = Type.Object({ domain_id: Type.String({ description: 'Id or route of the domain' }) })

declare module 'fastify' {
  interface FastifyRequest {
    /** Set by the hook of device routes. */
    device: IdentifiedDevice | undefined
  }
}

/** Adds the check of the caller to all routes that are registered on this scope later. */
export function identifyDevices(scope: HttpApp, deps: ChannelAccessDeps): void {
  scope.decorateRequest('device', undefined)
  scope.addHook('onRequest', async (request) => {
    const { domain_id: domain } = request.params as { domain_id: string }
    const credentials = await readCredentials(credentialsOf(request), deps)
    // A user is refused after everything else of the request is validated (decision 45).
    if (credentials.kind === 'user') return
    request.device = deps.gate.identifyInNow(credentials, domain) ?? (await deps.gate.identifyIn(credentials, domain))
  })
}

/** The device of the request. Throws `forbidden` for a user. Call it after everything else of the request is validated. */
export function deviceOf(request: FastifyRequest): IdentifiedDevice {
  if (request.device === undefined)
    throw new ServiceError(
      'forbidden',
      'failed to perform authorization: requires the secret or certificate of a client',
    )
  return request.device
}
