/** Who is calling. Authentication makes a principal; what it may do is the policy's question. */

import type { ScopeSet } from './scopes.ts'

/** Where a call came from, for the journal and the list of sessions. */
export type Origin = {
  readonly address: string
  readonly requestId: string
  readonly userAgent?: string
  /** False: the call changes something. Not said: it reads. */
  readonly isReading?: boolean
}

export type UserPrincipal = {
  readonly kind: 'user'
  readonly key: number
  readonly id: string
  readonly isPlatformAdmin: boolean
  /** The only domain in which the token works; undefined: every domain of the user (decision 40). */
  readonly boundDomainKey: number | undefined
  /** What authenticated him: the access token of a login, an API key or a personal access token. */
  readonly credential: 'login' | 'api_key' | 'pat'
  /** What a personal access token may do of all that its user may; undefined with any other credential. */
  readonly scope: ScopeSet | undefined
  /** Undefined: no login. */
  readonly sessionId: string | undefined
  readonly origin: Origin | undefined
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Set by the authenticate hook on every route that is neither public nor reads its own credentials. */
    principal: UserPrincipal
  }
}
