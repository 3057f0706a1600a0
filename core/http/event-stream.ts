/**
 * One stream of server-sent events: the only writer of them. What waits for its reader is bounded by itself and counted in
 * the budget of the process, a quiet stream says something, and the last event says why a stream ends.
 */
import type { ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import { countHere } from '../streams/index.ts'
import type { Account, StreamOwner, Streams } from '../streams/index.ts'

export const EVENT_STREAM = 'text/event-stream'
/** A comment is sent after so long without an event: proxies close connections that say nothing. */
const QUIET_MS = 15_000
/** What a browser waits before it connects again. */
const RETRY_MS = 2000
/** Bytes that wait for one slow reader; beyond, its stream ends, and begins again where it stood. */
export const MAX_WAITING_BYTES = 4 * 1024 * 1024
/** Events are handed to the socket together up to this. */
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
  slow_reader: 'events came faster than they were read: connect again with Last-Event-ID to go on',
  behind: 'the stream has fallen behind: connect again with Last-Event-ID to go on',
  unauthenticated: 'the token has expired or was revoked',
  forbidden: 'you are no longer allowed to follow this',
  not_found: 'what was followed is not there any more',
  stopping: 'the server is stopping: connect again with Last-Event-ID to go on',
  ended: 'nothing follows',
  closed: 'the reader went away',
}

/** How long a reader that takes nothing has to read the last event before its connection is closed. */
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
  /** Whose limits it counts against. */
  owner: StreamOwner
  /** Bytes of what is to be written here later; others may be sent the same, so they are counted by whoever keeps them. */
  keptBytes?: () => number
  /** What is said after a time without an event; undefined: a comment. */
  quiet?: () => string
  quietMs?: number | undefined
}

/** What is read of it is the body of the answer. */
export class EventStream extends Readable {
  readonly #account: Account
  readonly #quieting: NodeJS.Timeout
  #waiting: Buffer[] = []
  #waitingBytes = 0
  #raw: ServerResponse | undefined
  #ended: EndReason | undefined
  #ending: NodeJS.Timeout | undefined
  /** The reader takes more. */
  #isWanted = false
  #isQuiet = false
  #whenDrained: (() => void)[] = []
  #whenEnded: (() => void)[] = []

  /** Throws what `StreamLimits.open` throws. */
  constructor({ streams, owner, keptBytes, quiet = () => ':\n\n', quietMs = QUIET_MS }: EventStreamOptions) {
    super({ highWaterMark: PIECE_BYTES })
    const release = streams.limits.open(owner)
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
    }, quietMs)
    this.once('close', () => {
      clearInterval(this.#quieting)
      // What was handed to the socket may not have been read: until then it is cut off when its time is over.
      if (this.#raw?.closed !== false) clearTimeout(this.#ending)
      release()
      this.#account.close()
      this.#ended ??= 'closed'
      this.#drop()
      // Whoever writes at the pace of the reader waits for it no more.
      this.#tell(this.#whenDrained)
      this.#tell(this.#whenEnded)
    })
    this.write(`retry: ${RETRY_MS}\n\n`)
  }

  /** Here, in the answer and in its socket. */
  get waitingBytes(): number {
    return this.#waitingBytes + this.readableLength + (this.#raw?.writableLength ?? 0)
  }

  get endReason(): EndReason | undefined {
    return this.#ended
  }

  /** Whole events, or parts of them that follow one another. What is beyond the bound ends the stream before the next. */
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

  /** The last event says why. What waits is dropped, unless nothing more was to come. */
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

  /** Nothing more is taken; the last event may still be on its way. */
  whenEnded(tell: () => void): void {
    if (this.#ended === undefined) this.#whenEnded.push(tell)
    else tell()
  }

  /** Resolves when everything that was written is with the socket, or the stream has ended. */
  async drained(): Promise<void> {
    if (this.#waiting.length === 0 || this.#ended !== undefined) return
    await new Promise<void>((resolve) => this.#whenDrained.push(resolve))
  }

  /** The answer that this is the body of: its socket is counted, and ends with it. */
  attach(raw: ServerResponse): void {
    this.#raw = raw
    const uncount = raw.socket === null ? () => undefined : countHere(raw.socket)
    if (raw.destroyed) this.destroy()
    // The body may wait for its next event: it would not learn that nobody reads it.
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
      // It may ask for more at once, and set it again.
      if (this.push(piece)) this.#isWanted = true
    }
    if (this.#waiting.length > 0) return
    this.#tell(this.#whenDrained)
    if (this.#ended !== undefined && !this.destroyed && !this.readableEnded) {
      this.#isWanted = false
      this.push(null)
    }
  }

  /** Small events together; a large one is what its other readers are sent too, and not copied. */
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

  /** The reader takes nothing: its connection is closed, and with it everything that waits. */
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

/** An event as it is written; whoever sends it to many formats it once. */
export function formatEvent({ event, id, data }: ServerSentEvent): Buffer {
  return Buffer.from(`event: ${event}\n${id === undefined ? '' : `id: ${id}\n`}data: ${JSON.stringify(data)}\n\n`)
}

/**
 * Answers with a stream, once `begin` has found out that the caller may follow; what it gives back is called when the
 * stream is over, whyever.
 */
export async function sendEventStream(
  reply: FastifyReply,
  options: EventStreamOptions,
  begin: (stream: EventStream) => Promise<{ close(): void }>,
): Promise<FastifyReply> {
  const stream = new EventStream(options)
  try {
    const { close } = await begin(stream)
    // The reader may have gone meanwhile.
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
    // Reverse proxies would collect the events before they pass them on.
    .header('X-Accel-Buffering', 'no')
    .send(stream)
}
