/**
 * Ingest: messages into shards by publisher, batches by group commit, the answer after the commit. What one publisher
 * sends is stored in the order in which it was taken.
 */
import { availableParallelism } from 'node:os'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { IncomingMessage } from '../model/message.ts'
import type { StorableMessage } from '../store/message-rows.ts'
import type { SeriesLimits } from './series-table.ts'
import { createSeriesKeys } from './series.ts'
import { IngestShard } from './shard.ts'

/**
 * Shards of a process. One keeps a core of PostgreSQL busy, and each more divides what arrives into smaller batches, which cost
 * more of both: on two cores two shards took a tenth to a third less than one. Wide machines have cores to spare.
 */
const CORES_PER_SHARD = 4
const MAX_SHARDS = 4
const SHARDS = Math.min(MAX_SHARDS, Math.max(1, Math.floor(availableParallelism() / CORES_PER_SHARD)))
/** Of the whole process; beyond, publishers are told to come back. */
const MAX_QUEUED_MESSAGES = 20_000
const MAX_QUEUED_BYTES = 32 * 1024 * 1024
/** A publisher waits so long for its commit; afterwards the outcome is unknown to it (contract section 7.6). */
const ACKNOWLEDGE_DEADLINE_MS = 10_000
/** Seconds after which a publisher may find room on the disk again: somebody has to make some first. */
const DISK_FULL_RETRY_SECONDS = 30

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

export class Ingest {
  readonly #hasRoom: () => boolean
  readonly #shards: readonly IngestShard[]

  constructor(deps: IngestDeps) {
    const { database, logger, seriesLimits, acknowledgeDeadlineMs = ACKNOWLEDGE_DEADLINE_MS } = deps
    const { onCommitting = () => undefined, onCommitted = () => undefined } = deps
    const series = createSeriesKeys(database, seriesLimits)
    this.#hasRoom = deps.hasRoom
    this.#shards = Array.from({ length: SHARDS }, (_, index) => {
      return new IngestShard({
        database,
        series,
        logger,
        name: `skein ingest shard ${index}`,
        maxQueuedMessages: MAX_QUEUED_MESSAGES / SHARDS,
        maxQueuedBytes: MAX_QUEUED_BYTES / SHARDS,
        acknowledgeDeadlineMs,
        onCommitting,
        onCommitted,
      })
    })
  }

  /**
   * Resolves when the message is committed: it is in the next read. Rejects with `unavailable` where the queue or the
   * disk is full, `unprocessable` for a limit of series or an idempotency key used with another body, `malformed` for
   * what the database refuses, `timeout` when the outcome is not known in time.
   */
  publish(message: IncomingMessage): Promise<void> {
    if (this.#hasRoom()) return (this.#shards[shardOf(message)] as IngestShard).publish(message)
    return Promise.reject(
      new ServiceError(
        'unavailable',
        'the disk of the database is nearly full, nothing is stored until there is room',
        {
          retryAfterSeconds: DISK_FULL_RETRY_SECONDS,
        },
      ),
    )
  }

  /** Messages that wait for their commit. */
  get pending(): number {
    return this.#shards.reduce((sum, { pending }) => sum + pending, 0)
  }

  /** Takes nothing more and resolves when everything taken is written. */
  async close(): Promise<void> {
    await Promise.all(this.#shards.map((shard) => shard.close()))
  }
}

/** By publisher, so that its messages keep their order; a user's by channel. */
function shardOf({ access }: IncomingMessage): number {
  const key = access.publisherKey ?? access.channelKey
  // Multiplying by 2^32 / golden ratio spreads keys that were given out in a pattern.
  return (Math.imul(key, 0x9e37_79b1) >>> 16) % SHARDS
}
