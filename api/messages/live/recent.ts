/** What was stored a moment ago, kept until the fan-out has read of it in the log: it need not be loaded then. */
import { LRUCache } from 'lru-cache'
import type { LiveMessage } from './live-message.ts'

/** Beyond this the oldest are forgotten, and loaded when they are wanted. */
const MAX_BYTES = 16 * 1024 * 1024
const BATCH_BYTES = 200
const MESSAGE_BYTES = 300

type Batch = { messages: readonly LiveMessage[]; asOf: number }

export class RecentBatches {
  readonly #batches = new LRUCache<number, Batch>({
    maxSize: MAX_BYTES,
    sizeCalculation: ({ messages }) =>
      messages.reduce((sum, { payload }) => sum + MESSAGE_BYTES + payload.length, BATCH_BYTES),
  })

  /** `asOf`: the state of the followers by which these were chosen from the batch. */
  add(batchSeq: number, messages: readonly LiveMessage[], asOf: number): void {
    this.#batches.set(batchSeq, { messages, asOf })
  }

  /** The followed messages of a batch, once; undefined when it must be loaded: unknown, or another channel is followed since. */
  take(batchSeq: number, asOf: number): readonly LiveMessage[] | undefined {
    const batch = this.#batches.get(batchSeq)
    this.#batches.delete(batchSeq)
    return batch?.asOf === asOf ? batch.messages : undefined
  }

  clear(): void {
    this.#batches.clear()
  }
}
