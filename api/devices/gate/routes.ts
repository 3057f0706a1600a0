/** The route that returns the id of a client for its secret (contract 4.3). */
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { deviceKeyOf } from '#core/authorization.ts'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import type { MessageGate } from './gate.ts'

const Identified = Type.Object({ id: Id, domain_id: Id }, { $id: 'Identified', description: 'Client of the secret' })

/** Returns the secret of `Authorization: Client <secret>`. Throws `unauthenticated`. */
function secretOf(request: FastifyRequest): string {
  const secret = deviceKeyOf(request.headers.authorization)
  if (secret === undefined)
    throw new ServiceError('unauthenticated', 'failed to perform authentication: missing or invalid credentials')
  return secret
}

export function identifyRoutes(gate: MessageGate): RoutePlugin {
  return (app) => {
    for (const { url, params, description } of [
      {
        url: '/:domain_id/clients/identify',
        params: Type.Object({ domain_id: Id }),
        description: 'Searches the domain of the path, which is an id or a route.',
      },
      {
        url: '/clients/identify',
        params: Type.Object({}),
        description:
          'Rejects a secret that clients of several domains use, and a secret of fewer than 16 characters: use the path with a domain.',
      },
    ]) {
      app.post(
        url,
        {
          config: { ownCredentials: ['client'], isReading: true },
          schema: {
            tags: ['clients'],
            summary: 'Identify a client by its secret',
            description: `Authorization: \`Client <secret>\`. ${description}`,
            params,
            response: responses({ 200: Identified }),
          },
        },
        async (request) => {
          const { domain_id: domain } = request.params as { domain_id?: string }
          const { clientId, domainId } = await gate.identify(secretOf(request), domain)
          return { id: clientId, domain_id: domainId }
        },
      )
    }
  }
}
