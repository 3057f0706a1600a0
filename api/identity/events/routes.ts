/** The event stream of a domain (contract section 10). */
import { Type } from 'typebox'
import { EVENT_STREAM, responses, sendEventStream } from '#http/index.ts'
import type { EventStream, RoutePlugin } from '#http/index.ts'
import type { Streams } from '#core/streams/index.ts'
import type { Origin, UserPrincipal } from '../access/index.ts'
import { bearerOf, originOf } from '../tokens/index.ts'
import { Id } from '../wire/index.ts'
import { serverSentEvent, wholeEvent } from './event.ts'
import type { EventsService, EventWriter } from './service.ts'

export type EventRoutesDeps = {
  events: EventsService
  /** Returns the user of a token. Throws `unauthenticated`. */
  authenticate: (token: string, origin: Origin) => Promise<UserPrincipal>
  streams: Streams
  /** Interval of heartbeats on an idle stream. Undefined selects the default. */
  heartbeatMs: number | undefined
}

export function eventRoutes({ events, authenticate, streams, heartbeatMs }: EventRoutesDeps): RoutePlugin {
  return (app) => {
    app.get(
      '/:domain_id/events',
      {
        config: { action: 'read', scope: 'filtered', mediaType: EVENT_STREAM },
        // The response of GET does not end, so HEAD is not offered.
        exposeHeadRoute: false,
        schema: {
          tags: ['events'],
          summary: 'Follow the events of a domain as server-sent events',
          description:
            'Delivers every record of the journal that the caller may read, within a second of the change, at least once and in order. The `id` of an event is its position: a client that reconnects with `Last-Event-ID` receives every later event. The data is one flat JSON object with `operation`, `occurred_at` (nanoseconds), the fields of the entity, `domain`, `user_id`, `token_type`, `super_admin` and `request_id`; after a change also `before`. An idle stream sends comments as heartbeats. The last event, `end`, contains the reason (`slow_reader`, `unauthenticated`, `forbidden`, `stopping`). The event `gap` means that the position is older than the retention of the journal.',
          params: Type.Object({ domain_id: Id }),
          querystring: Type.Object({
            authorization: Type.Optional(
              Type.String({ description: '`Bearer <token>`, for browsers, which cannot set the header' }),
            ),
          }),
          headers: Type.Object({
            'last-event-id': Type.Optional(
              Type.String({
                maxLength: 64,
                description: 'Position of the last received event; defaults to the current end of the journal',
              }),
            ),
          }),
          response: responses(
            { 200: Type.String({ description: 'A stream of server-sent events' }) },
            'rate_limited',
            'timeout',
          ),
        },
      },
      async (request, reply) => {
        const [token, origin] = [bearerOf(request), originOf(request)]
        const caller = { principal: request.principal, authenticate: () => authenticate(token, origin) }
        const { domain_id: domainId } = request.params
        const { owner, keptBytes, quietPosition, begin } = await events.open(
          caller,
          domainId,
          request.headers['last-event-id'],
        )
        const quiet = () => {
          const position = quietPosition()
          return position === undefined ? ': quiet\n\n' : `: quiet\nid: ${position}\n\n`
        }
        return (await sendEventStream(reply as never, { owner, keptBytes, quiet, streams, heartbeatMs }, (stream) =>
          begin(writerOf(stream)),
        )) as never
      },
    )
  }
}

function writerOf(stream: EventStream): EventWriter {
  return {
    record: (record, attributes) =>
      stream.write(attributes === record.attributes ? wholeEvent(record) : serverSentEvent(record, attributes)),
    position: (position) => stream.write(`id: ${position}\n\n`),
    gap: (message) => stream.send({ event: 'gap', data: { message } }),
    end: (reason) => stream.end(reason),
    drained: () => stream.drained(),
  }
}
