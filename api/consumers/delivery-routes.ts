/** Routes by which receivers take and acknowledge the messages of a named consumer. */
import type { FastifyReply } from 'fastify'
import { messageJson } from '#api/messages/index.ts'
import { DeadLetterSelection, DeadLettersChanged, EVENT_STREAM, responses, sendEventStream } from '#http/index.ts'
import type { EventStream, RoutePlugin } from '#http/index.ts'
import { Type } from 'typebox'
import { bearerOf, originOf } from '#api/identity/index.ts'
import type { Logins } from '#api/identity/index.ts'
import { kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { Streams } from '#core/streams/index.ts'
import { formatTime } from '#core/time.ts'
import type { DeliveryService, Letter, Taker } from './delivery.ts'
import { formatPlace } from './place.ts'
import type { Taken } from './reading.ts'
import { ONE, params, tags } from './routes.ts'
import { Ack, DeadLetterPage, DeadLetterQuery, Delivered, Nack, TakeQuery } from './schema.ts'

/** Messages that a stream takes at a time. */
const STREAM_STEP = 100
const STREAM_END = 'Why the server ends a stream is its last event `end`.'

const Acknowledged = Type.Object({ count: Type.Integer() })
const config = { action: 'consumer_update' }

/** A message as JSON text: its place, then what every stream says of a message. */
export function takenJson({ place, attempts, message }: Taken): string {
  return `{"position":"${formatPlace(place)}","attempts":${attempts},${messageJson(message).slice(1)}`
}

export type DeliveryRoutesDeps = {
  delivery: DeliveryService
  streams: Streams
  /** Streams check the credentials of their request again. */
  authenticate: Logins['authenticate']
  logger: Logger
}

const atOf = ({ domain_id: domainId, consumer }: { domain_id: string; consumer: string }) => ({
  domainId,
  nameOrId: consumer,
})

/** Aborted when the caller has gone: messages are not taken for nobody. */
function goneSignal(reply: FastifyReply): AbortSignal {
  const gone = new AbortController()
  reply.raw.once('close', () => gone.abort())
  return gone.signal
}

export function deliveryRoutes({ delivery, streams, authenticate, logger }: DeliveryRoutesDeps): RoutePlugin {
  return (app) => {
    app.get(
      `${ONE}/messages`,
      {
        config,
        exposeHeadRoute: false,
        schema: {
          tags,
          summary: 'Take the next messages of a named consumer',
          description:
            'They are in flight until they are acknowledged, and are delivered again after `ack_wait`. Callers of the same consumer share its messages. Also requires `subscribe` on each channel.',
          params,
          querystring: TakeQuery,
          response: responses({ 200: Delivered }, 'not_found', 'invalid_state', 'rate_limited'),
        },
      },
      async (request, reply) => {
        const { limit, wait } = request.query
        const principal = () => Promise.resolve(request.principal)
        const taker = { principal, at: atOf(request.params), limit, signal: goneSignal(reply as never) }
        const taken = await delivery.pull(taker, wait)
        // The response is sent as text, so that numbers of payloads keep their digits.
        void reply.type('application/json; charset=utf-8').header('Cache-Control', 'no-store')
        return (await reply.send(Buffer.from(`{"messages":[${taken.map(takenJson).join(',')}]}`) as never)) as never
      },
    )
    app.get(
      `${ONE}/stream`,
      {
        config: { ...config, mediaType: EVENT_STREAM },
        exposeHeadRoute: false,
        schema: {
          tags,
          summary: 'Take messages of a named consumer, as server-sent events',
          description: `An event \`message\` has the position as its id, and a message as in the route that takes messages as its data. At most \`max_in_flight\` messages are sent before some are acknowledged. ${STREAM_END}`,
          params,
          response: responses(
            { 200: Type.String({ description: 'A stream of server-sent events' }) },
            'not_found',
            'invalid_state',
            'rate_limited',
          ),
        },
      },
      async (request, reply) => {
        const { principal, params: path } = request
        const token = bearerOf(request)
        const origin = originOf(request)
        const owner = { domain: path.domain_id, user: principal.key, client: undefined }
        const gone = new AbortController()
        const taker: Taker = {
          principal: () => authenticate(token, origin),
          at: atOf(path),
          limit: STREAM_STEP,
          signal: gone.signal,
        }
        return (await sendEventStream(reply as never, { streams, owner }, async (stream) => {
          await delivery.requireTaking(taker)
          void follow(delivery, taker, stream, logger)
          return { close: () => gone.abort() }
        })) as never
      },
    )
    app.post(
      `${ONE}/ack`,
      {
        config,
        schema: {
          tags,
          summary: 'Acknowledge messages of a named consumer',
          description:
            'All or none. The answer follows the commit. Acknowledging again has no effect; 404 names positions that the consumer was not given.',
          params,
          body: Ack,
          response: responses({ 200: Acknowledged }, 'not_found', 'invalid_state'),
        },
      },
      async (request) => ({
        count: await delivery.ack(request.principal, atOf(request.params), request.body.positions),
      }),
    )
    app.post(
      `${ONE}/nack`,
      {
        config,
        schema: {
          tags,
          summary: 'Have messages of a named consumer delivered again',
          description: 'All or none. A message that was delivered `max_deliver` times becomes a dead letter.',
          params,
          body: Nack,
          response: responses({ 200: Acknowledged }, 'not_found', 'invalid_state'),
        },
      },
      async (request) => ({ count: await delivery.nack(request.principal, atOf(request.params), request.body) }),
    )
    app.get(
      `${ONE}/dead-letters`,
      {
        config: { action: 'consumer_read' },
        schema: {
          tags,
          summary: 'List the dead letters of a named consumer',
          description:
            'The newest first, for 30 days. Messages are shown to callers with `subscribe` on their channels.',
          params,
          querystring: DeadLetterQuery,
          response: responses({ 200: DeadLetterPage }, 'not_found'),
        },
      },
      async (request) => {
        const { items, ...page } = await delivery.deadLetters(request.principal, atOf(request.params), request.query)
        return { ...page, dead_letters: items.map(presentLetter) } as never
      },
    )
    app.post(
      `${ONE}/dead-letters/retry`,
      {
        config,
        schema: {
          tags,
          summary: 'Deliver dead letters of a named consumer again',
          params,
          body: DeadLetterSelection,
          response: responses({ 200: DeadLettersChanged }, 'not_found'),
        },
      },
      async (request) => ({
        count: await delivery.retryDeadLetters(request.principal, atOf(request.params), request.body),
      }),
    )
    app.post(
      `${ONE}/dead-letters/discard`,
      {
        config,
        schema: {
          tags,
          summary: 'Discard dead letters of a named consumer',
          params,
          body: DeadLetterSelection,
          response: responses({ 200: DeadLettersChanged }, 'not_found'),
        },
      },
      async (request) => ({
        count: await delivery.discardDeadLetters(request.principal, atOf(request.params), request.body),
      }),
    )
  }
}

/** Never rejects. */
async function follow(delivery: DeliveryService, taker: Taker, stream: EventStream, logger: Logger): Promise<void> {
  try {
    await delivery.follow(taker, async (taken) => {
      for (const one of taken)
        stream.write(`id: ${formatPlace(one.place)}\nevent: message\ndata: ${takenJson(one)}\n\n`)
      await stream.drained()
    })
    if (!taker.signal.aborted) stream.end('stopping')
  } catch (error) {
    if (taker.signal.aborted) return
    const kind = kindOf(error)
    if (kind === 'forbidden' || kind === 'not_found' || kind === 'unauthenticated') return stream.end(kind)
    if (kind === 'internal') logger.warn({ err: error }, 'failed to deliver messages of a consumer to a stream')
    stream.end('behind')
  }
}

function presentLetter({ loaded, ...letter }: Letter) {
  return {
    id: letter.id,
    position: formatPlace(letter),
    attempts: letter.attempts,
    error: letter.reason ?? 'was not acknowledged in time',
    created_at: formatTime(letter.arrivedAt),
    at: formatTime(letter.at),
    ...(loaded === undefined ? {} : { message: JSON.parse(messageJson(loaded)) as Record<string, unknown> }),
  }
}
