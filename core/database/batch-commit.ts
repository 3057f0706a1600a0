/**
 * One batch of a group commit, from its first attempt to one outcome per item. A transaction that ended without an answer is in
 * doubt: it is looked up before anything is repeated. A batch that PostgreSQL refuses is halved until the culprit stands alone.
 */
import { randomUUID } from 'node:crypto'
import { ServiceError } from '../errors/index.ts'
import type { Logger } from '../logging/index.ts'
import { monotonicMs, sleep } from '../time.ts'
import { isAnswered, isOutage, isRefusedData, isRepeatable, translateDatabaseError } from './errors.ts'
import type { BatchTurn } from './batch-turns.ts'
import { BatchTurns } from './batch-turns.ts'

/** A value, or the error that the item alone is refused with. */
export type ItemOutcome<Result> = Result | Error

/** A batch in one of its attempts, as the transaction sees it. */
export type Batch<Item, Result> = {
  /** The same over all attempts: written in the transaction, it shows a later attempt that an earlier one was committed. */
  readonly id: string
  readonly items: readonly Item[]
  /** Another batch may be written at the same time. */
  readonly isShared: boolean
  /** An earlier attempt may be committed: to be looked up before anything is written, or by a constraint that the write meets. */
  readonly isInDoubt: boolean
  /** To be called before anything is sent that could commit, with what holds for each item then. */
  committing(outcomes: readonly ItemOutcome<Result>[]): void
}

export type CommitPolicy<Item, Result> = {
  /** How the log and refusals speak of one item: `the message`. */
  item: string
  logger: Logger
  /** Ends the waiting for a database that is away. */
  signal?: AbortSignal
  /**
   * Writes and commits the batch in one transaction, within a deadline of its own, and returns one outcome per item, in order.
   * Leaves no open transaction behind when it throws.
   */
  commit: (batch: Batch<Item, Result>) => Promise<readonly ItemOutcome<Result>[]>
  /** True for the error that an attempt meets whose batch is committed already. */
  isCommittedBefore?: (error: unknown) => boolean
  /** Mends what the error names; true when the batch is worth another attempt. */
  mend?: (error: unknown) => boolean | Promise<boolean>
  /** What becomes of an item that PostgreSQL refuses when it stands alone; `internal` unless said. */
  refuseAlone?: (item: Item, error: unknown) => ItemOutcome<Result>
  /** The item is tried again for so long while the database is away, in milliseconds; 0 unless said. */
  whileAwayMs?: (item: Item) => number
  /** An item in doubt is looked up for at least so long, in milliseconds; 10,000 unless said. */
  inDoubtMs?: number
  /** What an item in doubt is refused with once nobody looks it up any more; `timeout` unless said. */
  refuseInDoubt?: (error: unknown) => Error
  /** Whether these items have nothing in common with those of another batch of which this is true; asked when their turn begins. */
  mayShare?: (items: readonly Item[]) => boolean
}

