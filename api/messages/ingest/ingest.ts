/**
 * Ingest: messages into lanes by publisher, batches by group commit, the answer after the commit. What one publisher
 * sends is stored in the order in which it was taken.
 */
import { availableParallelism } from 'node:os'
import { createBatcher } from '#core/database/index.ts'
import type { Batcher, Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { IncomingMessage } from '../message.ts'
import type { StorableMessage } from '../store/message-rows.ts'
import type { Lane } from './lane.ts'
import { createLane } from './lane.ts'
import type { SeriesLimits } from './series-table.ts'
import { createSeriesKeys } from './series.ts'

/**
 * Lanes of a process. One keeps a core of PostgreSQL busy, and each more divides what arrives into smaller batches, which cost
 * more of both: on two cores two lanes took a tenth to a third less than one. Wide machines have cores to spare.
 */
const CORES_PER_LANE = 4
const MAX_LANES = 4
const LANES = Math.min(MAX_LANES, Math.max(1, Math.floor(availableParallelism() / CORES_PER_LANE)))
/** A batch is what arrived while the last one was committed, at most this. */
const MAX_BATCH_MESSAGES = 2_000
const MAX_BATCH_BYTES = 1024 * 1024
/** Of the whole process; beyond, publishers are told to come back. */
const MAX_QUEUED_MESSAGES = 20_000
const MAX_QUEUED_BYTES = 32 * 1024 * 1024
/** A publisher waits so long for its commit; afterwards the outcome is unknown to it (contract section 7.6). */
const ACKNOWLEDGE_DEADLINE_MS = 10_000
/** Seconds after which a publisher may find room on the disk again: somebody has to make some first. */
const DISK_FULL_RETRY_SECONDS = 30

/** What a queued message costs in memory, roughly: objects of the message and of each record. */
const MESSAGE_BYTES = 300
const RECORD_BYTES = 130

export type IngestDeps = {
  database: Database
  logger: Logger
  /** False while the disk of the database is nearly full: PostgreSQL must not be driven into a panic. */
  hasRoom: () => boolean
  /** Told of each batch before it can be committed, and so before anybody can read of it; it may never be. */
  onCommitting?: (batchSeq: number, messages: readonly StorableMessage[]) => void
  /** Told of each batch that was committed, before its publishers are. */
  onCommitted?: (batchSeq: number, messages: readonly StorableMessage[]) => void
  seriesLimits?: SeriesLimits
  acknowledgeDeadlineMs?: number
}

export type Ingest = {
  /**
   * Resolves when the message is committed: it is in the next read. Rejects with `unavailable` where the queue or the
   * disk is full, `unprocessable` for a limit of series or an idempotency key used with another body, `malformed` for
   * what the database refuses, `timeout` when the outcome is not known in time.
   */
  publish(message: IncomingMessage): Promise<void>
  /** Messages that wait for their commit. */
  readonly pending: number
  /** Takes nothing more and resolves when everything taken is written. */
  close(): Promise<void>
}

export function createIngest(deps: IngestDeps): Ingest {
  const { database, logger, hasRoom, seriesLimits, acknowledgeDeadlineMs = ACKNOWLEDGE_DEADLINE_MS } = deps
  const { onCommitting = () => undefined, onCommitted = () => undefined } = deps
  const series = createSeriesKeys(database, seriesLimits)
  const lanes: { lane: Lane; batcher: Batcher<IncomingMessage, undefined> }[] = Array.from(
    { length: LANES },
    (_, index) => {
      const lane = createLane({
        database,
        series,
        logger,
        onCommitting,
        onCommitted,
        name: `skein ingest lane ${index}`,
      })
      const batcher = createBatcher<IncomingMessage, undefined>({
        name: 'the message queue',
        maxItems: MAX_BATCH_MESSAGES,
        maxBytes: MAX_BATCH_BYTES,
        maxQueuedItems: MAX_QUEUED_MESSAGES / LANES,
        maxQueuedBytes: MAX_QUEUED_BYTES / LANES,
        sizeOf,
        answerDeadlineMs: acknowledgeDeadlineMs,
        write: (messages) => lane.write(messages),
      })
      return { lane, batcher }
    },
  )

  return {
    publish(message) {
      if (hasRoom()) return (lanes[laneOf(message)] as (typeof lanes)[number]).batcher.submit(message)
      return Promise.reject(
        new ServiceError(
          'unavailable',
          'the disk of the database is nearly full, nothing is stored until there is room',
          { retryAfterSeconds: DISK_FULL_RETRY_SECONDS },
        ),
      )
    },
    get pending() {
      return lanes.reduce((sum, { batcher }) => sum + batcher.pending, 0)
    },
    async close() {
      await Promise.all(lanes.map(({ batcher }) => batcher.close()))
      await Promise.all(lanes.map(({ lane }) => lane.close()))
    },
  }
}

/** By publisher, so that its messages keep their order; a user's by channel. */
function laneOf({ access }: IncomingMessage): number {
  const key = access.publisherKey ?? access.channelKey
  // Multiplying by 2^32 / golden ratio spreads keys that were given out in a pattern.
  return (Math.imul(key, 0x9e37_79b1) >>> 16) % LANES
}

function sizeOf({ content }: IncomingMessage): number {
  switch (content.kind) {
    case 'records': {
      let bytes = MESSAGE_BYTES
      for (const { stringValue, dataValue, name } of content.records) {
        bytes += RECORD_BYTES + name.length
        if (stringValue !== undefined) bytes += stringValue.length * 2
        if (dataValue !== undefined) bytes += dataValue.length
      }
      return bytes
    }
    case 'documents':
      return content.documents.reduce((sum, document) => sum + document.length * 2, MESSAGE_BYTES)
    case 'raw':
      return MESSAGE_BYTES + content.body.length
  }
}
