/** One open event stream: what waits to be written to it, bounded, and why it ended. */
import { LOG_START, comparePositions } from '#core/log/index.ts'
import type { Position } from '#core/log/index.ts'
import type { EventRecord } from './event.ts'

/** Records that wait for one slow reader; together with the size below, whichever comes first. */
export const MAX_WAITING_RECORDS = 1000
/** About how much memory they may take. */
export const MAX_WAITING_BYTES = 4 * 1024 * 1024
/** A record without its attributes. */
const RECORD_BYTES = 500
/** An id in a list, with its key. */
const ID_BYTES = 60

/** Why a stream ends, as its last event says. */
export type EndReason = 'slow_reader' | 'unauthenticated' | 'forbidden' | 'stopping' | 'closed'

export const END_MESSAGES: Record<EndReason, string> = {
  slow_reader: 'events came faster than they were read: connect again with Last-Event-ID to go on',
  unauthenticated: 'the token has expired or was revoked',
  forbidden: 'you are no longer allowed to read this domain',
  stopping: 'the server is stopping: connect again with Last-Event-ID to go on',
  closed: 'the reader went away',
}

export type Turn = { records: EventRecord[] } | { ended: EndReason } | 'quiet'

export class Subscriber {
  readonly domainKey: number
  readonly userKey: number
  /** Records up to here are none of this stream's. */
  after: Position = LOG_START
  /** Throws when the caller may not read on. */
  readonly authorize: () => Promise<void>
  readonly #onEnd: (reason: EndReason) => void
  #waiting: EventRecord[] = []
  #waitingBytes = 0
  #ended: EndReason | undefined
  #wake: (() => void) | undefined

  constructor(options: {
    domainKey: number
    userKey: number
    authorize: () => Promise<void>
    /** Called once, at once: the writer may be held up by a reader that takes nothing. */
    onEnd: (reason: EndReason) => void
  }) {
    this.domainKey = options.domainKey
    this.userKey = options.userKey
    this.authorize = options.authorize
    this.#onEnd = options.onEnd
  }

  get ended(): EndReason | undefined {
    return this.#ended
  }

  /** Called by the hub for each record of the domain; those up to `after` were there before the stream. */
  offer(record: EventRecord): void {
    if (this.#ended !== undefined || comparePositions(record.position, this.after) <= 0) return
    this.#waiting.push(record)
    this.#waitingBytes += RECORD_BYTES + record.entityKeys.length * ID_BYTES
    if (this.#waiting.length > MAX_WAITING_RECORDS || this.#waitingBytes > MAX_WAITING_BYTES) this.end('slow_reader')
    else this.#wake?.()
  }

  /** Ends the stream; what waits is not sent any more. */
  end(reason: EndReason): void {
    if (this.#ended !== undefined) return
    this.#ended = reason
    this.#waiting = []
    this.#wake?.()
    this.#onEnd(reason)
  }

  /** What to write next; `quiet` when nothing came for so long. */
  async next(quietMs: number): Promise<Turn> {
    if (this.#ended === undefined && this.#waiting.length === 0) await this.#pause(quietMs)
    if (this.#ended !== undefined) return { ended: this.#ended }
    if (this.#waiting.length === 0) return 'quiet'
    const records = this.#waiting
    this.#waiting = []
    this.#waitingBytes = 0
    return { records }
  }

  #pause(quietMs: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer)
        this.#wake = undefined
        resolve()
      }
      const timer = setTimeout(wake, quietMs)
      this.#wake = wake
    })
  }
}

/** How long a reader that takes nothing has to read the last event before its connection is closed. */
export const GRACE_MS: Record<EndReason, number> = {
  slow_reader: 5000,
  unauthenticated: 300,
  forbidden: 300,
  stopping: 500,
  closed: 0,
}
