/** The cookie of a browser session, and the rules for requests that carry it. */
import { parseCookie, stringifySetCookie } from 'cookie'
import type { FastifyRequest } from 'fastify'
import { ServiceError } from '#core/errors/index.ts'
import { isForeignOrigin } from '#http/index.ts'
import { BROWSER_MAX_SECONDS } from './browser-sessions.ts'

/** A page of another site cannot set this header, because its preflight is refused. */
export const CONSOLE_HEADER = 'x-skein-console'

export type SessionCookie = {
  read(request: Pick<FastifyRequest, 'headers'>): string | undefined
  /** The value of `Set-Cookie`. */
  write(cookie: string): string
  clear(): string
}

export function createSessionCookie(publicUrl: string): SessionCookie {
  const secure = new URL(publicUrl).protocol === 'https:'
  // A browser accepts the prefix only with Secure, without a domain and with the path / (RFC 6265bis section 4.1.3.2).
  const name = secure ? '__Host-skein-session' : 'skein-session'
  const attributes = { name, path: '/', httpOnly: true, sameSite: 'strict', secure } as const
  return {
    read: (request) => {
      const { cookie } = request.headers
      return cookie === undefined ? undefined : parseCookie(cookie)[name]
    },
    write: (cookie) => stringifySetCookie({ ...attributes, value: cookie, maxAge: BROWSER_MAX_SECONDS }),
    clear: () => stringifySetCookie({ ...attributes, value: '', maxAge: 0 }),
  }
}

/** Whether a page of our own origin sends the request. */
export function isOfOwnPage(request: Parameters<typeof isForeignOrigin>[0]): boolean {
  return request.headers.origin !== undefined && !isForeignOrigin(request, [])
}

/** Throws `forbidden` unless a page of our own origin sends the request. */
export function requireOwnPage(request: FastifyRequest): void {
  if (!isOfOwnPage(request) || request.headers[CONSOLE_HEADER] !== '1')
    throw new ServiceError(
      'forbidden',
      'browser sessions are for pages of this server: send its own Origin and the header X-Skein-Console: 1',
    )
}
