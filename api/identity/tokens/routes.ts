/** Token routes. Issuing and refreshing read their own credentials: a password, or a refresh token as bearer token. */
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { bearerOf, originOf } from './bearer.ts'
import { requireRouteAllowed } from '../access/index.ts'
import type { AccessPolicy, UserPrincipal } from '../access/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { givenUnder, namesOf } from '#older/index.ts'
import { Id } from '../wire/index.ts'
import {
  IssueToken,
  Jwks,
  RefreshToken,
  RevokeToken,
  RotatedKey,
  SessionPage,
  SessionQuery,
  TokenPair,
  presentSession,
} from './schema.ts'
import type { TokensService } from './service.ts'
import type { SigningKeys } from './signing-keys.ts'

const PLACE = 'api/identity/tokens/routes.ts'
const LOGIN_NAMES = namesOf(PLACE, 'identity')
const PASSWORD_NAMES = namesOf(PLACE, 'secret')
const SessionParams = Type.Object({ session_id: Id })

export function tokenRoutes(tokens: TokensService, keys: SigningKeys, access: AccessPolicy): RoutePlugin {
  /** 401 has precedence over errors of the body (decision 45). */
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
            'Too many failures return 429 with Retry-After. Addresses that have logged in before are only delayed.',
          body: IssueToken,
          response: responses({ 201: TokenPair }, 'unauthenticated', 'rate_limited'),
        },
      },
      async (request, reply) => {
        void reply.code(201)
        const { body } = request
        const login = { identity: givenUnder(body, LOGIN_NAMES), secret: givenUnder(body, PASSWORD_NAMES) }
        return await tokens.issue({ ...login, domain_id: body.domain_id }, originOf(request))
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
          response: responses({ 201: TokenPair }),
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
          summary: 'End the session of a refresh token, or one of the logins of the caller',
          description:
            'With a refresh token it ends the session of the token. With `token_id` and an access token it ends that login of the caller, as `DELETE /users/tokens/refresh-tokens/{session_id}`.',
          body: Type.Optional(Type.Union([RevokeToken, Type.Null()])),
          response: responses({ 204: NoBody }, 'not_found'),
        },
        onRequest: async (request) => {
          const token = bearerOf(request)
          if (await tokens.isRefreshToken(token)) return
          const principal = await tokens.authenticate(token, originOf(request))
          // Keys and personal access tokens end no logins.
          if (principal.credential !== 'login') await tokens.requireRefreshToken(token)
          request.principal = principal
        },
      },
      async (request, reply) => {
        const { token_id: sessionId = '' } = request.body ?? {}
        if (sessionId === '') await tokens.revoke(bearerOf(request), originOf(request))
        else {
          // Undefined with a refresh token, which names its own session only.
          const principal = request.principal as UserPrincipal | undefined
          if (principal === undefined) throw new ServiceError('unauthenticated', 'token_id requires an access token')
          requireRouteAllowed({ principal, route: { url: '', action: 'session.manage' }, userId: undefined })
          await tokens.end(principal, sessionId)
        }
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
          description: 'Active logins, newest first. Tokens are never returned.',
          querystring: SessionQuery,
          response: responses({ 200: SessionPage }),
        },
      },
      async (request) => {
        const { items, ...page } = await tokens.list(request.principal, request.query)
        const sessions = items.map((session) => presentSession(session, request.principal.sessionId))
        return { ...page, refresh_tokens: sessions }
      },
    )
    app.delete(
      '/users/tokens/refresh-tokens/:session_id',
      {
        config: { action: 'session.manage' },
        schema: {
          tags: ['tokens'],
          summary: 'End one of the logins of the caller',
          description: 'Its access and refresh tokens become invalid within a second on every node.',
          params: SessionParams,
          response: responses({ 204: NoBody }, 'not_found'),
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
          summary: 'Rotate the signing key of tokens',
          description:
            'Requires a platform administrator. Tokens that the old key signed remain valid until they expire.',
          response: responses({ 201: RotatedKey }),
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
        schema: { tags: ['tokens'], summary: 'Public keys that verify tokens', response: responses({ 200: Jwks }) },
      },
      () => keys.jwks(),
    )
  }
}
