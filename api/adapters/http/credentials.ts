/** Who a message or a reader over HTTP says he is (contract section 7.1). */
import type { FastifyRequest } from 'fastify'
import type { MessageCredentials } from '#api/devices/index.ts'
import { originOf } from '#api/identity/index.ts'
import type { TokensService } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'

const CLIENT = 'Client '
const BASIC = 'Basic '
const BEARER = 'Bearer '

/**
 * Reads `Client <secret>`, Basic with the client's id (may be empty) and secret, `Bearer <user token>`, or the query
 * `authorization`, which holds a secret or any of these. A promise only where a token has to be verified. Throws, or
 * rejects with, `unauthenticated`.
 */
export function readCredentials(
  request: FastifyRequest,
  tokens: TokensService,
): MessageCredentials | Promise<MessageCredentials> {
  const given = request.headers.authorization
  if (given !== undefined) return readScheme(given, request, tokens) ?? refuse()
  const { authorization } = request.query as { authorization?: string }
  if (authorization === undefined || authorization === '') return refuse()
  return readScheme(authorization, request, tokens) ?? { kind: 'client', secret: authorization }
}

function readScheme(
  text: string,
  request: FastifyRequest,
  tokens: TokensService,
): MessageCredentials | Promise<MessageCredentials> | undefined {
  if (text.startsWith(CLIENT) && text.length > CLIENT.length)
    return { kind: 'client', secret: text.slice(CLIENT.length) }
  if (text.startsWith(BASIC)) return readBasic(text.slice(BASIC.length))
  if (text.startsWith(BEARER) && text.length > BEARER.length) {
    return tokens
      .authenticate(text.slice(BEARER.length), originOf(request))
      .then((principal) => ({ kind: 'user', principal }))
  }
  return undefined
}

/** RFC 7617: the first colon separates; a secret may hold more of them. */
function readBasic(encoded: string): MessageCredentials {
  const pair = Buffer.from(encoded, 'base64').toString('utf8')
  const colon = pair.indexOf(':')
  const secret = pair.slice(colon + 1)
  if (colon < 0 || secret === '') return refuse()
  const clientId = pair.slice(0, colon)
  return clientId === '' ? { kind: 'client', secret } : { kind: 'client', secret, clientId }
}

function refuse(): never {
  throw new ServiceError('unauthenticated', 'failed to perform authentication: missing or invalid credentials')
}
