/** What this process stored a moment ago, kept until the hub has read of it in the log: it need not be loaded then. */
import { LRUCache } from 'lru-cache'
import type { LiveMessage } from './live-message.ts'

/** Beyond this the oldest are forgotten, and loaded when they are wanted. */
const MAX_BYTES = 16 * 1024 * 1024
const BATCH_BYTES = 200
const MESSAGE_BYTES = 300

export type RecentBatches = {
  add(batchSeq: number, messages: readonly LiveMessage[]): void
  /** The followed messages of a batch, once; undefined when it must be loaded. */
  take(batchSeq: number): readonly LiveMessage[] | undefined
  clear(): void
}

export function createRecentBatches(): RecentBatches {
  const batches = new LRUCache<number, readonly LiveMessage[]>({
    maxSize: MAX_BYTES,
    sizeCalculation: (messages) =>
      messages.reduce((sum, { payload }) => sum + MESSAGE_BYTES + payload.length, BATCH_BYTES),
  })
  return {
    add: (batchSeq, messages) => void batches.set(batchSeq, messages),
    take(batchSeq) {
      const messages = batches.get(batchSeq)
      batches.delete(batchSeq)
      return messages
    },
    clear: () => batches.clear(),
  }
}
