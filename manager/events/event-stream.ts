/** One reader of server-sent events: text that waits for it is bounded, and a quiet stream says something. */
import { Readable } from 'node:stream'

export const EVENT_STREAM = 'text/event-stream'
/** A comment is sent after so long without an event: proxies close connections that say nothing. */
const HEARTBEAT_MS = 15_000
/** What a browser waits before it connects again. */
const RETRY_MS = 2_000
/** Text that waits for one slow reader; beyond, its stream ends, and begins again where it stood. */
const MAX_WAITING_CHARS = 4 * 1024 * 1024

export type ServerSentEvent = { event: string; id?: string; data: unknown }

export type EndReason = 'slow_reader' | 'unauthenticated' | 'stopping' | 'ended'

const END_MESSAGES: Readonly<Record<EndReason, string>> = {
  slow_reader: 'events came faster than they were read: connect again with Last-Event-ID to go on',
  unauthenticated: 'the token does not count any more',
  stopping: 'the server is stopping: connect again with Last-Event-ID to go on',
  ended: 'nothing follows',
}

export class EventStream extends Readable {
  readonly #heartbeat: NodeJS.Timeout

  constructor() {
    super({ highWaterMark: MAX_WAITING_CHARS })
    this.push(`retry: ${RETRY_MS}\n\n`)
    this.#heartbeat = setInterval(() => this.#write(':\n\n'), HEARTBEAT_MS)
    this.once('close', () => clearInterval(this.#heartbeat))
  }

  override _read(): void {
    // Events come when they happen.
  }

  send({ event, id, data }: ServerSentEvent): void {
    this.#write(`event: ${event}\n${id === undefined ? '' : `id: ${id}\n`}data: ${JSON.stringify(data)}\n\n`)
  }

  /** The last event says why. */
  end(reason: EndReason, data: Readonly<Record<string, unknown>> = {}): void {
    if (this.readableEnded || this.destroyed) return
    clearInterval(this.#heartbeat)
    this.push(`event: end\ndata: ${JSON.stringify({ reason, message: END_MESSAGES[reason], ...data })}\n\n`)
    this.push(null)
  }

  #write(text: string): void {
    if (this.readableEnded || this.destroyed || this.closed) return
    if (this.readableLength + text.length > MAX_WAITING_CHARS) this.end('slow_reader')
    else this.push(text)
  }
}
