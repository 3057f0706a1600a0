/** Reading over HTTP (contract section 8, decision 18). */
import { Type } from 'typebox'
import { LatestQuery, MessagesPage, MessagesQuery } from '#api/messages/index.ts'
import type { Messages } from '#api/messages/index.ts'
import { responses } from '#core/http/index.ts'
import type { HttpApp, RoutePlugin } from '#core/http/index.ts'
import type { MessageAccessDeps } from './access.ts'
import { accessOf, checkAccess } from './access.ts'

const DomainChannel = Type.Object({
  domain_id: Type.String({ description: 'Id or route of the domain' }),
  channel_id: Type.String({ description: 'Id or route of the channel' }),
})
const Channel = Type.Pick(DomainChannel, ['channel_id'])

const PATHS = [
  { path: '/m/:domain_id/c/:channel_id', params: DomainChannel },
  { path: '/:domain_id/channels/:channel_id/messages', params: DomainChannel },
  { path: '/channels/:channel_id/messages', params: Channel },
] as const

export function readRoutes(messages: Messages, deps: MessageAccessDeps): RoutePlugin {
  return async (app) => {
    await app.register((scope: HttpApp, _options, done) => {
      checkAccess(scope, 'subscribe', deps)
      for (const { path, params } of PATHS) {
        scope.get(
          path,
          {
            config: { action: 'subscribe', ownCredentials: true },
            schema: {
              tags: ['messages'],
              summary: 'Read stored messages, newest first',
              description: 'Authorization: `Client <secret>`, Basic with client id and secret, or `Bearer` of a user.',
              params,
              querystring: MessagesQuery,
              response: responses(
                { 200: MessagesPage },
                'unauthenticated',
                'forbidden',
                'not_found',
                'conflict',
                'timeout',
              ),
            },
          },
          async (request) => await messages.read(accessOf(request), request.query),
        )
        scope.get(
          `${path}/latest`,
          {
            config: { action: 'subscribe', ownCredentials: true },
            schema: {
              tags: ['messages'],
              summary: 'Read the newest record of every series',
              description:
                'A series is what one publisher sends under one subtopic, name and unit. Authorization as for reading. Series stand in the order in which they began.',
              params,
              querystring: LatestQuery,
              response: responses(
                { 200: MessagesPage },
                'unauthenticated',
                'forbidden',
                'not_found',
                'conflict',
                'timeout',
              ),
            },
          },
          async (request) => await messages.readLatest(accessOf(request), request.query),
        )
      }
      done()
    })
  }
}
