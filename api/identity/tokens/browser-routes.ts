/** Routes of browser sessions. They read the cookie, which no other route accepts. */
import { NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { originOf } from './bearer.ts'
import type { BrowserSessions, PageToken as IssuedToken } from './browser-sessions.ts'
import { BrowserLogin, BrowserSession, PageToken, presentBrowserSession } from './schema.ts'
import { requireOwnPage } from './session-cookie.ts'
import type { SessionCookie } from './session-cookie.ts'

const PATH = '/console/session'
const RULE = 'Requires the own `Origin` of the server and the header `X-Skein-Console: 1`.'

const present = ({ session, accessToken, lifetimeSeconds }: IssuedToken) => ({
  ...presentBrowserSession(session),
  access_token: accessToken,
  access_type: 'Bearer' as const,
  expires_in: lifetimeSeconds,
})

export function browserRoutes(sessions: BrowserSessions, cookies: SessionCookie): RoutePlugin {
  return (app) => {
    app.post(
      PATH,
      {
        config: { isPublic: true },
        schema: {
          tags: ['tokens'],
          summary: 'Log in from a browser',
          description: `Sets a cookie that scripts cannot read, and returns a short access token for the page. The session ends after 12 hours without use and after 30 days. ${RULE}`,
          body: BrowserLogin,
          response: responses({ 201: PageToken }, 'unauthenticated', 'rate_limited'),
        },
        onRequest: async (request) => requireOwnPage(request),
      },
      async (request, reply) => {
        const opened = await sessions.open(request.body, originOf(request))
        void reply.code(201).header('Set-Cookie', cookies.write(opened.cookie))
        return present(opened)
      },
    )
    app.post(
      `${PATH}/token`,
      {
        config: { ownCredentials: ['session'] },
        schema: {
          tags: ['tokens'],
          summary: 'Get an access token for a page',
          description: `Extends the session. ${RULE}`,
          response: responses({ 200: PageToken }),
        },
        onRequest: async (request) => requireOwnPage(request),
      },
      async (request) => present(await sessions.renew(cookies.read(request))),
    )
    app.get(
      PATH,
      {
        config: { ownCredentials: ['session'] },
        schema: {
          tags: ['tokens'],
          summary: 'View the session of this browser',
          response: responses({ 200: BrowserSession }),
        },
      },
      async (request) => presentBrowserSession(await sessions.find(cookies.read(request))),
    )
    app.delete(
      PATH,
      {
        config: { ownCredentials: ['session'] },
        schema: {
          tags: ['tokens'],
          summary: 'Log out of this browser',
          description: `Its access tokens become invalid within a second on every node. ${RULE}`,
          response: responses({ 204: NoBody }),
        },
        onRequest: async (request) => requireOwnPage(request),
      },
      async (request, reply) => {
        await sessions.end(cookies.read(request), originOf(request))
        return await reply.code(204).header('Set-Cookie', cookies.clear()).send()
      },
    )
  }
}
