/** What begins or ends in a mailbox: a forgotten password, and the proof of an email address. */
import type { FastifyRequest } from 'fastify'
import { responses } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import { bearerOf, originOf } from '../tokens/index.ts'
import { MessageBody } from '../wire/index.ts'
import { requireEmail } from './identity.ts'
import { RESET_PAGE, RESET_PAGE_POLICY } from './reset-page.ts'
import { NothingMore, ResetPage, ResetRequest, ResetRequested, SecretReset, VerifyQuery } from './schema.ts'
import type { UsersService } from './service.ts'

export function mailRoutes(users: UsersService): RoutePlugin {
  /** 401 comes before what is wrong with the body (decision 45), where the token does not stand in the body itself. */
  async function requireRecoveryToken(request: FastifyRequest): Promise<void> {
    if (request.headers.authorization !== undefined) await users.requireRecoveryToken(bearerOf(request))
  }

  return (app) => {
    app.post(
      '/password/reset-request',
      {
        config: { isPublic: true },
        schema: {
          tags: ['users'],
          summary: 'Ask for a link with which a new password can be chosen',
          description:
            'The answer is the same whether the email is known or not. The link works for five minutes and once; at most three are sent in that time.',
          body: ResetRequest,
          response: responses({ 201: ResetRequested }, 'unsupported_media_type', 'rate_limited'),
        },
      },
      async (request, reply) => {
        users.requestReset(requireEmail(request.body.email), originOf(request))
        void reply.code(201)
        return { msg: 'if the email belongs to a user, a link is on its way to it' }
      },
    )
    app.put(
      '/password/reset',
      {
        config: { ownCredentials: ['bearer', 'none'] },
        schema: {
          tags: ['users'],
          summary: 'Choose a new password with the token from the mail',
          description: 'The token is the bearer token, or `token` in the body. Ends every session of the user.',
          body: SecretReset,
          response: responses(
            { 201: NothingMore },
            'unauthenticated',
            'unsupported_media_type',
            'rate_limited',
            'too_large',
          ),
        },
        onRequest: requireRecoveryToken,
      },
      async (request, reply) => {
        const { token = '', password, confirm_password: confirmation } = request.body
        const given = request.headers.authorization === undefined ? token : bearerOf(request)
        await users.resetSecret(given, { password, confirmation }, originOf(request))
        void reply.code(201)
        return {}
      },
    )
    app.get(
      '/password/reset',
      {
        config: { isPublic: true, mediaType: 'text/html' },
        schema: {
          tags: ['users'],
          summary: 'The page that the link in the mail opens',
          description: 'A form that sends the new password to PUT /password/reset.',
          response: responses({ 200: ResetPage }),
        },
      },
      async (_request, reply) => {
        // The address of the page holds the token: nothing may keep it, and no other page may learn it.
        void reply
          .type('text/html; charset=utf-8')
          .header('Content-Security-Policy', RESET_PAGE_POLICY)
          .header('Cache-Control', 'no-store')
          .header('Referrer-Policy', 'no-referrer')
          .serializer((page: string) => page)
        return RESET_PAGE
      },
    )
    app.post(
      '/users/send-verification',
      {
        config: { action: 'user.self' },
        schema: {
          tags: ['users'],
          summary: 'Send the link that proves the email address',
          response: responses({ 200: MessageBody }, 'unauthenticated', 'not_found', 'unprocessable', 'rate_limited'),
        },
      },
      async (request) => {
        const outcome = await users.sendVerification(request.principal)
        return { message: outcome === 'sent' ? 'the link is on its way' : 'the email address is verified already' }
      },
    )
    app.get(
      '/verify-email',
      {
        config: { isPublic: true },
        schema: {
          tags: ['users'],
          summary: 'Follow the link that proves an email address',
          querystring: VerifyQuery,
          response: responses({ 200: MessageBody }, 'unauthenticated'),
        },
      },
      async (request) => {
        await users.verifyEmail(request.query.token, originOf(request))
        return { message: 'the email address is verified' }
      },
    )
  }
}

/** What an unverified user may ask all the same (contract section 5); refreshing and signing out read their own credentials. */
const OPEN_TO_UNVERIFIED = new Set([
  'GET /users/profile',
  'HEAD /users/profile',
  'PATCH /users/:user_id/email',
  'POST /users/send-verification',
])

/** Throws `forbidden` for everything else while the settings ask for a verified address. */
export async function requireVerifiedFor(users: UsersService, request: FastifyRequest): Promise<void> {
  if (OPEN_TO_UNVERIFIED.has(`${request.method} ${request.routeOptions.url}`)) return
  await users.requireVerified(request.principal)
}
