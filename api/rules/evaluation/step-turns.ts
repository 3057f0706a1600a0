/**
 * The evaluations of one step, in turns of the event loop. A step ends early when they took long enough, or cause enough: while it lasts others wait,
 * its transaction holds readers of the changelog back, and PostgreSQL takes no text of any size.
 */
import type { Transaction } from '#core/database/index.ts'
import { monotonicMs } from '#core/time.ts'
import { createTurns } from '#core/turns.ts'
import { keepAlive } from './repository.ts'

const MAX_EVALUATED_MS = 250
/** Characters of what the step causes: alarms, publications, starts and notifications. */
const MAX_CAUSED_CHARS = 4 * 1024 * 1024
/** The longest time without a statement in the transaction of a step. */
const KEEP_ALIVE_MS = 1_000

export class StepTurns {
  readonly #tx: Transaction
  readonly #caused: { readonly chars: number }
  readonly #turns = createTurns()
  readonly #begunMs = monotonicMs()
  #sentMs = this.#begunMs

  constructor(tx: Transaction, caused: { readonly chars: number }) {
    this.#tx = tx
    this.#caused = caused
  }

  /** Whether the current turn of the event loop is used up. */
  get isOver(): boolean {
    return this.#turns.isOver
  }

  /** Whether the step should end as soon as it can. */
  get isFull(): boolean {
    return monotonicMs() - this.#begunMs > MAX_EVALUATED_MS || this.#caused.chars > MAX_CAUSED_CHARS
  }

  /** Resolves in a later turn of the event loop. */
  async next(): Promise<void> {
    await this.#turns.next()
    // PostgreSQL ends a transaction that waits for its client for too long.
    if (monotonicMs() - this.#sentMs <= KEEP_ALIVE_MS) return
    await keepAlive(this.#tx)
    this.#sentMs = monotonicMs()
  }

  /** Does the work for each, and at least for the first. True: some are left. */
  async forEach<Item>(items: readonly Item[], work: (item: Item) => void): Promise<boolean> {
    for (const [index, item] of items.entries()) {
      if (index > 0 && this.isFull) return true
      if (this.isOver) await this.next()
      work(item)
    }
    return false
  }
}
