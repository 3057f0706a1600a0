/**
 * One batch of a group commit, from its first attempt to one outcome per item. A transaction that ends without an answer is in
 * doubt and is looked up before it is repeated. A batch that PostgreSQL refuses is halved until the invalid item is alone.
 */
import { randomUUID } from 'node:crypto'
import { ServiceError } from '../errors/index.ts'
import type { Logger } from '../logging/index.ts'
import { monotonicMs, sleep } from '../time.ts'
import { isAnswered, isOutage, isRefusedData, isRepeatable, translateDatabaseError } from './errors.ts'
import type { BatchLockMode } from './batch-lock.ts'
import { BatchLock } from './batch-lock.ts'

/** A value, or the error of this item. */
export type ItemOutcome<Result> = Result | Error

/** A batch in one attempt, as the transaction sees it. */
export type Batch<Item, Result> = {
  /**
   * The id is the same in all attempts. It is written in the transaction, and so shows a later attempt that an earlier one was committed.
   */
  readonly id: string
  readonly items: readonly Item[]
  /** Another batch may be written at the same time. */
  readonly isShared: boolean
  /** An earlier attempt may be committed: look it up before writing, or rely on a constraint that the write violates. */
  readonly isInDoubt: boolean
  /** Call it before sending anything that could commit, with the outcomes that a commit would give. */
  committing(outcomes: readonly ItemOutcome<Result>[]): void
}

export type CommitPolicy<Item, Result> = {
  /** The name of one item in log lines and errors: `the message`. */
  item: string
  logger: Logger
  /** Ends the wait for an unavailable database. */
  signal?: AbortSignal
  /**
   * Writes and commits the batch in one transaction, within its own deadline, and returns one outcome per item, in order.
   * Leaves no open transaction when it throws.
   */
  commit: (batch: Batch<Item, Result>) => Promise<readonly ItemOutcome<Result>[]>
  /** True for the error of an attempt whose batch was committed earlier. */
  isCommittedBefore?: (error: unknown) => boolean
  /** Awaited before a batch that was in doubt is answered: what the look-up saw may not be on a synchronous standby yet. */
  replicated?: () => Promise<unknown>
  /** Repairs the cause of the error; true when the batch should be repeated. */
  repair?: (error: unknown) => boolean | Promise<boolean>
  /** The outcome of a single item that PostgreSQL refuses; defaults to an `internal` error. */
  refuseAlone?: (item: Item, error: unknown) => ItemOutcome<Result>
  /** How long the item is retried while the database is unavailable, in milliseconds; defaults to 0. */
  retryMs?: (item: Item) => number
  /** The minimum time for which an item in doubt is looked up, in milliseconds; defaults to 10,000. */
  inDoubtMs?: number
  /** The error of an item in doubt when the look-ups end; defaults to `timeout`. */
  refuseInDoubt?: (error: unknown) => Error
  /** Whether these items are independent of another batch for which this is true; called when the lock is acquired. */
  mayShare?: (items: readonly Item[]) => boolean
}

/** After this, callers that wait behind the batch should learn that the database is unavailable. */
const IN_DOUBT_MS = 10_000
/** The pause between two attempts while the database is unavailable. */
const RETRY_PAUSE_MS = 100
/** The maximum number of repetitions of one batch after deadlocks, serialization failures and repaired errors. */
const MAX_REPEATS = 4

/** An item whose submitter waits for its outcome. */
export type Submitted<Item, Result> = {
  readonly item: Item
  resolve(result: Result): void
  reject(error: unknown): void
}

export class BatchCommitter<Item, Result> {
  readonly #policy: CommitPolicy<Item, Result>
  readonly #onSettled: (items: number) => void
  readonly #lock = new BatchLock()

  /** `onSettled` is called before the submitters of the items are answered. */
  constructor(policy: CommitPolicy<Item, Result>, onSettled: (items: number) => void) {
    this.#policy = policy
    this.#onSettled = onSettled
  }

