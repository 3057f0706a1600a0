/** Following a channel over server-sent events; an event's id is a position, so that nothing is missed while reconnecting. */
import { Readable } from 'node:stream'
import { formatToken, parseSubtopicFilter } from '#api/messages/index.ts'
import type { Delivery, EndReason, LiveMessage, Messages } from '#api/messages/index.ts'
import { responses } from '#core/http/index.ts'
import type { HttpApp, RoutePlugin } from '#core/http/index.ts'
import { Type } from '#core/schema.ts'
import { readCredentials } from '../credentials.ts'
import type { MessageAccessDeps } from './access.ts'
import { accessOf, checkAccess, credentialsOf } from './access.ts'

const EVENT_STREAM = 'text/event-stream'
/** A comment is sent after so long without a message: proxies close connections that say nothing. */
const HEARTBEAT_MS = 15_000
/** What a browser waits before it connects again. */
const RETRY_MS = 2000
/** Text that waits for one slow reader; beyond, its stream ends, and begins again where it stood. */
const MAX_WAITING_CHARS = 4 * 1024 * 1024
/** A reader who has not read the end of his stream after so long is cut off. */
const END_DEADLINE_MS = 10_000

const END_MESSAGES: Record<EndReason | 'slow_reader', string> = {
  slow_reader: 'messages came faster than they were read: connect again with Last-Event-ID to go on',
  behind: 'the stream has fallen behind: connect again with Last-Event-ID to go on',
  forbidden: 'you are no longer allowed to follow this channel',
  stopping: 'the server is stopping: connect again with Last-Event-ID to go on',
  closed: 'the reader went away',
}

export function liveRoutes(messages: Messages, deps: MessageAccessDeps): RoutePlugin {
  return async (app) => {
    await app.register((scope: HttpApp, _options, done) => {
      checkAccess(scope, 'subscribe', deps)
      scope.get(
        '/m/:domain_id/c/:channel_id/live',
        {
          config: { action: 'subscribe', ownCredentials: true, mediaType: EVENT_STREAM, refusesHead: true },
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
              authorization: Type.Optional(Type.String({ description: 'The credentials, where no header can be set' })),
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
              ...(['unauthenticated', 'forbidden', 'not_found', 'conflict', 'timeout'] as const),
            ),
          },
        },
        async (request, reply) => {
          const filter = parseSubtopicFilter(request.query.subtopic ?? '#')
          const access = accessOf(request)
          const path = { domain: request.params.domain_id, channel: request.params.channel_id }
          const stream = new EventStream()
          const lastEventId = request.headers['last-event-id']
          const { close } = await messages.follow(
            {
              access,
              filter,
              authorize: async () =>
                await deps.gate.authorize(await readCredentials(credentialsOf(request), deps), path, 'subscribe'),
              deliver: (deliveries) => {
                stream.deliver(deliveries)
                if (access.publisherKey !== null) messages.presence.delivered(access.publisherKey, deliveries.length)
              },
              onEnd: (reason) => stream.end(reason),
              drained: () => stream.drained(),
            },
            lastEventId === '' ? undefined : lastEventId,
          )
          const body = Readable.from(stream.chunks(), { objectMode: false })
          body.once('close', close)
          // The body waits for the next message before it closes: it is woken.
          reply.raw.once('close', () => stream.end('closed'))
          stream.whenEnded(() => {
            close()
            const cutting = setTimeout(() => body.destroy(), END_DEADLINE_MS)
            body.once('close', () => clearTimeout(cutting))
          })
          if (access.publisherKey !== null) showOnline(messages, access.publisherKey, body)
          return await reply
            .type(`${EVENT_STREAM}; charset=utf-8`)
            .header('Cache-Control', 'no-store')
            // Reverse proxies would collect the events before they pass them on.
            .header('X-Accel-Buffering', 'no')
            .send(body as never)
        },
      )
      done()
    })
  }
}

/** A client is online while its stream is open. */
function showOnline({ presence }: Messages, clientKey: number, body: Readable): void {
  presence.online(clientKey, 'http')
  presence.subscribed(clientKey, 'http')
  body.once('close', () => {
    presence.unsubscribed(clientKey, 'http')
    presence.offline(clientKey, 'http')
  })
}

/** The text of one stream, bounded: it is read at the pace of its reader. */
class EventStream {
  #waiting: string[] = [`retry: ${RETRY_MS}\n\n`]
  #waitingChars = 0
  #ended: EndReason | 'slow_reader' | undefined
  #wake: (() => void) | undefined
  #whenDrained: (() => void)[] = []
  #whenEnded: (() => void) | undefined

  deliver(deliveries: readonly Delivery[]): void {
    if (this.#ended !== undefined) return
    for (const delivery of deliveries) {
      const text = formatEvent(delivery)
      this.#waiting.push(text)
      this.#waitingChars += text.length
    }
    if (this.#waitingChars > MAX_WAITING_CHARS) this.end('slow_reader')
    this.#wake?.()
  }

  end(reason: EndReason | 'slow_reader'): void {
    if (this.#ended !== undefined) return
    this.#ended = reason
    this.#waiting = []
    this.#wake?.()
    this.#tellDrained()
    this.#whenEnded?.()
  }

  /** Nothing more is taken; what tells the reader why may still be on its way. */
  whenEnded(tell: () => void): void {
    if (this.#ended === undefined) this.#whenEnded = tell
    else tell()
  }

  /** Resolves when everything that was delivered is on its way. */
  async drained(): Promise<void> {
    if (this.#waiting.length === 0 || this.#ended !== undefined) return
    await new Promise<void>((resolve) => this.#whenDrained.push(resolve))
  }

  async *chunks(): AsyncGenerator<string, void, void> {
    while (this.#ended === undefined) {
      if (this.#waiting.length === 0) await this.#pause()
      if (this.#ended !== undefined) break
      const text = this.#waiting.length === 0 ? ':\n\n' : this.#waiting.join('')
      this.#waiting = []
      this.#waitingChars = 0
      yield text
      if (this.#waiting.length === 0) this.#tellDrained()
    }
    yield `event: end\ndata: ${JSON.stringify({ reason: this.#ended, message: END_MESSAGES[this.#ended] })}\n\n`
  }

  #pause(): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer)
        this.#wake = undefined
        resolve()
      }
      const timer = setTimeout(wake, HEARTBEAT_MS)
      this.#wake = wake
    })
  }

  #tellDrained(): void {
    for (const resolve of this.#whenDrained.splice(0)) resolve()
  }
}

function formatEvent({ message, token }: Delivery): string {
  return `id: ${formatToken(token)}\nevent: message\ndata: ${presentMessage(message)}\n\n`
}

/** One line of JSON. The payload of a JSON type is put in as it is, so that numbers keep their digits. */
function presentMessage(message: LiveMessage): string {
  const { channelId, subtopic, publisherId, protocol, receivedAtSeconds, contentType, payload } = message
  const head = JSON.stringify({
    channel: channelId,
    subtopic,
    publisher: publisherId,
    protocol,
    created: receivedAtSeconds,
    content_type: contentType,
  })
  return `${head.slice(0, -1)},"payload":${jsonOf(contentType, payload) ?? JSON.stringify(payload.toString('base64'))}}`
}

function jsonOf(contentType: string, payload: Buffer): string | undefined {
  if (!/^application\/(?:[a-z.-]+\+)?json$/.test(contentType)) return undefined
  // A line feed in it would end the line of the event; between JSON's tokens it means nothing, inside strings there is none.
  return payload.toString('utf8').replaceAll(/[\r\n]+/g, ' ')
}
