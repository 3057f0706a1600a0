/**
 * Publishes the journal to Redis streams. One node per installation publishes: the one that holds the lock of the
 * consumer. The position is stored after Redis has accepted the entries, so none is lost. After a failure some entries
 * can be repeated, with the same `event_id`.
 */
import { connectStreamWriter } from '#core/bus/index.ts'
import type { Database } from '#core/database/index.ts'
import { beginAtEnd, startLogFollower } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { JOURNAL_CONSUMERS } from '../journal/index.ts'
import type { Journal } from '../journal/index.ts'
import { eachEntity, eventFields } from './event.ts'
import { EVENT_LOG, toEventRecords } from './repository.ts'
import { streamEntries } from './streams.ts'

export const REDIS_CONSUMER = `${JOURNAL_CONSUMERS}redis`

/** Polling interval of the journal without hints. */
const INTERVAL_MS = 250
/** Maximum number of records in one transaction. */
const MAX_RECORDS = 200
/** Maximum number of entries in one transaction. One bulk record results in thousands of entries. */
const MAX_ENTRIES = 20_000

export type EventPublisher = { stop(): Promise<void> }

export async function startEventPublisher(options: {
  database: Database
  journal: Journal
  logger: Logger
  redisUrl: string
  /** Approximate number of entries that each stream keeps. */
  streamLength: number
}): Promise<EventPublisher> {
  const { database, journal, logger, redisUrl, streamLength } = options
  // A new installation of Redis streams starts with new events, not with the whole journal.
  await beginAtEnd(database.db, REDIS_CONSUMER)
  const writer = await connectStreamWriter({ url: redisUrl, maxLength: streamLength, logger })
  const follower = startLogFollower({
    database,
    table: EVENT_LOG,
    consumer: REDIS_CONSUMER,
    logger,
    intervalMs: INTERVAL_MS,
    maxRows: MAX_RECORDS,
    async apply(tx, rows) {
      const records = await toEventRecords(tx, rows)
      const entries = []
      let taken = 0
      for (const record of records) {
        for (const event of eachEntity(eventFields(record))) entries.push(...streamEntries(event))
        taken += 1
        if (entries.length >= MAX_ENTRIES) break
      }
      await writer.append(entries)
      return taken
    },
  })
  const unsubscribe = journal.onGrowth(() => follower.wake())
  return {
    async stop() {
      unsubscribe()
      await follower.stop()
      writer.close()
    },
  }
}
