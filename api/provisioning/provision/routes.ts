/** Routes of provisioning, with the domain in the path and without (decision 20). */
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { Id, bearerOf, originOf } from '#api/identity/index.ts'
import type { Logins } from '#api/identity/index.ts'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import type { ServiceLogin } from './credentials.ts'
import { Mapping, MappingContent, MappingOrder } from './schema.ts'
import type { ProvisionService } from './service.ts'
import type { AnonymousThrottle } from './throttle.ts'

const tags = ['provision']
const KINDS = ['conflict', 'unprocessable', 'rate_limited'] as const

export type ProvisionRouteDeps = {
  provision: ProvisionService
  tokens: Logins
  login: ServiceLogin
  throttle: AnonymousThrottle
}

export function provisionRoutes({ provision, tokens, login, throttle }: ProvisionRouteDeps): RoutePlugin {
  const isAnonymous = (request: FastifyRequest) => request.headers.authorization === undefined

  /** The Authorization header has precedence over the credentials of the settings. */
  async function authenticate(request: FastifyRequest): Promise<void> {
    const origin = originOf(request)
    if (!isAnonymous(request)) {
      request.principal = await tokens.authenticate(bearerOf(request), origin)
      return
    }
    if (login.isOn) await throttle.admit(origin.address)
    request.principal = await login.authenticate(origin)
  }

  const about =
    'Creates one client connected with the channels `control` and `data`, or the layout of SKEIN_PROVISION_LAYOUT, completely or not at all.'
  return (app) => {
    for (const { url, status, params } of [
      { url: '/:domain_id/mapping', status: 201, params: Type.Object({ domain_id: Id }) },
      { url: '/mapping', status: 200, params: Type.Object({}) },
    ] as const) {
      app.post(
        url,
        {
          config: { ownCredentials: ['bearer', 'none'], action: 'client_create', dryRun: true },
          schema: {
            tags,
            summary: 'Create all entities of a device',
            description: `${about} Without Authorization it uses the credentials of the settings, if any.`,
            params,
            body: MappingOrder,
            response: responses({ [status]: Mapping }, ...KINDS),
          },
          onRequest: authenticate,
        },
        async (request, reply) => {
          const { domain_id: domainId } = request.params as { domain_id?: string }
          void reply.code(status)
          return await provision.provision(request.principal, domainId, request.body, isAnonymous(request))
        },
      )
      app.get(
        url,
        {
          config: { action: 'client_create' },
          schema: {
            tags,
            summary: 'Get the content of bootstrap configurations',
            description: 'Requires `client_create` in the domain of the path, or in any domain.',
            params,
            response: responses({ 200: MappingContent }, 'unprocessable'),
          },
        },
        async (request) => {
          const { domain_id: domainId } = request.params as { domain_id?: string }
          return await provision.contentFor(request.principal, domainId)
        },
      )
    }
  }
}
