/** Token routes. Issuing and refreshing read their own credentials: a password, or a refresh token as Bearer. */
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { NoBody, responses } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import { bearerOf, originOf } from './bearer.ts'
import type { AccessPolicy } from '../access/index.ts'
import { Id } from '../wire/index.ts'
import {
  IssueToken,
  Jwks,
  RefreshToken,
  RotatedKey,
  SessionPage,
  SessionQuery,
  TokenPair,
  presentSession,
} from './schema.ts'
import type { TokensService } from './service.ts'
import type { SigningKeys } from './signing-keys.ts'

const SessionParams = Type.Object({ session_id: Id })

export function tokenRoutes(tokens: TokensService, keys: SigningKeys, access: AccessPolicy): RoutePlugin {
  /** 401 comes before what is wrong with the body (decision 45). */
  const requireRefreshToken = (request: FastifyRequest) => tokens.requireRefreshToken(bearerOf(request))

  return (app) => {
    app.post(
      '/users/tokens/issue',
      {
        config: { isPublic: true },
        schema: {
          tags: ['tokens'],
          summary: 'Log in',
          description:
            'Too many failures are answered with 429 and Retry-After; an address that logged in before is only slowed down.',
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
        config: { ownCredentials: ['bearer'] },
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
        config: { ownCredentials: ['bearer'] },
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
      '/users/tokens/refresh-tokens',
      {
        config: { action: 'session.manage' },
        schema: {
          tags: ['tokens'],
          summary: 'List the logins of the caller',
          description: 'Those that have not ended, the newest first; the tokens themselves are never shown.',
          querystring: SessionQuery,
          response: responses({ 200: SessionPage }, 'unauthenticated', 'forbidden'),
        },
      },
      async (request) => {
        const { total, offset, limit, items } = await tokens.list(request.principal, request.query)
        const sessions = items.map((session) => presentSession(session, request.principal.sessionId))
        return { total, offset, limit, refresh_tokens: sessions }
      },
    )
    app.delete(
      '/users/tokens/refresh-tokens/:session_id',
      {
        config: { action: 'session.manage' },
        schema: {
          tags: ['tokens'],
          summary: 'End one of the logins of the caller',
          description: 'Its access and refresh tokens stop working within a second on every node.',
          params: SessionParams,
          response: responses({ 204: NoBody }, 'unauthenticated', 'forbidden', 'not_found'),
        },
      },
      async (request, reply) => {
        await tokens.end(request.principal, request.params.session_id)
        return await reply.code(204).send()
      },
    )
    app.post(
      '/keys/rotate',
      {
        config: { action: 'signing_key.rotate' },
        schema: {
          tags: ['keys'],
          summary: 'Sign tokens with a new key from now on',
          description:
            'For the platform administrator. Nobody is logged out: tokens of the old key are good until they expire.',
          response: responses({ 201: RotatedKey }, 'unauthenticated', 'forbidden'),
        },
      },
      async (request, reply) => {
        access.requirePlatformAdmin(request.principal)
        const kid = await keys.rotate(request.principal)
        void reply.code(201)
        return { kid }
      },
    )
    app.get(
      '/keys/.well-known/jwks.json',
      {
        config: { isPublic: true },
        schema: { tags: ['tokens'], summary: 'Public keys of our tokens', response: responses({ 200: Jwks }) },
      },
      () => keys.jwks(),
    )
  }
}
