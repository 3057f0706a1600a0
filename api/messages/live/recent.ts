/** Keeps recently stored batches until the fan-out has read them in the changelog, so that they need not be loaded. */
import { BoundedCache } from '#core/bounded-cache.ts'
import type { LiveMessage } from './live-message.ts'

/** Above this size the oldest batches are dropped, and loaded when they are needed. */
const MAX_BYTES = 16 * 1024 * 1024
const BATCH_BYTES = 200
const MESSAGE_BYTES = 300

type Batch = { messages: readonly LiveMessage[]; asOf: number }

export class RecentBatches {
  readonly #batches = new BoundedCache<number, Batch>({
    maxSize: MAX_BYTES,
    sizeOf: ({ messages }) => messages.reduce((sum, { payload }) => sum + MESSAGE_BYTES + payload.length, BATCH_BYTES),
  })

  /** `asOf`: the state of the followers by which the messages were selected from the batch. */
  add(batchSeq: number, messages: readonly LiveMessage[], asOf: number): void {
    this.#batches.set(batchSeq, { messages, asOf })
  }

  /** Takes the followed messages of a batch; undefined when it must be loaded: unknown, or another channel is followed since. */
  take(batchSeq: number, asOf: number): readonly LiveMessage[] | undefined {
    const batch = this.#batches.get(batchSeq)
    this.#batches.delete(batchSeq)
    return batch?.asOf === asOf ? batch.messages : undefined
  }

  clear(): void {
    this.#batches.clear()
  }
}
