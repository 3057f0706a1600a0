/** Token routes. Issuing and refreshing read their own credentials: a password, or a refresh token as Bearer. */
import type { FastifyRequest } from 'fastify'
import type { ServiceError } from '#core/errors/index.ts'
import { NoBody, responses } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import { bearerOf, originOf } from './bearer.ts'
import { IssueToken, Jwks, RefreshToken, TokenPair } from './schema.ts'
import type { TokensService } from './service.ts'

export function tokenRoutes(tokens: TokensService): RoutePlugin {
  /** 401 comes before what is wrong with the body (decision 45). */
  function requireRefreshToken(request: FastifyRequest, _reply: unknown, done: (error?: ServiceError) => void): void {
    try {
      tokens.requireRefreshToken(bearerOf(request))
      done()
    } catch (error) {
      done(error as ServiceError)
    }
  }

  return (app) => {
    app.post(
      '/users/tokens/issue',
      {
        config: { isPublic: true },
        schema: {
          tags: ['tokens'],
          summary: 'Log in',
          body: IssueToken,
          response: responses(
            { 201: TokenPair },
            'unauthenticated',
            'forbidden',
            'rate_limited',
            'unsupported_media_type',
          ),
        },
      },
      async (request, reply) => {
        void reply.code(201)
        return await tokens.issue(request.body, originOf(request))
      },
    )
    app.post(
      '/users/tokens/refresh',
      {
        config: { ownCredentials: true },
        schema: {
          tags: ['tokens'],
          summary: 'Exchange a refresh token for a new pair',
          body: RefreshToken,
          response: responses({ 201: TokenPair }, 'unauthenticated', 'forbidden', 'unsupported_media_type'),
        },
        onRequest: requireRefreshToken,
      },
      async (request, reply) => {
        void reply.code(201)
        return await tokens.refresh(bearerOf(request), request.body?.domain_id, originOf(request))
      },
    )
    app.post(
      '/users/tokens/revoke',
      {
        config: { ownCredentials: true },
        schema: {
          tags: ['tokens'],
          summary: 'End the session of a refresh token',
          response: responses({ 204: NoBody }, 'unauthenticated'),
        },
        onRequest: requireRefreshToken,
      },
      async (request, reply) => {
        await tokens.revoke(bearerOf(request), originOf(request))
        return await reply.code(204).send()
      },
    )
    app.get(
      '/keys/.well-known/jwks.json',
      {
        config: { isPublic: true },
        schema: { tags: ['tokens'], summary: 'Public keys of our tokens', response: responses({ 200: Jwks }) },
      },
      () => tokens.jwks(),
    )
  }
}
