/**
 * Redis streams for whoever reads them outside of the product. Not a hint: an entry counts as sent once Redis has taken
 * it, and entries of one writer arrive in order. What could not be sent the caller sends again.
 */
import { createClient } from 'redis'
import type { Logger } from '../logging/index.ts'
import { withDeadline } from '../time.ts'
import { redisOptions } from './redis-options.ts'

export type StreamItem = { stream: string; fields: Readonly<Record<string, string>> }

export type StreamWriter = {
  /** Resolves when Redis has taken all of them; rejects when it took some or none. */
  append(items: readonly StreamItem[]): Promise<void>
  close(): void
}

/** Redis takes thousands of entries in a second; one that says nothing for so long is away. */
const APPEND_DEADLINE_MS = 10_000
/** Entries that are on the way at once. */
const CHUNK_ENTRIES = 1000
const PING_INTERVAL_MS = 5000
/** A connection on which nothing arrives for so long, pings included, is dead. */
const SOCKET_SILENCE_MS = 15_000

/** `maxLength`: about how many entries a stream keeps; the oldest go first. */
export function createStreamWriter(options: { url: string; maxLength: number; logger: Logger }): StreamWriter {
  const { url, maxLength, logger } = options
  const { socket } = redisOptions(url)
  const client = createClient({
    url,
    disableOfflineQueue: true,
    pingInterval: PING_INTERVAL_MS,
    socket: { ...socket, socketTimeout: SOCKET_SILENCE_MS },
  })
  let isClosed = false
  let isAway = false
  client.on('error', (error: Error) => {
    if (!isAway && !isClosed) logger.warn({ err: error }, 'Redis is unavailable; events wait in the journal')
    isAway = true
  })
  client.on('ready', () => {
    if (isAway) logger.info('Redis is available again; sending events')
    isAway = false
  })
  // A Redis that is away at the start is no reason not to start.
  void client.connect().catch(() => undefined)

  const trim = { TRIM: { strategy: 'MAXLEN', strategyModifier: '~', threshold: maxLength } } as const
  return {
    async append(items) {
      for (let start = 0; start < items.length; start += CHUNK_ENTRIES) {
        const chunk = items.slice(start, start + CHUNK_ENTRIES)
        // One connection keeps the order; every answer is waited for, so that none rejects unheard.
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
