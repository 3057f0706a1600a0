/**
 * The principal: the user who makes a request, and their token. Authentication creates it. The access policy decides
 * what it may do.
 */

import type { ScopeSet } from './scopes.ts'

/** Origin of a request, for the journal and the list of sessions. */
export type Origin = {
  readonly address: string
  readonly requestId: string
  readonly userAgent?: string
  /** False for a request that changes something. Defaults to true. */
  readonly isReading?: boolean
}

export type UserPrincipal = {
  readonly kind: 'user'
  readonly key: number
  readonly id: string
  readonly isPlatformAdmin: boolean
  /** The only domain in which the token is valid. Undefined means every domain of the user (decision 40). */
  readonly boundDomainKey: number | undefined
  /** The credential: the access token of a login, an API key or a personal access token. */
  readonly credential: 'login' | 'api_key' | 'pat'
  /** The scopes of a personal access token. Undefined for other credentials. */
  readonly scope: ScopeSet | undefined
  /** Undefined without a login. */
  readonly sessionId: string | undefined
  readonly origin: Origin | undefined
}

declare module 'fastify' {
  interface FastifyRequest {
    /** The `authenticate` hook sets it on every route that is not public and does not read its own credentials. */
    principal: UserPrincipal
  }
}
