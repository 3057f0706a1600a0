/** The event stream of tasks, runs and workers (task-manager.md section 1). */
import { Type } from 'typebox'
import { EVENT_STREAM, formatEvent, responses, sendEventStream } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import type { Streams } from '#core/streams/index.ts'
import type { TaskAccess } from '../access/access.ts'
import type { Callers } from '../access/callers.ts'
import { BEARER, NO_USER } from '../access/callers.ts'
import { taskEventId } from '#queues/index.ts'
import type { TaskEvent } from '#queues/index.ts'
import type { EventsService } from './service.ts'

export type EventRouteDeps = { events: EventsService; access: TaskAccess; callers: Callers; streams: Streams }

export function taskEventRoutes({ events, access, callers, streams }: EventRouteDeps): RoutePlugin {
  return (app) => {
    app.get(
      '/events',
      {
        onRequest: callers.onRequest,
        config: { action: 'task_read', ownCredentials: BEARER, mediaType: EVENT_STREAM },
        // The answer of GET has no end.
        exposeHeadRoute: false,
        schema: {
          tags: ['tasks'],
          summary: 'Follow every state of tasks, runs and workers, as server-sent events',
          description:
            'Events are called `task`, `run` and `worker`; the data is a JSON object with `type`, the ids, `state` and `occurred_at`. The stream contains events of the domains in which the caller can read tasks or workers. `id` is a position: a client that reconnects with `Last-Event-ID` gets all events of the last 24 hours, or an event `gap` if older events were missed. The last event `end` contains the reason why the server ends a stream.',
          querystring: Type.Object({
            authorization: Type.Optional(
              Type.String({ description: '`Bearer <token>`, for clients that cannot set a header, such as browsers' }),
            ),
          }),
          headers: Type.Object({
            'last-event-id': Type.Optional(
              Type.String({
                maxLength: 64,
                description: 'Id of the last received event; without it the stream starts now',
              }),
            ),
          }),
          response: responses({ 200: Type.String({ description: 'A stream of server-sent events' }) }, 'rate_limited'),
        },
      },
      async (request, reply) => {
        const authenticate = async () => await access.authenticate(request)
        const owner = { user: callers.of(request)?.key ?? NO_USER }
        return (await sendEventStream(
          reply as never,
          { streams, owner },
          async (stream) =>
            await events.follow(authenticate, request.headers['last-event-id'], {
              deliver: (event) => stream.write(formatted(event)),
              gap: () => stream.send({ event: 'gap', data: { message: 'events after this id are no longer stored' } }),
              end: (reason) => stream.end(reason),
            }),
        )) as never
      },
    )
  }
}

/** Bytes of an event with many followers, formatted once. */
const bytes = new WeakMap<TaskEvent, Buffer>()

function formatted(event: TaskEvent): Buffer {
  let known = bytes.get(event)
  if (known === undefined) {
    const { kind, data } = event
    known = formatEvent({ event: kind, id: taskEventId(event), data })
    bytes.set(event, known)
  }
  return known
}
