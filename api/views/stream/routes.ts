/** The stream of a domain. The adapter of WebSockets serves it; this route describes it, and answers requests without an upgrade. */
import { Type } from 'typebox'
import type { AccessPolicy } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'

const DESCRIPTION = `A WebSocket of JSON frames. The first frame is \`{"type":"authenticate","token":"…"}\`; a page of this server with a browser session needs none. \
\`{"type":"subscribe","id":"…","source":"events"}\` subscribes to the events of the domain, \`"source":"tasks"\` to the states of its tasks, runs and workers, \
\`"source":"messages","channel":"…","subtopic":"…"\` to a channel, also with \`"without":["publisher","subtopic"]\`: only messages without a publisher or subtopic, \`"source":"consumer","consumer":"…"\` to a named consumer, whose messages \`{"type":"ack","id","positions"}\` and \`nack\` (\`delay\`, \`reason\`) answer. \`id\` is chosen by the caller. \`{"type":"unsubscribe","id":"…"}\` ends a subscription. \
Events are \`{"type":"event","id","position","event","data"}\`. A subscription with \`position\` continues after that event. \
\`{"type":"position","id","position"}\` names the place from which a subscription is complete, \`gap\` that older events are missing, \
and \`error\` what failed: with \`id\` for a subscription, without it for the connection.`

export function streamRoutes(access: Pick<AccessPolicy, 'enter'>): RoutePlugin {
  return (app) => {
    app.get(
      '/:domain_id/stream',
      {
        config: { action: 'read', scope: 'filtered' },
        exposeHeadRoute: false,
        schema: {
          tags: ['events'],
          summary: 'Follow events, tasks and channels of a domain over one WebSocket',
          description: DESCRIPTION,
          params: Type.Object({ domain_id: Type.String() }),
          response: responses({
            101: Type.String({ description: 'A WebSocket' }),
            // Generators refuse an operation without a success.
            200: Type.Null({ description: 'Not sent: a WebSocket is answered with 101' }),
          }),
        },
      },
      async ({ principal, params }) => {
        await access.enter(principal, params.domain_id)
        throw new ServiceError('malformed', 'this path is a WebSocket: connect with Upgrade: websocket')
      },
    )
  }
}
