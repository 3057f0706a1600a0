/** One open event stream: the bounded buffer of records to write, and the reason of its end. */
import type { EndReason } from '#http/index.ts'
import { LOG_START, comparePositions } from '#core/changelog/index.ts'
import type { Position } from '#core/changelog/index.ts'
import type { EventRecord } from './event.ts'
import { wholeEvent } from './event.ts'

/** Maximum number of records that wait for one slow reader. */
export const MAX_WAITING_RECORDS = 1000
/**
 * Approximate memory that they may use for longer than `SPARED_MS`. The budget of the process bounds shorter bursts.
 */
export const MAX_WAITING_BYTES = 4 * 1024 * 1024
/**
 * Older transactions can delay records, which then arrive in a burst. A reader of normal speed writes a burst in less
 * than this time.
 */
const SPARED_MS = 1_000
/** Memory of a record without its text. */
const RECORD_BYTES = 500
/** Memory of an id in a list, with its key. */
const ID_BYTES = 60

/** The reason why a subscription ended. */
export type SubscriberEnd = Extract<EndReason, 'slow_reader' | 'unauthenticated' | 'forbidden' | 'stopping' | 'closed'>

export type Turn = { records: EventRecord[] } | { ended: SubscriberEnd }

export class Subscriber {
  readonly domainKey: number
  /** Records up to this position are skipped. */
  after: Position = LOG_START
  /** Throws when the caller has lost access. */
  readonly authorize: () => Promise<void>
  readonly #onEnd: (reason: SubscriberEnd) => void
  readonly #keep: (bytes: number) => void
  readonly #sparedMs: number
  /** Records that are being written. */
  #inHand: EventRecord[] = []
  #waiting: EventRecord[] = []
  #waitingBytes = 0
  /** Timer that runs while the buffer exceeds its limit. */
  #sparing: NodeJS.Timeout | undefined
  #ended: SubscriberEnd | undefined
  #wake: (() => void) | undefined

  constructor(options: {
    domainKey: number
    authorize: () => Promise<void>
    /** Called once and immediately, because the writer can be blocked by a reader that reads nothing. */
    onEnd: (reason: SubscriberEnd) => void
    /**
     * Reports the change in bytes that all subscribers together keep. A record that several wait for is accounted once.
     */
    keep: (bytes: number) => void
    /** How long the buffer may exceed its limit, in milliseconds. */
    sparedMs?: number
  }) {
    this.domainKey = options.domainKey
    this.authorize = options.authorize
    this.#onEnd = options.onEnd
    this.#keep = options.keep
    this.#sparedMs = options.sparedMs ?? SPARED_MS
  }

  /** Approximate memory of the waiting records and of those being written. Other subscribers can share them. */
  get keptBytes(): number {
    return [...this.#inHand, ...this.#waiting].reduce((sum, record) => sum + sizeOf(record), 0)
  }

  get ended(): SubscriberEnd | undefined {
    return this.#ended
  }

  /** The fan-out calls it for each record of the domain. Records up to `after` are skipped. */
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

  /** Ends the stream and drops the waiting records. */
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

  /** Returns the next records to write. The previous ones are released. */
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
    for (const record of records) bytes += drop(record)
    if (bytes !== 0) this.#keep(bytes)
  }
}

/** Number of subscribers that wait for a record. */
const holders = new WeakMap<EventRecord, number>()

/** Returns the change in kept bytes when one more subscriber waits for the record. */
function hold(record: EventRecord): number {
  const count = holders.get(record) ?? 0
  holders.set(record, count + 1)
  return count === 0 ? sizeOf(record) : 0
}

function drop(record: EventRecord): number {
  const count = (holders.get(record) ?? 1) - 1
  holders.set(record, count)
  return count === 0 ? -sizeOf(record) : 0
}

function sizeOf(record: EventRecord): number {
  return RECORD_BYTES + wholeEvent(record).length + record.entityKeys.length * ID_BYTES
}
