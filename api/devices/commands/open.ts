/**
 * Looks for open commands of clients. Clients that ask while a statement runs are in the next one: when all connections come back at once, each of
 * them asks. Payloads are read only where there is something to send, and a bounded number of bytes at a time.
 */
import { GroupCommit } from '#core/database/index.ts'
import type { Queryable } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { listOpenOf, summarizeOpen } from './repository.ts'
import type { AskedOpen, Offered, OpenSummary } from './repository.ts'

/** Clients of one statement. */
const MAX_SUMMARIES = 500
const MAX_LISTS = 50
/** Bytes of the payloads that one statement reads. */
const MAX_BYTES = 4 * 1_048_576
const MAX_QUEUED = 100_000

const NONE: OpenSummary = { newest: 0, bytes: 0 }

export class OpenCommands {
  readonly #summaries: GroupCommit<number, OpenSummary>
  readonly #lists: GroupCommit<AskedOpen & { bytes: number }, readonly Offered[]>

  constructor(db: Queryable, logger: Logger) {
    this.#summaries = new GroupCommit({
      name: 'the look-up of open commands',
      item: 'the look-up of open commands',
      logger,
      maxItems: MAX_SUMMARIES,
      maxQueuedItems: MAX_QUEUED,
      commit: async ({ items }) => {
        const found = await summarizeOpen(db, [...new Set(items)])
        return items.map((key) => found.get(key) ?? NONE)
      },
    })
    this.#lists = new GroupCommit({
      name: 'the reading of open commands',
      item: 'the reading of open commands',
      logger,
      maxItems: MAX_LISTS,
      maxBytes: MAX_BYTES,
      sizeOf: ({ bytes }) => bytes,
      maxQueuedItems: MAX_QUEUED,
      commit: async ({ items }) => await listOpenOf(db, items),
    })
  }

  /** The greatest key of the client's open commands; 0: it has none. */
  async newest(clientKey: number): Promise<number> {
    return (await this.#summaries.submit(clientKey)).newest
  }

  /** The open commands with a greater key, in the order of their creation. */
  async list(clientKey: number, after: number): Promise<readonly Offered[]> {
    const { newest, bytes } = await this.#summaries.submit(clientKey)
    return newest <= after ? [] : await this.#lists.submit({ clientKey, after, bytes })
  }
}
