/** Reads the bearer token and the origin of a request. */
import type { FastifyRequest } from 'fastify'
import { bearerTokenOf } from '#core/authorization.ts'
import { ServiceError } from '#core/errors/index.ts'
import { EVENT_STREAM, isReadingRoute } from '#http/index.ts'
import type { Origin } from '../access/index.ts'
import { isTokenLike } from './jwt.ts'

/** Returns the token of `Authorization: Bearer …`, or of the query of an event stream. Throws `unauthenticated`. */
export function bearerOf(request: FastifyRequest): string {
  const { authorization = queryAuthorizationOf(request) } = request.headers
  const token = bearerTokenOf(authorization)
  if (token !== undefined) return token
  throw new ServiceError('unauthenticated', 'failed to perform authentication: missing or invalid bearer')
}

/**
 * Returns the token of a route that does not require one. Undefined without a token, and for a value without the form
 * of a token: older JavaScript clients send `Bearer undefined` with every registration (contract, decision 60). Throws
 * `unauthenticated` for another scheme.
 */
export function optionalBearerOf(request: FastifyRequest): string | undefined {
  const { authorization } = request.headers
  if (authorization === undefined) return undefined
  const token = bearerTokenOf(authorization)
  const isNoToken = token === undefined ? authorization.trim().toLowerCase() === 'bearer' : !isTokenLike(token)
  return isNoToken ? undefined : bearerOf(request)
}

/** Browsers cannot set headers of an EventSource (contract section 7.2). */
function queryAuthorizationOf(request: FastifyRequest): string | undefined {
  if (request.facts.config.mediaType !== EVENT_STREAM) return undefined
  const { authorization } = request.query as { authorization?: unknown }
  return typeof authorization === 'string' ? authorization : undefined
}

/** Limit of the stored header, because sessions contain it. */
const MAX_USER_AGENT_CHARS = 256

export function originOf(request: FastifyRequest): Origin {
  const userAgent = request.headers['user-agent']
  return {
    address: request.server.callerAddress(request.raw),
    requestId: request.id,
    ...(userAgent === undefined ? {} : { userAgent: userAgent.slice(0, MAX_USER_AGENT_CHARS) }),
    isReading: isReadingRoute(request.method, request.facts.config),
  }
}
