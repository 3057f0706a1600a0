/** The event stream of a domain (contract section 10). */
import { Type } from 'typebox'
import { EVENT_STREAM, responses, sendEventStream } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import type { Streams } from '#core/streams/index.ts'
import { bearerOf, originOf } from '../tokens/index.ts'
import { Id } from '../wire/index.ts'
import type { EventsService } from './service.ts'

export type EventRoutesDeps = {
  events: EventsService
  streams: Streams
  /** A quiet stream says something so often; undefined: the default. */
  quietMs: number | undefined
}

export function eventRoutes({ events, streams, quietMs }: EventRoutesDeps): RoutePlugin {
  return (app) => {
    app.get(
      '/:domain_id/events',
      {
        config: { action: 'read', mediaType: EVENT_STREAM },
        // The answer of GET does not end.
        exposeHeadRoute: false,
        schema: {
          tags: ['events'],
          summary: 'Follow what happens in a domain, as server-sent events',
          description:
            'Every record of the journal that the caller may read, within a second of the change, at least once and in order. `id` of an event is its position: a client that connects again with `Last-Event-ID` misses nothing. The data is one flat JSON object with `operation`, `occurred_at` (nanoseconds), the fields of the entity, `domain`, `user_id`, `token_type`, `super_admin` and `request_id`; after a change also `before`. A quiet stream sends comments. The last event `end` says why the server ends a stream (`slow_reader`, `unauthenticated`, `forbidden`, `stopping`); `gap` says that the position is older than what the journal keeps.',
          params: Type.Object({ domain_id: Id }),
          querystring: Type.Object({
            authorization: Type.Optional(
              Type.String({ description: '`Bearer <token>`, where no header can be set: in a browser' }),
            ),
          }),
          headers: Type.Object({
            'last-event-id': Type.Optional(
              Type.String({
                maxLength: 64,
                description: 'Position of the last event that was seen; none: from now on',
              }),
            ),
          }),
          response: responses(
            { 200: Type.String({ description: 'A stream of server-sent events' }) },
            'unauthenticated',
            'forbidden',
            'rate_limited',
            'timeout',
          ),
        },
      },
      async (request, reply) => {
        const caller = { principal: request.principal, token: bearerOf(request), origin: originOf(request) }
        const { domain_id: domainId } = request.params
        const { begin, ...source } = await events.open(caller, domainId, request.headers['last-event-id'])
        return (await sendEventStream(reply as never, { ...source, streams, quietMs }, begin)) as never
      },
    )
  }
}
