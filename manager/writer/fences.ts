/**
 * Fences in advance: numbers of the sequence of fences that this manager has taken from the database, for runs that are sent to a
 * worker before they are recorded. Each is given to one assignment.
 */
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { takeFences } from '../store/run-queue.ts'

/** A block of fences is taken with one statement; those that are left when the process ends are never used. */
const BLOCK = 1_000
/** Another block is taken when fewer are left. */
const MIN_LEFT = 500

export class Fences {
  readonly #database: Pick<Database, 'db'>
  readonly #logger: Logger
  readonly #left: number[] = []
  #isTaking = false

  constructor(database: Pick<Database, 'db'>, logger: Logger) {
    this.#database = database
    this.#logger = logger
  }

  /** Undefined: none is left, and more are being taken. */
  next(): number | undefined {
    if (this.#left.length < MIN_LEFT) void this.#take()
    return this.#left.pop()
  }

  async #take(): Promise<void> {
    if (this.#isTaking) return
    this.#isTaking = true
    try {
      const fences = await takeFences(this.#database, BLOCK)
      this.#left.unshift(...fences)
    } catch (error) {
      this.#logger.debug({ err: error }, 'failed to take fences in advance')
    } finally {
      this.#isTaking = false
    }
  }
}
