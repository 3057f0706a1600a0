/**
 * Group commit: items that arrive while one batch is written become the next batch. There is no timer, the order is kept, and the
 * caller is answered after the commit.
 */
import { ServiceError } from '../errors/index.ts'
import { formatDurationMs, monotonicMs } from '../time.ts'
import type { CommitPolicy, Submitted } from './batch-commit.ts'
import { BatchCommitter } from './batch-commit.ts'

export type GroupCommitBounds<Item> = {
  /** The maximum number of items in one batch. */
  maxItems: number
  /** The maximum size of one batch, together with `sizeOf`. A single item above it is a batch of its own. */
  maxBytes?: number
  /** Items that wait. */
  maxQueuedItems: number
  maxQueuedBytes?: number
  sizeOf?: (item: Item) => number
  /** A caller that waits longer gets `timeout`: the outcome is unknown to them, and the item is still written. */
  answerDeadlineMs?: number
  /** Batches that may be written at the same time; defaults to 1. They begin in order; `mayShare` separates dependent ones. */
  maxInFlight?: number
  /** Work of an item; defaults to 1. Decides when a concurrent batch is worthwhile. */
  weightOf?: (item: Item) => number
}

export type GroupCommitOptions<Item, Result> = CommitPolicy<Item, Result> &
  GroupCommitBounds<Item> & {
    /** The name of the queue in error messages. */
    name: string
    observer?: CommitObserver
  }

/** Counts the events of a queue. */
export type CommitObserver = {
  /** A batch was written or refused; the time is that of all its attempts. */
  batch(items: number, durationMs: number): void
  /** An item was refused because the queue is full. */
  full(): void
  /** A caller received the error that the outcome is unknown. */
  late(): void
}

/** The `Retry-After` of a full queue in seconds: a batch takes milliseconds. */
const FULL_QUEUE_RETRY_SECONDS = 1
/** A concurrent batch begins when this fraction of the running batch's work waits. Smaller batches cost more in total. */
const WORTHWHILE_SHARE = 0.25
/** The length from which the consumed front of the queue is dropped at once: the cost stays proportional to the batch. */
const MIN_DROPPED_ITEMS = 1024

type Waiting<Item, Result> = Submitted<Item, Result> & { bytes: number; weight: number; sinceMs: number }

export class GroupCommit<Item, Result> {
  readonly #options: GroupCommitOptions<Item, Result>
  readonly #committer: BatchCommitter<Item, Result>
  #queue: Waiting<Item, Result>[] = []
  /** The index of the first item that waits. */
  #head = 0
  #queuedBytes = 0
  #queuedWeight = 0
  /** The batches are in the order in which they began. */
  readonly #inFlight = new Set<readonly Waiting<Item, Result>[]>()
  #weightInFlight = 0
  /** Items of batches in flight that have no outcome yet. */
  #beingWritten = 0
  #isScheduled = false
  #isClosed = false
  #deadline: NodeJS.Timeout | undefined
  #toldUpToMs = -Infinity
  /** Pending while there are items to write. */
  #working: PromiseWithResolvers<void> | undefined

  constructor(options: GroupCommitOptions<Item, Result>) {
    this.#options = options
    this.#committer = new BatchCommitter(options, (items) => (this.#beingWritten -= items))
  }

  /**
   * Resolves after the commit that contains the item. Rejects at once with `unavailable` when the queue is full or closed, or the
   * database is unavailable; with `timeout` when the outcome is not known in time; and with the item's own error from `commit`.
   */
  submit(item: Item): Promise<Result> {
    const { name, maxQueuedItems, maxQueuedBytes = Infinity, sizeOf, weightOf } = this.#options
    if (this.#isClosed) return Promise.reject(unavailable(`${name} is stopping`))
    const bytes = sizeOf === undefined ? 0 : sizeOf(item)
    const queued = this.#queue.length - this.#head
    if (queued >= maxQueuedItems || (this.#queuedBytes + bytes > maxQueuedBytes && queued > 0)) {
      this.#options.observer?.full()
      return Promise.reject(unavailable(`${name} is full, try again`))
    }
    const { promise, resolve, reject } = Promise.withResolvers<Result>()
    const weight = weightOf === undefined ? 1 : weightOf(item)
    this.#queue.push({ item, bytes, weight, sinceMs: monotonicMs(), resolve, reject })
    this.#queuedBytes += bytes
    this.#queuedWeight += weight
    this.#watchDeadline()
    this.#working ??= Promise.withResolvers()
    this.#beginSoon()
    return promise
  }

  /** Items that wait or are being written. */
  get pending(): number {
    return this.#queue.length - this.#head + this.#beingWritten
  }

  /** Bytes of the items that wait, by `sizeOf`. */
  get queuedBytes(): number {
    return this.#queuedBytes
  }

  /** Rejects new items, and resolves when all accepted items have their outcomes. */
  close(): Promise<void> {
    this.#isClosed = true
    return this.#working?.promise ?? Promise.resolve()
  }

  /** Waits one turn of the event loop, so that everything that has already arrived joins the batch. */
  #beginSoon(): void {
    if (this.#isScheduled || this.#inFlight.size >= (this.#options.maxInFlight ?? 1)) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      this.#beginBatches()
    })
  }

