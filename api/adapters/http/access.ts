/**
 * Authorization of message routes. Credentials are checked before the body is read. An error of the channel is kept until body and query
 * are validated, because 401, 415 and 400 precede 403 and 404 (contract decision 45).
 */
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import type { ChannelPath, ChannelAccess, MessageCredentials, MessageGate } from '#api/devices/index.ts'
import { originOf } from '#api/identity/index.ts'
import type { ConnectionType } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Credential, HttpApp } from '#http/index.ts'
import type { StreamOwner } from '#core/streams/index.ts'
import { peerCertificateOf, readCredentials } from '../credentials/credentials.ts'
import type { Authenticators, CredentialTexts } from '../credentials/credentials.ts'

/** The credentials that message routes accept. */
export const MESSAGE_CREDENTIALS: readonly Credential[] = ['client', 'basic', 'bearer']

export type ChannelAccessDeps = Authenticators & { gate: MessageGate }

type Checked = { credentials: MessageCredentials; access: ChannelAccess | undefined; refusal: ServiceError | undefined }

declare module 'fastify' {
  interface FastifyRequest {
    /** Set by the hook of message routes. */
    messageAccess: Checked | undefined
  }
}

/** Adds the check of the caller against the channel of the path to all routes that are registered on this scope later. */
export function checkAccess(scope: HttpApp, type: ConnectionType, deps: ChannelAccessDeps): void {
  const { gate } = deps
  scope.decorateRequest('messageAccess', undefined)
  // The hook has a callback, because most requests are decided from memory and need not wait for a promise.
  scope.addHook('onRequest', (request, _reply, done) => {
    const { domain_id: domain, channel_id: channel } = request.params as { domain_id?: string; channel_id: string }
    const path = { domain, channel }
    let credentials: MessageCredentials | Promise<MessageCredentials>
    try {
      credentials = readCredentials(credentialsOf(request), deps)
    } catch (error) {
      done(error as Error)
      return
    }
    if (!(credentials instanceof Promise)) {
      const access = gate.authorizeNow(credentials, path, type)
      if (access !== undefined) {
        request.messageAccess = { credentials, access, refusal: undefined }
        done()
        return
      }
    }
    // oxlint-disable-next-line promise/no-callback-in-promise -- a callback is how this kind of hook goes on
    check(request, credentials, path).then(() => done(), done)
  })

  async function check(
    request: FastifyRequest,
    given: MessageCredentials | Promise<MessageCredentials>,
    path: ChannelPath,
  ): Promise<void> {
    const credentials = await given
    try {
      const access = await gate.authorize(credentials, path, type)
      request.messageAccess = { credentials, access, refusal: undefined }
    } catch (error) {
      if (!(error instanceof ServiceError) || !isAboutChannel(error)) throw error
      request.messageAccess = { credentials, access: undefined, refusal: error }
    }
  }
}

/** The query parameter of credentials, for the schemas of routes. */
export const authorizationQuery = {
  authorization: Type.Optional(
    Type.String({ description: 'The client secret, or `Bearer <token>`, where no header can be set' }),
  ),
}

/** The credentials of a request. */
export function credentialsOf(request: FastifyRequest): CredentialTexts {
  const { authorization } = request.query as { authorization?: string }
  return {
    header: request.headers.authorization,
    query: authorization,
    certificate: () => peerCertificateOf(request.raw.socket),
    origin: () => originOf(request),
  }
}

/** The result of the hook; throws its error. Call it after everything else of the request is validated. */
export function accessOf(request: FastifyRequest): ChannelAccess {
  const checked = request.messageAccess
  if (checked?.access === undefined) throw checked?.refusal ?? new Error('the route has no access hook')
  return checked.access
}

/** The owner against whose limits a stream of this caller counts. Call it after `accessOf`. */
export function ownerOf(request: FastifyRequest): StreamOwner {
  const { credentials, access } = request.messageAccess ?? {}
  return {
    domain: access?.domainId,
    client: access?.publisherKey ?? undefined,
    user: credentials?.kind === 'user' ? credentials.principal.key : undefined,
  }
}

/** Identifies the caller for idempotency keys: a client or a user. */
export function callerOf(request: FastifyRequest): string {
  const credentials = request.messageAccess?.credentials
  if (credentials?.kind === 'user') return `user ${credentials.principal.key}`
  return `client ${String(request.messageAccess?.access?.publisherKey)}`
}

function isAboutChannel({ kind }: ServiceError): boolean {
  return kind === 'forbidden' || kind === 'not_found' || kind === 'conflict'
}
