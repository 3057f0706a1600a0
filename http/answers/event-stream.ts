/**
 * One stream of server-sent events. Waiting events are bounded per stream and counted in the budget of the process. An idle stream
 * sends comments, and the last event gives the reason for the end.
 */
import type { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import { markCountedByWriter } from '#core/streams/index.ts'
import type { BudgetEntry, StreamOwner, Streams } from '#core/streams/index.ts'

export const EVENT_STREAM = 'text/event-stream'
/** The idle time after which a comment is sent: proxies close silent connections. */
const HEARTBEAT_MS = 15_000
/** How long a browser waits before it reconnects. */
const RETRY_MS = 2000
/** The limit of bytes that wait for one slow reader. Above it the stream ends; the reader may resume with Last-Event-ID. */
export const MAX_WAITING_BYTES = 4 * 1024 * 1024
/** Events are passed to the socket in pieces of up to this size. */
const PIECE_BYTES = 64 * 1024

export type EndReason =
  | 'slow_reader'
  | 'behind'
  | 'unauthenticated'
  | 'forbidden'
  | 'not_found'
  | 'stopping'
  | 'ended'
  | 'closed'

const END_MESSAGES: Readonly<Record<EndReason, string>> = {
  slow_reader: 'events were not read fast enough; reconnect with Last-Event-ID to resume',
  behind: 'the stream has fallen behind; reconnect with Last-Event-ID to resume',
  unauthenticated: 'the token has expired or was revoked',
  forbidden: 'you are no longer allowed to read this stream',
  not_found: 'the entity of this stream was deleted',
  stopping: 'the server is stopping; reconnect with Last-Event-ID to resume',
  ended: 'the stream is complete',
  closed: 'the reader disconnected',
}

/** How long a blocked reader has to read the last event before its connection is closed. */
const GRACE_MS: Readonly<Record<EndReason, number>> = {
  slow_reader: 5000,
  behind: 5000,
  unauthenticated: 300,
  forbidden: 300,
  not_found: 300,
  stopping: 500,
  ended: 10_000,
  closed: 0,
}

export type ServerSentEvent = { event: string; id?: string; data: unknown }

export type EventStreamOptions = {
  streams: Streams
  /** The account whose limits the stream counts against. */
  owner: StreamOwner
  /** Bytes that the caller keeps for this stream. Streams may share them, so the caller counts them. */
  keptBytes?: () => number
  /** The text that is sent when the stream is idle; defaults to a comment. */
  quiet?: () => string
  heartbeatMs?: number | undefined
}

/** The body of the response. */
export class EventStream extends Readable {
  readonly #account: BudgetEntry
  readonly #quieting: NodeJS.Timeout
  #waiting: Buffer[] = []
  #waitingBytes = 0
  #raw: ServerResponse | undefined
  #ended: EndReason | undefined
  #ending: NodeJS.Timeout | undefined
  /** True when the reader accepts more. */
  #isWanted = false
  #isQuiet = false
  #whenDrained: (() => void)[] = []
  #whenEnded: (() => void)[] = []

  /** Throws the errors of `StreamLimits.admit`. */
  constructor({ streams, owner, keptBytes, quiet = () => ':\n\n', heartbeatMs = HEARTBEAT_MS }: EventStreamOptions) {
    super({ highWaterMark: PIECE_BYTES })
    const release = streams.limits.admit(owner)
    const waitingBytes = () => this.waitingBytes
    this.#account = streams.budget.open({
      get waitingBytes() {
        return waitingBytes()
      },
      get keptBytes() {
        return keptBytes?.() ?? 0
      },
      cut: () => this.#cut(),
    })
    this.#quieting = setInterval(() => {
      if (this.#isQuiet && this.#waiting.length === 0) this.write(quiet())
      this.#isQuiet = true
    }, heartbeatMs)
    this.once('close', () => {
      clearInterval(this.#quieting)
      // Bytes in the socket may not have been read: the connection is closed when the grace period ends.
      if (this.#raw?.closed !== false) clearTimeout(this.#ending)
      release()
      this.#account.close()
      this.#ended ??= 'closed'
      this.#drop()
      // A caller that waits for `drained` must not wait any longer.
      this.#tell(this.#whenDrained)
      this.#tell(this.#whenEnded)
    })
    this.write(`retry: ${RETRY_MS}\n\n`)
  }

  /** The waiting bytes here, in the response and in its socket. */
  get waitingBytes(): number {
    return this.#waitingBytes + this.readableLength + (this.#raw?.writableLength ?? 0)
  }

  get endReason(): EndReason | undefined {
    return this.#ended
  }

  /** Writes whole events, or consecutive parts of one. Above the limit, the stream ends before the next part. */
  write(...parts: readonly (string | Buffer)[]): void {
    if (this.#ended !== undefined) return
    if (this.#waitingBytes > MAX_WAITING_BYTES) return this.end('slow_reader')
    this.#isQuiet = false
    for (const part of parts) this.#enqueue(part)
    this.#flow()
    this.#account.update()
  }

  send(event: ServerSentEvent): void {
    this.write(formatEvent(event))
  }

  /** Sends the last event with the reason. Waiting events are dropped, unless the stream is complete. */
  end(reason: EndReason, data: Readonly<Record<string, unknown>> = {}): void {
    if (this.#ended !== undefined) return
    this.#ended = reason
    clearInterval(this.#quieting)
    if (reason !== 'ended') this.#drop()
    if (reason === 'closed') {
      this.destroy()
    } else {
      this.#enqueue(formatEvent({ event: 'end', data: { reason, message: END_MESSAGES[reason], ...data } }))
      this.#ending = setTimeout(() => this.#cut(), GRACE_MS[reason])
      this.#flow()
    }
    this.#account.update()
    this.#tell(this.#whenDrained)
    this.#tell(this.#whenEnded)
  }

  /** Called when the stream accepts no more events; the last event may still be in transit. */
  whenEnded(tell: () => void): void {
    if (this.#ended === undefined) this.#whenEnded.push(tell)
    else tell()
  }

  /** Resolves when everything was passed to the socket, or the stream has ended. */
  async drained(): Promise<void> {
    if (this.#waiting.length === 0 || this.#ended !== undefined) return
    await new Promise<void>((resolve) => this.#whenDrained.push(resolve))
  }

  /** Attaches the response whose body this is: its socket is counted, and is closed with the stream. */
  attach(raw: ServerResponse): void {
    this.#raw = raw
    const uncount = raw.socket === null ? () => undefined : markCountedByWriter(raw.socket)
    if (raw.destroyed) this.destroy()
    // The body may be waiting for its next event and would not notice that the reader has disconnected.
    raw.once('close', () => {
      uncount()
      clearTimeout(this.#ending)
      this.destroy()
    })
  }

  override _read(): void {
    this.#isWanted = true
    this.#flow()
    this.#account.update()
  }

  #enqueue(part: string | Buffer): void {
    const bytes = typeof part === 'string' ? Buffer.from(part) : part
    this.#waiting.push(bytes)
    this.#waitingBytes += bytes.length
  }

  #flow(): void {
    while (this.#isWanted && this.#waiting.length > 0) {
      const piece = this.#take()
      this.#waitingBytes -= piece.length
      this.#isWanted = false
      // The reader may ask for more during the push, and set it again.
      if (this.push(piece)) this.#isWanted = true
    }
    if (this.#waiting.length > 0) return
    this.#tell(this.#whenDrained)
    if (this.#ended !== undefined && !this.destroyed && !this.readableEnded) {
      this.#isWanted = false
      this.push(null)
    }
  }

  /** Joins small events; a large one is shared with other readers and not copied. */
  #take(): Buffer {
    let count = 0
    let bytes = 0
    for (const part of this.#waiting) {
      if (count > 0 && bytes + part.length > PIECE_BYTES) break
      count += 1
      bytes += part.length
    }
    const parts = this.#waiting.splice(0, count)
    const [only] = parts
    return count === 1 && only !== undefined ? only : Buffer.concat(parts, bytes)
  }

  #drop(): void {
    this.#waiting = []
    this.#waitingBytes = 0
  }

  /** Closes the connection of a blocked reader, and drops all that waits. */
  #cut(): void {
    this.#ended ??= 'slow_reader'
    this.#drop()
    this.destroy()
    this.#raw?.destroy()
  }

  #tell(listeners: (() => void)[]): void {
    for (const tell of listeners.splice(0)) tell()
  }
}

/** The bytes of an event. Format it once when it goes to several streams. */
export function formatEvent({ event, id, data }: ServerSentEvent): Buffer {
  return Buffer.from(`event: ${event}\n${id === undefined ? '' : `id: ${id}\n`}data: ${JSON.stringify(data)}\n\n`)
}

/**
 * Responds with a stream after `begin` has checked that the caller may read it. The returned object is closed when the stream
 * ends for any reason.
 */
export async function sendEventStream(
  reply: FastifyReply,
  options: EventStreamOptions,
  begin: (stream: EventStream) => Promise<{ close(): void }>,
): Promise<FastifyReply> {
  const stream = new EventStream(options)
  try {
    const { close } = await begin(stream)
    // The reader may have disconnected meanwhile.
    if (stream.destroyed) close()
    else stream.once('close', close)
    stream.whenEnded(close)
    stream.attach(reply.raw)
  } catch (error) {
    stream.destroy()
    throw error
  }
  return await reply
    .type(`${EVENT_STREAM}; charset=utf-8`)
    .header('Cache-Control', 'no-store')
    // Reverse proxies would otherwise buffer the events.
    .header('X-Accel-Buffering', 'no')
    .send(stream)
}