  #beginBatches(): void {
    while (this.#head < this.#queue.length && this.#mayBegin()) void this.#write(this.#takeBatch())
    if (this.#inFlight.size > 0 || this.#isScheduled) return
    this.#working?.resolve()
    this.#working = undefined
  }

  #mayBegin(): boolean {
    const { size } = this.#inFlight
    if (size === 0) return true
    return size < (this.#options.maxInFlight ?? 1) && this.#queuedWeight >= this.#weightInFlight * WORTHWHILE_SHARE
  }

  #takeBatch(): Waiting<Item, Result>[] {
    const { maxItems, maxBytes = Infinity } = this.#options
    const start = this.#head
    let bytes = 0
    while (this.#head < this.#queue.length && this.#head - start < maxItems) {
      const next = this.#queue[this.#head] as Waiting<Item, Result>
      if (this.#head > start && bytes + next.bytes > maxBytes) break
      bytes += next.bytes
      this.#head += 1
    }
    const batch = this.#queue.slice(start, this.#head)
    this.#queuedBytes -= bytes
    if (this.#head === this.#queue.length || (this.#head > MIN_DROPPED_ITEMS && this.#head * 2 > this.#queue.length)) {
      this.#queue = this.#queue.slice(this.#head)
      this.#head = 0
    }
    return batch
  }

  /** Never rejects. */
  async #write(batch: readonly Waiting<Item, Result>[]): Promise<void> {
    const weight = batch.reduce((sum, waiting) => sum + waiting.weight, 0)
    this.#inFlight.add(batch)
    this.#queuedWeight -= weight
    this.#weightInFlight += weight
    this.#beingWritten += batch.length
    const beganMs = monotonicMs()
    await this.#committer.write(batch)
    this.#options.observer?.batch(batch.length, monotonicMs() - beganMs)
    this.#inFlight.delete(batch)
    this.#weightInFlight -= weight
    this.#beginBatches()
  }

  /** One timer for all callers, set for the one that has waited longest without an answer. */
  #watchDeadline(): void {
    const { answerDeadlineMs } = this.#options
    if (answerDeadlineMs === undefined || this.#deadline !== undefined) return
    const oldest = this.#unanswered().find(({ sinceMs }) => sinceMs > this.#toldUpToMs)
    if (oldest === undefined) return
    // The deadline may have passed while the process was suspended.
    const leftMs = Math.max(0, oldest.sinceMs + answerDeadlineMs - monotonicMs())
    this.#deadline = setTimeout(() => this.#refuseLate(answerDeadlineMs), leftMs).unref()
  }

  #refuseLate(deadlineMs: number): void {
    this.#deadline = undefined
    this.#toldUpToMs = monotonicMs() - deadlineMs
    const { name } = this.#options
    const error = new ServiceError('timeout', `${name} did not answer within ${formatDurationMs(deadlineMs)}`)
    for (const waiting of this.#unanswered()) {
      if (waiting.sinceMs > this.#toldUpToMs) break
      waiting.reject(error)
      this.#options.observer?.late()
    }
    this.#watchDeadline()
  }

  /** Returns the items in the order of their arrival. */
  #unanswered(): Waiting<Item, Result>[] {
    return [...[...this.#inFlight].flat(), ...this.#queue.slice(this.#head)]
  }
}

function unavailable(message: string): ServiceError {
  return new ServiceError('unavailable', message, { retryAfterSeconds: FULL_QUEUE_RETRY_SECONDS })
}
