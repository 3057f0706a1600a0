/** What a request says about its caller: the bearer token and where it came from. */
import { isIP } from 'node:net'
import type { FastifyRequest } from 'fastify'
import { ServiceError } from '#core/errors/index.ts'
import { EVENT_STREAM } from '#core/http/index.ts'
import type { Origin } from '../access/index.ts'

const PREFIX = 'Bearer '

/**
 * The token of `Authorization: Bearer …`, or of the query of a stream; the prefix is matched exactly. Throws `unauthenticated`.
 */
export function bearerOf(request: FastifyRequest): string {
  const { authorization = queryAuthorizationOf(request) } = request.headers
  if (authorization === undefined || !authorization.startsWith(PREFIX) || authorization.length === PREFIX.length) {
    throw new ServiceError('unauthenticated', 'failed to perform authentication: missing or invalid bearer')
  }
  return authorization.slice(PREFIX.length)
}

/** A browser sets no header when it follows a stream (contract section 7.2). */
function queryAuthorizationOf(request: FastifyRequest): string | undefined {
  if (request.routeOptions.config.mediaType !== EVENT_STREAM) return undefined
  const { authorization } = request.query as { authorization?: unknown }
  return typeof authorization === 'string' ? authorization : undefined
}

/** A header of any length must not fill the list of sessions. */
const MAX_USER_AGENT_CHARS = 256

export function originOf(request: FastifyRequest): Origin {
  const userAgent = request.headers['user-agent']
  return {
    // What a trusted proxy passed on may be no address at all.
    address: isIP(request.ip) === 0 ? (request.socket.remoteAddress ?? '') : request.ip,
    requestId: request.id,
    ...(userAgent === undefined ? {} : { userAgent: userAgent.slice(0, MAX_USER_AGENT_CHARS) }),
    isReading: request.method === 'GET' || request.method === 'HEAD',
  }
}
