/** Routes with mailed links: password reset and verification of email addresses. */
import type { FastifyRequest } from 'fastify'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { bearerOf, originOf } from '../tokens/index.ts'
import { MessageBody } from '../wire/index.ts'
import { requireEmail } from './identity.ts'
import { RESET_PAGE, RESET_PAGE_POLICY } from './reset-page.ts'
import { NothingMore, ResetPage, ResetRequest, ResetRequested, SecretReset, VerifyQuery } from './schema.ts'
import type { UsersService } from './service.ts'

export function mailRoutes(users: UsersService): RoutePlugin {
  /** 401 has precedence over errors of the body (decision 45), unless the token is in the body. */
  async function requireRecoveryToken(request: FastifyRequest): Promise<void> {
    if (request.headers.authorization !== undefined) await users.secrets.requireRecoveryToken(bearerOf(request))
  }

  return (app) => {
    app.post(
      '/password/reset-request',
      {
        config: { isPublic: true },
        schema: {
          tags: ['users'],
          summary: 'Request a link to reset the password',
          description:
            'The response does not reveal whether the email is known. The link is valid once, for five minutes. At most three links are sent in that time.',
          body: ResetRequest,
          response: responses({ 201: ResetRequested }, 'rate_limited'),
        },
      },
      async (request, reply) => {
        users.secrets.requestReset(requireEmail(request.body.email), originOf(request))
        void reply.code(201)
        return { msg: 'if the email belongs to a user, a link was sent to it' }
      },
    )
    app.put(
      '/password/reset',
      {
        config: { ownCredentials: ['bearer', 'none'] },
        schema: {
          tags: ['users'],
          summary: 'Reset the password with the token from the mail',
          description: 'The token is the bearer token, or `token` in the body. Ends every session of the user.',
          body: SecretReset,
          response: responses({ 201: NothingMore }, 'rate_limited'),
        },
        onRequest: requireRecoveryToken,
      },
      async (request, reply) => {
        const { token = '', password, confirm_password: confirmation } = request.body
        const given = request.headers.authorization === undefined ? token : bearerOf(request)
        await users.secrets.resetSecret(given, { password, confirmation }, originOf(request))
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
          summary: 'Page of the link in the mail',
          description: 'A form that sends the new password to PUT /password/reset.',
          response: responses({ 200: ResetPage }),
        },
      },
      async (_request, reply) => {
        // The URL of the page contains the token: it must not be cached or sent to other pages.
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
          summary: 'Send a link to verify the email address',
          response: responses({ 200: MessageBody }, 'not_found', 'unprocessable', 'rate_limited'),
        },
      },
      async (request) => {
        const outcome = await users.verification.sendVerification(request.principal)
        return { message: outcome === 'sent' ? 'the link was sent' : 'the email address is already verified' }
      },
    )
    app.get(
      '/verify-email',
      {
        config: { isPublic: true },
        schema: {
          tags: ['users'],
          summary: 'Verify an email address with the token from the mail',
          querystring: VerifyQuery,
          response: responses({ 200: MessageBody }, 'unauthenticated'),
        },
      },
      async (request) => {
        await users.verification.verifyEmail(request.query.token, originOf(request))
        return { message: 'the email address is verified' }
      },
    )
  }
}

/** Routes for unverified users (contract section 5). Refreshing and logging out read their own credentials. */
const OPEN_TO_UNVERIFIED = new Set([
  'GET /users/profile',
  'HEAD /users/profile',
  'PATCH /users/:user_id/email',
  'POST /users/send-verification',
])

/** Throws `forbidden` for other routes while the settings require a verified address. */
export async function requireVerifiedFor(users: UsersService, request: FastifyRequest): Promise<void> {
  if (OPEN_TO_UNVERIFIED.has(`${request.method} ${request.facts.url}`)) return
  await users.verification.requireVerified(request.principal)
}
