/** Streams a channel as server-sent events. The id of an event is a position, so a client that reconnects misses no message. */
import type { EventEmitter } from 'node:events'
import { Type } from 'typebox'
import { Without, formatToken, liveFilter, messageJson } from '#api/messages/index.ts'
import type { Delivery, LiveMessage, Messages } from '#api/messages/index.ts'
import { EVENT_STREAM, responses, sendEventStream } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import type { Streams } from '#core/streams/index.ts'
import { readCredentials } from '../credentials/credentials.ts'
import type { ChannelAccessDeps } from './access.ts'
import { MESSAGE_CREDENTIALS, accessOf, authorizationQuery, checkAccess, credentialsOf, ownerOf } from './access.ts'

export type LiveDeps = ChannelAccessDeps & { streams: Streams }

export function liveRoutes(messages: Messages, deps: LiveDeps): RoutePlugin {
  return async (app) => {
    await app.register((scope: HttpApp, _options, done) => {
      checkAccess(scope, 'subscribe', deps)
      scope.get(
        '/m/:domain_id/c/:channel_id/live',
        {
          config: { action: 'subscribe', ownCredentials: MESSAGE_CREDENTIALS, mediaType: EVENT_STREAM },
          // GET streams without an end.
          exposeHeadRoute: false,
          schema: {
            tags: ['messages'],
            summary: 'Follow a channel, as server-sent events',
            description:
              'Authorization as for reading, or `?authorization=` (a secret, or `Bearer%20<token>`) where no header can be set. Every message is sent as it is committed, whatever protocol it came by. `data` is `{channel, subtopic, publisher, protocol, created, content_type, payload}`; `payload` is JSON where the content type is, else base64. `id` is a position: a client that connects again with `Last-Event-ID` misses nothing, and may be sent a message again. The last event `end` says why the server ends a stream.',
            params: Type.Object({
              domain_id: Type.String({ description: 'Id or route of the domain' }),
              channel_id: Type.String({ description: 'Id or route of the channel' }),
            }),
            querystring: Type.Object({
              subtopic: Type.Optional(
                Type.String({
                  maxLength: 1024,
                  description: 'Subtopic with the wildcards + (one element) and # (all that follow); default: #',
                }),
              ),
              without: Type.Optional(Without),
              ...authorizationQuery,
            }),
            headers: Type.Object({
              'last-event-id': Type.Optional(
                Type.String({
                  maxLength: 12_000,
                  description: 'Id of the last event that was seen; none: from now on',
                }),
              ),
            }),
            response: responses(
              { 200: Type.String({ description: 'A stream of server-sent events' }) },
              'not_found',
              'conflict',
              'rate_limited',
              'timeout',
            ),
          },
        },
        async (request, reply) => {
          const filter = liveFilter(request.query, '#')
          const access = accessOf(request)
          const path = { domain: request.params.domain_id, channel: request.params.channel_id }
          const lastEventId = request.headers['last-event-id']
          const options = { streams: deps.streams, owner: ownerOf(request) }
          return (await sendEventStream(reply as never, options, async (stream) => {
            const following = await messages.follow(
              {
                access,
                ...filter,
                authorize: async () =>
                  await deps.gate.authorize(await readCredentials(credentialsOf(request), deps), path, 'subscribe'),
                deliver: (deliveries) => {
                  for (const delivery of deliveries) stream.write(...formatEvent(delivery))
                  if (access.publisherKey !== null) messages.presence.delivered(access.publisherKey, deliveries.length)
                },
                onEnd: (reason) => stream.end(reason),
                drained: () => stream.drained(),
              },
              lastEventId === '' ? undefined : lastEventId,
            )
            if (access.publisherKey !== null && !stream.destroyed) showOnline(messages, access.publisherKey, stream)
            return following
          })) as never
        },
      )
      done()
    })
  }
}

/** A client is online while its stream is open. */
function showOnline({ presence }: Messages, clientKey: number, body: EventEmitter): void {
  presence.online(clientKey, 'http')
  presence.subscribed(clientKey, 'http')
  body.once('close', () => {
    presence.unsubscribed(clientKey, 'http')
    presence.offline(clientKey, 'http')
  })
}

/** The serialized message, shared by all followers. */
const presented = new WeakMap<LiveMessage, Buffer>()
/** The header of an event, shared by followers at the same position. */
const heads = new WeakMap<Delivery['token'], Buffer>()

function formatEvent({ message, token }: Delivery): [head: Buffer, data: Buffer] {
  let head = heads.get(token)
  if (head === undefined) heads.set(token, (head = Buffer.from(`id: ${formatToken(token)}\nevent: message\ndata: `)))
  let data = presented.get(message)
  if (data === undefined) presented.set(message, (data = Buffer.from(`${messageJson(message)}\n\n`)))
  return [head, data]
}