  /** Resolves when every submitter has its outcome. Never rejects. Batches begin in the order of the calls. */
  async write(submitted: readonly Submitted<Item, Result>[]): Promise<void> {
    const lock = new RenewableLock(this.#lock)
    const { mayShare } = this.#policy
    await lock.acquire(() => mayShare === undefined || mayShare(submitted.map(({ item }) => item)))
    try {
      await this.#commitOrHalve(submitted, lock)
    } finally {
      lock.release()
    }
  }

  async #commitOrHalve(submitted: readonly Submitted<Item, Result>[], lock: RenewableLock): Promise<void> {
    const batch = new BatchInProgress<Item, Result>(submitted, this.#onSettled)
    try {
      batch.settle(await this.#commit(batch, lock))
    } catch (error) {
      if (!isRefusedData(error)) return this.#refuseAll(batch, error)
      if (batch.items.length === 1) return batch.settle([this.#refuseAlone(batch.items[0] as Item, error)])
      const middle = batch.items.length >> 1
      await this.#commitOrHalve(batch.submitted.slice(0, middle), lock)
      await this.#commitOrHalve(batch.submitted.slice(middle), lock)
    }
  }

  /** Throws when the batch is known not to be committed; the error becomes that of its remaining items. */
  async #commit(batch: BatchInProgress<Item, Result>, lock: RenewableLock): Promise<readonly ItemOutcome<Result>[]> {
    const { repair, item, logger, signal } = this.#policy
    const sinceMs = monotonicMs()
    let repeats = 0
    for (;;) {
      batch.begin(lock.isShared)
      try {
        return await this.#attempt(batch)
      } catch (error) {
        batch.fail(error)
        if (repeats < MAX_REPEATS && (isRepeatable(error) || (await repair?.(error)) === true)) {
          repeats += 1
          continue
        }
        if (!isOutage(error)) throw error
        this.#refuseLate(batch, error, monotonicMs() - sinceMs)
        if (batch.items.length === 0) return []
        if (batch.isInDoubt)
          logger.warn({ err: error, items: batch.items.length }, `commit outcome of ${item} unknown; checking`)
        // A repeated batch runs alone, and its pause must not delay other batches.
        lock.release()
        await sleep(RETRY_PAUSE_MS, signal).catch(() => undefined)
        await lock.acquire(() => false)
      }
    }
  }

  async #attempt(batch: BatchInProgress<Item, Result>): Promise<readonly ItemOutcome<Result>[]> {
    const { commit, isCommittedBefore, replicated } = this.#policy
    const { isInDoubt } = batch
    let outcomes: readonly ItemOutcome<Result>[]
    try {
      outcomes = await commit(batch)
    } catch (error) {
      if (batch.expected === undefined || isCommittedBefore?.(error) !== true) throw error
      outcomes = batch.expected
    }
    if (isInDoubt) await replicated?.()
    return outcomes
  }

  /** Removes the items whose retry time is over. */
  #refuseLate(batch: BatchInProgress<Item, Result>, error: unknown, waitedMs: number): void {
    const { item: name, retryMs, inDoubtMs = IN_DOUBT_MS, signal } = this.#policy
    const { refuseInDoubt = () => unanswered(name, error) } = this.#policy
    const refusal = batch.isInDoubt ? refuseInDoubt(error) : asServiceError(error)
    const doubtMs = batch.isInDoubt ? inDoubtMs : 0
    const isStopping = signal?.aborted === true
    batch.refuse(refusal, (item) => isStopping || waitedMs >= Math.max(doubtMs, retryMs?.(item) ?? 0))
  }

  #refuseAll(batch: BatchInProgress<Item, Result>, error: unknown): void {
    const refusal = asServiceError(error)
    if (refusal.kind === 'internal')
      this.#policy.logger.error({ err: error, items: batch.items.length }, `failed to write ${this.#policy.item}`)
    batch.refuse(refusal, () => true)
  }

  #refuseAlone(item: Item, error: unknown): ItemOutcome<Result> {
    const { refuseAlone, logger, item: name } = this.#policy
    if (refuseAlone !== undefined) return refuseAlone(item, error)
    logger.error({ err: error }, `the database refused ${name}`)
    return asServiceError(error)
  }
}

/** The state of a batch across its attempts. */
class BatchInProgress<Item, Result> implements Batch<Item, Result> {
  readonly id = randomUUID()
  submitted: readonly Submitted<Item, Result>[]
  items: readonly Item[]
  isShared = true
  /** The outcomes if an earlier attempt is found to be committed; undefined while none is in doubt. */
  expected: readonly ItemOutcome<Result>[] | undefined
  readonly #onSettled: (items: number) => void
  #wasInDoubt = false

  constructor(submitted: readonly Submitted<Item, Result>[], onSettled: (items: number) => void) {
    this.submitted = submitted
    this.#onSettled = onSettled
    this.items = submitted.map(({ item }) => item)
  }

  get isInDoubt(): boolean {
    return this.expected !== undefined
  }

  begin(isShared: boolean): void {
    this.isShared = isShared
    this.#wasInDoubt = this.isInDoubt
  }

  committing(outcomes: readonly ItemOutcome<Result>[]): void {
    this.expected ??= outcomes
  }

  /**
   * An attempt that was answered with an error is rolled back. An earlier attempt stays in doubt, unless this one reached its
   * data, which are written after the look-up.
   */
  fail(error: unknown): void {
    if (isAnswered(error) && (!this.#wasInDoubt || isRefusedData(error))) this.expected = undefined
  }

  /** Removes the chosen items from the batch. */
  refuse(refusal: Error, isChosen: (item: Item) => boolean): void {
    const isLeaving = this.items.map(isChosen)
    const stay = <T>(list: readonly T[]): T[] => list.filter((_, index) => isLeaving[index] !== true)
    const leaving = this.submitted.filter((_, index) => isLeaving[index])
    this.submitted = stay(this.submitted)
    this.items = stay(this.items)
    if (this.expected !== undefined) this.expected = stay(this.expected)
    this.#onSettled(leaving.length)
    for (const { reject } of leaving) reject(refusal)
  }

  settle(outcomes: readonly ItemOutcome<Result>[]): void {
    if (outcomes.length !== this.submitted.length)
      throw new Error(`${outcomes.length} outcomes for ${this.submitted.length} items`)
    this.#onSettled(outcomes.length)
    this.submitted.forEach(({ resolve, reject }, index) => {
      const outcome = outcomes[index] as ItemOutcome<Result>
      if (outcome instanceof Error) reject(outcome)
      else resolve(outcome)
    })
  }
}

/** The lock of a batch, which releases it while it waits and then acquires it again. */
class RenewableLock {
  readonly #lock: BatchLock
  #mode: BatchLockMode | undefined

  constructor(lock: BatchLock) {
    this.#lock = lock
  }

  get isShared(): boolean {
    return this.#mode === 'shared'
  }

  async acquire(mayShare: () => boolean): Promise<void> {
    this.#mode = await this.#lock.acquire(mayShare)
  }

  release(): void {
    if (this.#mode !== undefined) this.#lock.release(this.#mode)
    this.#mode = undefined
  }
}

function unanswered(item: string, cause: unknown): ServiceError {
  return new ServiceError('timeout', `the database did not say whether ${item} was stored`, { cause })
}

function asServiceError(error: unknown): ServiceError {
  const translated = translateDatabaseError(error)
  return translated instanceof ServiceError
    ? translated
    : new ServiceError('internal', 'internal error', { cause: error })
}
