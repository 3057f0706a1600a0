/** What was stored a moment ago, kept until the hub has read of it in the log: it need not be loaded then. */
import { LRUCache } from 'lru-cache'
import type { LiveMessage } from './live-message.ts'

/** Beyond this the oldest are forgotten, and loaded when they are wanted. */
const MAX_BYTES = 16 * 1024 * 1024
const BATCH_BYTES = 200
const MESSAGE_BYTES = 300

type Batch = { messages: readonly LiveMessage[]; asOf: number }

export type RecentBatches = {
  /** `asOf`: the state of the followers by which these were chosen from the batch. */
  add(batchSeq: number, messages: readonly LiveMessage[], asOf: number): void
  /** The followed messages of a batch, once; undefined when it must be loaded: unknown, or another channel is followed since. */
  take(batchSeq: number, asOf: number): readonly LiveMessage[] | undefined
  clear(): void
}

export function createRecentBatches(): RecentBatches {
  const batches = new LRUCache<number, Batch>({
    maxSize: MAX_BYTES,
    sizeCalculation: ({ messages }) =>
      messages.reduce((sum, { payload }) => sum + MESSAGE_BYTES + payload.length, BATCH_BYTES),
  })
  return {
    add: (batchSeq, messages, asOf) => void batches.set(batchSeq, { messages, asOf }),
    take(batchSeq, asOf) {
      const batch = batches.get(batchSeq)
      batches.delete(batchSeq)
      return batch?.asOf === asOf ? batch.messages : undefined
    },
    clear: () => batches.clear(),
  }
}
