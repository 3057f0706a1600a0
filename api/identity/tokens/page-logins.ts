/** Browser sessions for WebSockets, whose requests have no header of their own: the origin alone tells a page of ours. */
import type { IncomingHttpHeaders } from 'node:http'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Origin, UserPrincipal } from '../access/index.ts'
import type { BrowserSessions } from './browser-sessions.ts'
import type { SessionCookie } from './session-cookie.ts'
import { isOfOwnPage } from './session-cookie.ts'

export type PageLogins = {
  /** Whether the request has the cookie of a browser session. */
  hasSession(headers: IncomingHttpHeaders): boolean
  /**
   * Returns a check of the session of the request, which returns its user and does not extend it. The check throws `unauthenticated`
   * when the session has ended. Throws `forbidden` for a page of another origin.
   */
  open(headers: IncomingHttpHeaders, origin: Origin): () => Promise<UserPrincipal>
}

export function createPageLogins(
  sessions: Pick<BrowserSessions, 'issue'>,
  cookies: SessionCookie,
  authenticate: (token: string, origin: Origin) => Promise<UserPrincipal>,
): PageLogins {
  return {
    hasSession: (headers) => cookies.read({ headers }) !== undefined,
    open(headers, origin) {
      if (!isOfOwnPage({ headers }))
        throw new ServiceError('forbidden', 'browser sessions are for pages of this server: send a token')
      const cookie = cookies.read({ headers })
      let token: string | undefined
      return async () => {
        if (token !== undefined) {
          try {
            return await authenticate(token, origin)
          } catch (error) {
            if (kindOf(error) !== 'unauthenticated') throw error
          }
        }
        // The token has expired, or the session has ended.
        token = await sessions.issue(cookie)
        return await authenticate(token, origin)
      }
    },
  }
}