/** After that, whoever waits behind the batch should hear that the database is away. */
const IN_DOUBT_MS = 10_000
/** Between two attempts while the database is away. */
const RETRY_PAUSE_MS = 100
/** Deadlocks, serialisation failures and mended errors of one batch. */
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
  readonly #turns = new BatchTurns()

  /** `onSettled` is told of items right before their submitters are. */
  constructor(policy: CommitPolicy<Item, Result>, onSettled: (items: number) => void) {
    this.#policy = policy
    this.#onSettled = onSettled
  }

  /** Resolves when every submitter has its outcome. Never rejects. Batches begin in the order of the calls. */
  async write(submitted: readonly Submitted<Item, Result>[]): Promise<void> {
    const turn = new HeldTurn(this.#turns)
    const { mayShare } = this.#policy
    await turn.take(() => mayShare === undefined || mayShare(submitted.map(({ item }) => item)))
    try {
      await this.#commitOrHalve(submitted, turn)
    } finally {
      turn.giveBack()
    }
  }

  async #commitOrHalve(submitted: readonly Submitted<Item, Result>[], turn: HeldTurn): Promise<void> {
    const batch = new BatchInProgress<Item, Result>(submitted, this.#onSettled)
    try {
      batch.settle(await this.#commit(batch, turn))
    } catch (error) {
      if (!isRefusedData(error)) return this.#refuseAll(batch, error)
      if (batch.items.length === 1) return batch.settle([this.#refuseAlone(batch.items[0] as Item, error)])
      const middle = batch.items.length >> 1
      await this.#commitOrHalve(batch.submitted.slice(0, middle), turn)
      await this.#commitOrHalve(batch.submitted.slice(middle), turn)
    }
  }

  /** Throws where the batch is known not to be committed, and what its last items are refused with. */
  async #commit(batch: BatchInProgress<Item, Result>, turn: HeldTurn): Promise<readonly ItemOutcome<Result>[]> {
    const { commit, isCommittedBefore, mend, item, logger, signal } = this.#policy
    const sinceMs = monotonicMs()
    let repeats = 0
    for (;;) {
      batch.begin(turn.isShared)
      try {
        return await commit(batch)
      } catch (error) {
        if (batch.expected !== undefined && isCommittedBefore?.(error) === true) return batch.expected
        batch.fail(error)
        if (repeats < MAX_REPEATS && (isRepeatable(error) || (await mend?.(error)) === true)) {
          repeats += 1
          continue
        }
        if (!isOutage(error)) throw error
        this.#refuseLate(batch, error, monotonicMs() - sinceMs)
        if (batch.items.length === 0) return []
        if (batch.isInDoubt)
          logger.warn({ err: error, items: batch.items.length }, `commit outcome of ${item} unknown; checking`)
        // A repeated batch stands alone, and its pause is nobody else's.
        turn.giveBack()
        await sleep(RETRY_PAUSE_MS, signal).catch(() => undefined)
        await turn.take(() => false)
      }
    }
  }

  /** Those that have waited for as long as it is worth to them leave the batch. */
  #refuseLate(batch: BatchInProgress<Item, Result>, error: unknown, waitedMs: number): void {
    const { item: name, whileAwayMs, inDoubtMs = IN_DOUBT_MS, signal } = this.#policy
    const { refuseInDoubt = () => unanswered(name, error) } = this.#policy
    const refusal = batch.isInDoubt ? refuseInDoubt(error) : asServiceError(error)
    const doubtMs = batch.isInDoubt ? inDoubtMs : 0
    const isStopping = signal?.aborted === true
    batch.refuse(refusal, (item) => isStopping || waitedMs >= Math.max(doubtMs, whileAwayMs?.(item) ?? 0))
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

/** A batch over its attempts. */
class BatchInProgress<Item, Result> implements Batch<Item, Result> {
  readonly id = randomUUID()
  submitted: readonly Submitted<Item, Result>[]
  items: readonly Item[]
  isShared = true
  /** What holds if an earlier attempt turns out to be committed; undefined as long as none is in doubt. */
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
   * An attempt that was answered is rolled back. That says nothing of an earlier one, unless it got as far as its data, which
   * are written after the look-up.
   */
  fail(error: unknown): void {
    if (isAnswered(error) && (!this.#wasInDoubt || isRefusedData(error))) this.expected = undefined
  }

  /** The chosen items leave the batch. */
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

/** A turn that a batch has, gives back while it waits, and takes again. */
class HeldTurn {
  readonly #turns: BatchTurns
  #turn: BatchTurn | undefined

  constructor(turns: BatchTurns) {
    this.#turns = turns
  }

  get isShared(): boolean {
    return this.#turn === 'shared'
  }

  async take(mayShare: () => boolean): Promise<void> {
    this.#turn = await this.#turns.take(mayShare)
  }

  giveBack(): void {
    if (this.#turn !== undefined) this.#turns.giveBack(this.#turn)
    this.#turn = undefined
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
