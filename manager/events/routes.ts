/** The stream of all states (task-manager.md section 1). */
import { Type } from 'typebox'
import { EVENT_STREAM, formatEvent, responses, sendEventStream } from '#core/http/index.ts'
import type { RoutePlugin } from '#core/http/index.ts'
import { formatPosition } from '#core/changelog/index.ts'
import type { Streams } from '#core/streams/index.ts'
import type { TaskAccess } from '../access/access.ts'
import type { Callers } from '../access/callers.ts'
import { BEARER, NO_USER } from '../access/callers.ts'
import type { TaskEvent } from '../store/events.ts'
import type { EventsService } from './service.ts'

export type EventRouteDeps = { events: EventsService; access: TaskAccess; callers: Callers; streams: Streams }

export function taskEventRoutes({ events, access, callers, streams }: EventRouteDeps): RoutePlugin {
  return (app) => {
    app.get(
      '/events',
      {
        onRequest: callers.onRequest,
        config: { action: 'task_read', ownCredentials: BEARER, mediaType: EVENT_STREAM },
        // The answer of GET does not end.
        exposeHeadRoute: false,
        schema: {
          tags: ['tasks'],
          summary: 'Follow every state of tasks, runs and workers, as server-sent events',
          description:
            'Events are called `task`, `run` and `worker`; the data is a JSON object with `type`, the ids, `state` and `occurred_at`. Shown are those of the domains in which the caller may read tasks, or workers. `id` is a position: a client that connects again with `Last-Event-ID` misses nothing of the last 24 hours, else an event `gap` says so. The last event `end` says why the server ends a stream.',
          querystring: Type.Object({
            authorization: Type.Optional(
              Type.String({ description: '`Bearer <token>`, where no header can be set: in a browser' }),
            ),
          }),
          headers: Type.Object({
            'last-event-id': Type.Optional(
              Type.String({ maxLength: 64, description: 'Id of the last event that was seen; none: from now on' }),
            ),
          }),
          response: responses(
            { 200: Type.String({ description: 'A stream of server-sent events' }) },
            'unauthenticated',
            'rate_limited',
            'unavailable',
          ),
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
              gap: () =>
                stream.send({ event: 'gap', data: { message: 'events after this id were forgotten already' } }),
              end: (reason) => stream.end(reason),
            }),
        )) as never
      },
    )
  }
}

/** Of an event that many follow; it is put into bytes once for all of them. */
const bytes = new WeakMap<TaskEvent, Buffer>()

function formatted(event: TaskEvent): Buffer {
  let known = bytes.get(event)
  if (known === undefined) {
    const { position, index, kind, data } = event
    known = formatEvent({ event: kind, id: `${formatPosition(position)}-${index}`, data })
    bytes.set(event, known)
  }
  return known
}
