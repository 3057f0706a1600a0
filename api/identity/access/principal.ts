/** Who is calling. Authentication makes a principal; what it may do is the policy's question. */

/** Where a call came from, for the journal. */
export type Origin = { address: string; requestId: string }

/** What existing consumers of events call the kind of a token (contract section 10). */
export type TokenKind = 'access token' | 'api key' | 'pat'

export type UserPrincipal = {
  readonly kind: 'user'
  readonly key: number
  readonly id: string
  readonly isPlatformAdmin: boolean
  /** The only domain in which the token works; undefined: every domain of the user (decision 40). */
  readonly boundDomainKey: number | undefined
  readonly sessionId: string
  /** The kind of token that he called with, for the journal; absent: an access token. */
  readonly tokenKind?: TokenKind
  readonly origin: Origin | undefined
}

declare module 'fastify' {
  interface FastifyRequest {
    /** Set by the authenticate hook on every route that is neither public nor reads its own credentials. */
    principal: UserPrincipal
  }
}
