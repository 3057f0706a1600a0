/**
 * Group commit: what arrives while one batch is being written becomes the next one. No timer, order kept, the answer after the
 * commit.
 */
import { ServiceError } from '../errors/index.ts'
import { formatDurationMs, monotonicMs } from '../time.ts'
import type { CommitPolicy, Submitted } from './batch-commit.ts'
import { BatchCommitter } from './batch-commit.ts'

export type GroupCommitBounds<Item> = {
  /** Of one batch. */
  maxItems: number
  /** Of one batch, together with `sizeOf`; a single item above it is a batch of its own. */
  maxBytes?: number
  /** Items that wait. */
  maxQueuedItems: number
  maxQueuedBytes?: number
  sizeOf?: (item: Item) => number
  /** Whoever waits longer is told `timeout`: the outcome is unknown to them, their item is written all the same. */
  answerDeadlineMs?: number
  /** Batches that may be written at a time, 1 unless said. They begin in order; `mayShare` keeps apart what needs it. */
  maxInFlight?: number
  /** Work in an item, 1 unless said: decides when it is worth it to begin another batch beside one. */
  weightOf?: (item: Item) => number
}

export type GroupCommitOptions<Item, Result> = CommitPolicy<Item, Result> &
  GroupCommitBounds<Item> & {
    /** How refusals call the queue. */
    name: string
  }

/** Seconds that a caller is told to wait when the queue is full: a batch takes milliseconds. */
const FULL_QUEUE_RETRY_SECONDS = 1
/** A batch begins beside another one when so much of that one's work waits; sooner, both would be small ones and cost more. */
const WORTHWHILE_SHARE = 0.25
/** The consumed front of the queue is dropped from this length on, in one go: taking a batch stays proportional to the batch. */
const MIN_DROPPED_ITEMS = 1024

type Waiting<Item, Result> = Submitted<Item, Result> & { bytes: number; weight: number; sinceMs: number }

export class GroupCommit<Item, Result> {
  readonly #options: GroupCommitOptions<Item, Result>
  readonly #committer: BatchCommitter<Item, Result>
  #queue: Waiting<Item, Result>[] = []
  /** Where the items begin that wait. */
  #head = 0
  #queuedBytes = 0
  #queuedWeight = 0
  /** In the order in which they began. */
  readonly #inFlight = new Set<readonly Waiting<Item, Result>[]>()
  #weightInFlight = 0
  /** Items of batches in flight that have no outcome yet. */
  #beingWritten = 0
  #isScheduled = false
  #isClosed = false
  #deadline: NodeJS.Timeout | undefined
  #toldUpToMs = -Infinity
  /** While there is anything to write. */
  #working: PromiseWithResolvers<void> | undefined

  constructor(options: GroupCommitOptions<Item, Result>) {
    this.#options = options
    this.#committer = new BatchCommitter(options, (items) => (this.#beingWritten -= items))
  }

  /**
   * Resolves after the commit that holds the item. Rejects with `unavailable` at once when the queue is full or closed, and
   * when the database is away; with `timeout` when the outcome is not known in time; with what `commit` refuses the item with.
   */
  submit(item: Item): Promise<Result> {
    const { name, maxQueuedItems, maxQueuedBytes = Infinity, sizeOf, weightOf } = this.#options
    if (this.#isClosed) return Promise.reject(unavailable(`${name} is stopping`))
    const bytes = sizeOf === undefined ? 0 : sizeOf(item)
    const queued = this.#queue.length - this.#head
    if (queued >= maxQueuedItems || (this.#queuedBytes + bytes > maxQueuedBytes && queued > 0))
      return Promise.reject(unavailable(`${name} is full, try again`))
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

  /** Takes nothing more and resolves when everything taken was written or refused. */
  close(): Promise<void> {
    this.#isClosed = true
    return this.#working?.promise ?? Promise.resolve()
  }

  /** One turn of the event loop lets everything that has already arrived join the batch. */
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
    await this.#committer.write(batch)
    this.#inFlight.delete(batch)
    this.#weightInFlight -= weight
    this.#beginBatches()
  }

  /** One timer for all of them, set for the one that has waited longest and was not told. */
  #watchDeadline(): void {
    const { answerDeadlineMs } = this.#options
    if (answerDeadlineMs === undefined || this.#deadline !== undefined) return
    const oldest = this.#unanswered().find(({ sinceMs }) => sinceMs > this.#toldUpToMs)
    if (oldest === undefined) return
    // The moment may be over: the process did not run for a while.
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
    }
    this.#watchDeadline()
  }

  /** In the order of arrival. */
  #unanswered(): Waiting<Item, Result>[] {
    return [...[...this.#inFlight].flat(), ...this.#queue.slice(this.#head)]
  }
}

function unavailable(message: string): ServiceError {
  return new ServiceError('unavailable', message, { retryAfterSeconds: FULL_QUEUE_RETRY_SECONDS })
}
