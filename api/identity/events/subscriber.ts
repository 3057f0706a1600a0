/** One open event stream: what waits to be written to it, bounded, and why it ended. */
import type { EndReason } from '#core/http/index.ts'
import { LOG_START, comparePositions } from '#core/changelog/index.ts'
import type { Position } from '#core/changelog/index.ts'
import type { EventRecord } from './event.ts'
import { wholeEvent } from './event.ts'

/** Records that wait for one slow reader. */
export const MAX_WAITING_RECORDS = 1000
/** About how much memory they may take for longer than the time below; the budget of the process bounds what is there before. */
export const MAX_WAITING_BYTES = 4 * 1024 * 1024
/** The log may come late, held up by older transactions, and then all at once: a reader that keeps pace takes it in less. */
const SPARED_MS = 1_000
/** A record beside its text. */
const RECORD_BYTES = 500
/** An id in a list, with its key. */
const ID_BYTES = 60

/** Why a subscriber is handed nothing more. */
export type SubscriberEnd = Extract<EndReason, 'slow_reader' | 'unauthenticated' | 'forbidden' | 'stopping' | 'closed'>

export type Turn = { records: EventRecord[] } | { ended: SubscriberEnd }

export class Subscriber {
  readonly domainKey: number
  /** Records up to here are none of this stream's. */
  after: Position = LOG_START
  /** Throws when the caller may not read on. */
  readonly authorize: () => Promise<void>
  readonly #onEnd: (reason: SubscriberEnd) => void
  readonly #keep: (bytes: number) => void
  readonly #sparedMs: number
  /** What was handed out and is being written. */
  #inHand: EventRecord[] = []
  #waiting: EventRecord[] = []
  #waitingBytes = 0
  /** Runs while more waits than may. */
  #sparing: NodeJS.Timeout | undefined
  #ended: SubscriberEnd | undefined
  #wake: (() => void) | undefined

  constructor(options: {
    domainKey: number
    authorize: () => Promise<void>
    /** Called once, at once: the writer may be held up by a reader that takes nothing. */
    onEnd: (reason: SubscriberEnd) => void
    /** So many bytes more, or fewer, are kept for subscribers together: what several wait for is kept once. */
    keep: (bytes: number) => void
    /** How long more may wait than the bound allows, in milliseconds. */
    sparedMs?: number
  }) {
    this.domainKey = options.domainKey
    this.authorize = options.authorize
    this.#onEnd = options.onEnd
    this.#keep = options.keep
    this.#sparedMs = options.sparedMs ?? SPARED_MS
  }

  /** About how much memory takes what waits and what is being written; others may wait for the same. */
  get keptBytes(): number {
    return [...this.#inHand, ...this.#waiting].reduce((sum, record) => sum + sizeOf(record), 0)
  }

  get ended(): SubscriberEnd | undefined {
    return this.#ended
  }

  /** Called by the fan-out for each record of the domain; those up to `after` were there before the stream. */
  offer(record: EventRecord): void {
    if (this.#ended !== undefined || comparePositions(record.position, this.after) <= 0) return
    this.#waiting.push(record)
    this.#waitingBytes += sizeOf(record)
    this.#keep(hold(record))
    if (this.#waiting.length > MAX_WAITING_RECORDS) return this.end('slow_reader')
    if (this.#waitingBytes > MAX_WAITING_BYTES)
      this.#sparing ??= setTimeout(() => this.end('slow_reader'), this.#sparedMs)
    this.#wake?.()
  }

  #stopSparing(): void {
    clearTimeout(this.#sparing)
    this.#sparing = undefined
  }

  /** Ends the stream; what waits is not sent any more. */
  end(reason: SubscriberEnd): void {
    if (this.#ended !== undefined) return
    this.#ended = reason
    this.#stopSparing()
    this.#release([...this.#inHand, ...this.#waiting])
    this.#inHand = []
    this.#waiting = []
    this.#waitingBytes = 0
    this.#wake?.()
    this.#onEnd(reason)
  }

  /** What to write next; what was given before is written. */
  async next(): Promise<Turn> {
    this.#release(this.#inHand)
    this.#inHand = []
    if (this.#ended === undefined && this.#waiting.length === 0)
      await new Promise<void>((resolve) => (this.#wake = resolve))
    if (this.#ended !== undefined) return { ended: this.#ended }
    const records = this.#waiting
    this.#inHand = records
    this.#waiting = []
    this.#waitingBytes = 0
    this.#stopSparing()
    return { records }
  }

  #release(records: readonly EventRecord[]): void {
    let bytes = 0
    for (const record of records) bytes += letGo(record)
    if (bytes !== 0) this.#keep(bytes)
  }
}

/** How many subscribers wait for a record. */
const holders = new WeakMap<EventRecord, number>()

/** The bytes that are kept more, or fewer, with one more or fewer who waits. */
function hold(record: EventRecord): number {
  const count = holders.get(record) ?? 0
  holders.set(record, count + 1)
  return count === 0 ? sizeOf(record) : 0
}

function letGo(record: EventRecord): number {
  const count = (holders.get(record) ?? 1) - 1
  holders.set(record, count)
  return count === 0 ? -sizeOf(record) : 0
}

function sizeOf(record: EventRecord): number {
  return RECORD_BYTES + wholeEvent(record).length + record.entityKeys.length * ID_BYTES
}
