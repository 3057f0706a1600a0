/**
 * Writes Redis streams for readers outside of the product. An entry counts as sent when Redis has acknowledged it, and the
 * entries of one writer arrive in order. The caller repeats entries that were not acknowledged.
 */
import { createClient } from 'redis'
import type { Logger } from '../logging/index.ts'
import { withDeadline } from '../time.ts'
import { pingedRedisOptions } from './redis-options.ts'

export type StreamItem = { stream: string; fields: Readonly<Record<string, string>> }

export type StreamWriter = {
  /** Resolves when Redis has acknowledged every item; otherwise rejects, although some may have been stored. */
  append(items: readonly StreamItem[]): Promise<void>
  close(): void
}

/** Redis stores thousands of entries per second; a longer silence means that it is unavailable. */
const APPEND_DEADLINE_MS = 10_000
/** The number of entries that are sent before their acknowledgements are awaited. */
const CHUNK_ENTRIES = 1000

/** `maxLength`: the approximate number of entries that a stream keeps. The oldest are removed first. */
export function createStreamWriter(options: { url: string; maxLength: number; logger: Logger }): StreamWriter {
  const { url, maxLength, logger } = options
  const client = createClient({ ...pingedRedisOptions(url), disableOfflineQueue: true })
  let isClosed = false
  let isUnavailable = false
  client.on('error', (error: Error) => {
    if (!isUnavailable && !isClosed) logger.warn({ err: error }, 'Redis is unavailable; events wait in the journal')
    isUnavailable = true
  })
  client.on('ready', () => {
    if (isUnavailable) logger.info('Redis is available again; sending events')
    isUnavailable = false
  })
  // The process starts without Redis and connects later.
  void client.connect().catch(() => undefined)

  const trim = { TRIM: { strategy: 'MAXLEN', strategyModifier: '~', threshold: maxLength } } as const
  return {
    async append(items) {
      for (let start = 0; start < items.length; start += CHUNK_ENTRIES) {
        const chunk = items.slice(start, start + CHUNK_ENTRIES)
        // One connection keeps the order. Every acknowledgement is awaited, so that no rejection is unhandled.
        const sent = Promise.allSettled(chunk.map(({ stream, fields }) => client.xAdd(stream, '*', fields, trim)))
        const results = await withDeadline(sent, APPEND_DEADLINE_MS, 'writing to the streams of Redis')
        const failed = results.find((result) => result.status === 'rejected')
        if (failed !== undefined) throw failed.reason as Error
      }
    },
    close() {
      if (!isClosed) client.destroy()
      isClosed = true
    },
  }
}
