/**
 * Group commit: what arrives while one batch is being written becomes the next one. No timer, order kept.
 * Messages use it per lane, task state changes per manager; both answer their caller after the commit.
 */
import { ServiceError } from '../errors/index.ts'
import { formatDurationMs, monotonicMs } from '../time.ts'

export type BatcherOptions<Item, Result> = {
  name: string
  maxItems: number
  /** Together with `sizeOf`; a single item above it is a batch of its own. */
  maxBytes?: number
  maxQueuedItems: number
  maxQueuedBytes?: number
  sizeOf?: (item: Item) => number
  /** Who waits longer is told `timeout`: the outcome is unknown to him, his item is written all the same. */
  answerDeadlineMs?: number
  /**
   * Batches that may be written at a time, 1 unless said. They begin in order; `write` keeps apart what may not be written at the
   * same time, by waiting.
   */
  maxInFlight?: number
  /** Work in an item, 1 unless said: decides when it is worth it to begin another batch beside one. */
  weightOf?: (item: Item) => number
  /**
   * Writes one batch in one transaction and returns one outcome per item, in order: a value, or the error that this
   * item alone is refused with. Throwing refuses the whole batch.
   */
  write: (items: readonly Item[]) => Promise<readonly (Result | Error)[]>
}

export type Batcher<Item, Result> = {
  /** Resolves after the commit that holds the item. Rejects with `unavailable` at once when the queue is full or closed. */
  submit(item: Item): Promise<Result>
  /** Items that wait or are being written. */
  readonly pending: number
  /** Bytes of the items that wait, by `sizeOf`. */
  readonly queuedBytes: number
  /** Takes nothing more and resolves when everything taken was written. */
  close(): Promise<void>
}

/** Seconds that a caller is told to wait when the queue is full: a batch takes milliseconds. */
const FULL_QUEUE_RETRY_SECONDS = 1
/** A batch begins beside another one when so much of that one's work waits; sooner, both would be small ones and cost more. */
const WORTHWHILE_SHARE = 0.25

type Waiting<Item, Result> = {
  item: Item
  bytes: number
  weight: number
  sinceMs: number
  resolve: (result: Result) => void
  reject: (error: unknown) => void
}

export function createBatcher<Item, Result>(options: BatcherOptions<Item, Result>): Batcher<Item, Result> {
  const { name, maxItems, maxQueuedItems, sizeOf = () => 0, answerDeadlineMs, write } = options
  const maxBytes = options.maxBytes ?? Infinity
  const maxQueuedBytes = options.maxQueuedBytes ?? Infinity
  const { maxInFlight = 1, weightOf = () => 1 } = options
  let queue: Waiting<Item, Result>[] = []
  let head = 0
  let queuedBytes = 0
  /** In the order in which they began. */
  const inFlight = new Set<readonly Waiting<Item, Result>[]>()
  let queuedWeight = 0
  let weightInFlight = 0
  let isScheduled = false
  let closed = false
  let deadline: NodeJS.Timeout | undefined
  let toldUpToMs = -Infinity
  /** While there is anything to write. */
  let working: PromiseWithResolvers<void> | undefined

  function takeBatch(): Waiting<Item, Result>[] {
    const start = head
    let bytes = 0
    while (head < queue.length && head - start < maxItems) {
      const next = queue[head] as Waiting<Item, Result>
      if (head > start && bytes + next.bytes > maxBytes) break
      bytes += next.bytes
      head += 1
    }
    const batch = queue.slice(start, head)
    queuedBytes -= bytes
    // The consumed front is dropped in one go, so that taking a batch stays proportional to the batch.
    if (head === queue.length) {
      queue = []
      head = 0
    } else if (head > 1024 && head * 2 > queue.length) {
      queue = queue.slice(head)
      head = 0
    }
    return batch
  }

  /** One timer for all of them, set for the one that has waited longest and was not told. */
  function watchDeadline(): void {
    if (answerDeadlineMs === undefined || deadline !== undefined) return
    const oldest = [...[...inFlight].flat(), ...queue.slice(head)].find(({ sinceMs }) => sinceMs > toldUpToMs)
    if (oldest === undefined) return
    // The moment may be over: the process did not run for a while.
    const leftMs = Math.max(0, oldest.sinceMs + answerDeadlineMs - monotonicMs())
    deadline = setTimeout(refuseLate, leftMs, answerDeadlineMs).unref()
  }

  function refuseLate(deadlineMs: number): void {
    deadline = undefined
    toldUpToMs = monotonicMs() - deadlineMs
    const error = new ServiceError('timeout', `${name} did not answer within ${formatDurationMs(deadlineMs)}`)
    for (const waiting of [...[...inFlight].flat(), ...queue.slice(head)]) {
      if (waiting.sinceMs > toldUpToMs) break
      waiting.reject(error)
    }
    watchDeadline()
  }

  /** One turn of the event loop lets everything that has already arrived join the batch. */
  function beginSoon(): void {
    if (isScheduled || inFlight.size >= maxInFlight) return
    isScheduled = true
    setImmediate(() => {
      isScheduled = false
      beginBatches()
    })
  }

  function beginBatches(): void {
    while (head < queue.length && mayBegin()) void writeBatch(takeBatch())
    if (inFlight.size > 0 || isScheduled) return
    working?.resolve()
    working = undefined
  }

  function mayBegin(): boolean {
    return inFlight.size === 0 || (inFlight.size < maxInFlight && queuedWeight >= weightInFlight * WORTHWHILE_SHARE)
  }

  /** Never rejects. */
  async function writeBatch(batch: readonly Waiting<Item, Result>[]): Promise<void> {
    const weight = batch.reduce((sum, waiting) => sum + waiting.weight, 0)
    inFlight.add(batch)
    queuedWeight -= weight
    weightInFlight += weight
    try {
      const outcomes = await write(batch.map((waiting) => waiting.item))
      if (outcomes.length !== batch.length)
        throw new Error(`${name}: ${outcomes.length} outcomes for ${batch.length} items`)
      batch.forEach((waiting, index) => {
        const outcome = outcomes[index] as Result | Error
        if (outcome instanceof Error) waiting.reject(outcome)
        else waiting.resolve(outcome)
      })
    } catch (error) {
      for (const waiting of batch) waiting.reject(error)
    }
    inFlight.delete(batch)
    weightInFlight -= weight
    beginBatches()
  }

  return {
    submit(item) {
      if (closed)
        return Promise.reject(
          new ServiceError('unavailable', `${name} is stopping`, { retryAfterSeconds: FULL_QUEUE_RETRY_SECONDS }),
        )
      const bytes = sizeOf(item)
      if (queue.length - head >= maxQueuedItems || (queuedBytes + bytes > maxQueuedBytes && queue.length > head)) {
        return Promise.reject(
          new ServiceError('unavailable', `${name} is full, try again`, {
            retryAfterSeconds: FULL_QUEUE_RETRY_SECONDS,
          }),
        )
      }
      const { promise, resolve, reject } = Promise.withResolvers<Result>()
      const weight = weightOf(item)
      queue.push({ item, bytes, weight, sinceMs: monotonicMs(), resolve, reject })
      queuedBytes += bytes
      queuedWeight += weight
      watchDeadline()
      working ??= Promise.withResolvers()
      beginSoon()
      return promise
    },
    get pending() {
      return [...inFlight].reduce((sum, batch) => sum + batch.length, queue.length - head)
    },
    get queuedBytes() {
      return queuedBytes
    },
    close() {
      closed = true
      return working?.promise ?? Promise.resolve()
    },
  }
}
