/**
 * Ingest: distributes messages to shards by publisher, batches them by group commit, and acknowledges them after the commit. Messages
 * of one publisher are stored in the order of their acceptance.
 */
import { availableParallelism } from 'node:os'
import { NO_STANDBY_RETRY_SECONDS } from '#core/database/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { removeSources } from '#core/metrics/index.ts'
import type { IncomingMessage } from '../model/message.ts'
import type { StorableMessage } from '../store/message-rows.ts'
import { INGEST_METRICS } from './metrics.ts'
import type { SeriesLimits } from './series-table.ts'
import { createSeriesKeys } from './series.ts'
import { IngestShard } from './shard.ts'

/**
 * Shards of a process. One shard keeps one core of PostgreSQL busy. Further shards divide the load into smaller batches, which cost
 * more on both sides: on two cores, two shards had a tenth to a third less throughput than one. Machines with many cores gain.
 */
const CORES_PER_SHARD = 4
const MAX_SHARDS = 4
/** The limit of the whole process; above it, publishers get `unavailable`. */
const MAX_QUEUED_MESSAGES = 20_000
const MAX_QUEUED_BYTES = 32 * 1024 * 1024
/** The maximum wait of a publisher for its commit; after it, the outcome is unknown to it (contract section 7.6). */
const ACKNOWLEDGE_DEADLINE_MS = 10_000
/** `Retry-After` in seconds when the disk is full: an operator has to free space first. */
const DISK_FULL_RETRY_SECONDS = 30

export type IngestDeps = {
  database: Database
  logger: Logger
  /** False while the disk of the database is nearly full: PostgreSQL would stop with a panic. */
  hasRoom: () => boolean
  /** False while a COMMIT waits for synchronous standbys that do not answer; defaults to true. */
  canCommit?: () => boolean
  /** Called with each batch before it can be committed, and so before it can be read. The batch may still fail. */
  onCommitting?: (batchSeq: number, messages: readonly StorableMessage[]) => void
  /** Called with each committed batch, before its publishers are answered. */
  onCommitted?: (batchSeq: number, messages: readonly StorableMessage[]) => void
  /** Processes that share the cores of this machine. Default: 1. */
  processes?: number | undefined
  seriesLimits?: SeriesLimits
  acknowledgeDeadlineMs?: number
}

export class Ingest {
  readonly #hasRoom: () => boolean
  readonly #canCommit: () => boolean
  readonly #shards: readonly IngestShard[]
  readonly #sources: readonly (() => void)[]

  constructor(deps: IngestDeps) {
    const { database, logger, seriesLimits, acknowledgeDeadlineMs = ACKNOWLEDGE_DEADLINE_MS } = deps
    const { processes = 1, onCommitting = () => undefined, onCommitted = () => undefined } = deps
    const shards = shardsOf(processes)
    const series = createSeriesKeys(database, seriesLimits)
    this.#hasRoom = deps.hasRoom
    this.#canCommit = deps.canCommit ?? (() => true)
    this.#shards = Array.from({ length: shards }, (_, index) => {
      return new IngestShard({
        database,
        series,
        logger,
        name: `skein ingest shard ${index}`,
        maxQueuedMessages: MAX_QUEUED_MESSAGES / shards,
        maxQueuedBytes: MAX_QUEUED_BYTES / shards,
        acknowledgeDeadlineMs,
        onCommitting,
        onCommitted,
      })
    })
    this.#sources = [
      INGEST_METRICS.queued.fromValue(() => this.pending),
      INGEST_METRICS.queuedLimit.fromValue(() => MAX_QUEUED_MESSAGES),
      INGEST_METRICS.queuedBytes.fromValue(() => this.#shards.reduce((sum, { queuedBytes }) => sum + queuedBytes, 0)),
      INGEST_METRICS.queuedBytesLimit.fromValue(() => MAX_QUEUED_BYTES),
    ]
  }

  /**
   * Resolves after the commit of the message: it is in every later read. Rejects with `unavailable` when the queue or the disk is full
   * or no synchronous standby answers, `unprocessable` for a limit of series or an idempotency key used with another body, `malformed`
   * for values that the database refuses, and `timeout` when the outcome is not known in time.
   */
  publish(message: IncomingMessage): Promise<void> {
    if (!this.#hasRoom()) {
      const text = 'the disk of the database is nearly full: no messages are accepted until space is free'
      return refuse('disk_full', text, DISK_FULL_RETRY_SECONDS)
    }
    if (!this.#canCommit()) {
      const text = 'the synchronous standbys of the database do not answer: no messages are accepted until one does'
      return refuse('no_standby', text, NO_STANDBY_RETRY_SECONDS)
    }
    return (this.#shards[shardOf(message, this.#shards.length)] as IngestShard).publish(message)
  }

  /** Messages that wait for their commit. */
  get pending(): number {
    return this.#shards.reduce((sum, { pending }) => sum + pending, 0)
  }

  /** Rejects new messages, and resolves when all accepted messages are written. */
  async close(): Promise<void> {
    await Promise.all(this.#shards.map((shard) => shard.close()))
    removeSources(this.#sources)
  }
}

function refuse(reason: string, text: string, retryAfterSeconds: number): Promise<never> {
  INGEST_METRICS.refusals.add({ reason })
  return Promise.reject(new ServiceError('unavailable', text, { retryAfterSeconds }))
}

/** Messages of a publisher have one shard, which keeps their order. Messages of users are divided by channel. */
function shardOf({ access }: IncomingMessage, shards: number): number {
  const key = access.publisherKey ?? access.channelKey
  // Multiplication by 2^32 / golden ratio distributes keys that were assigned in a pattern.
  return (Math.imul(key, 0x9e37_79b1) >>> 16) % shards
}

/** Returns the number of shards of each of several processes that divide the cores of the machine. */
function shardsOf(processes: number): number {
  return Math.min(MAX_SHARDS, Math.max(1, Math.floor(availableParallelism() / CORES_PER_SHARD / processes)))
}
