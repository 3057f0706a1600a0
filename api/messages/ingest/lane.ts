/**
 * A lane: one connection, one open transaction, batches in the order of arrival. It owns what happens when a batch
 * fails: repeat what PostgreSQL asks to repeat, find out what a COMMIT without an answer did, and halve a batch whose
 * data are refused until the culprit stands alone.
 */
import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import type { Database } from '#core/database/index.ts'
import { isDatabaseAway, isRefusedData, isRepeatable, translateDatabaseError } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { monotonicMs, sleep, withDeadline } from '#core/time.ts'
import type { IncomingMessage } from '../message.ts'
import { createPartitions, isMissingPartition } from '../retention/partitions.ts'
import type { StorableMessage } from '../store/message-rows.ts'
import type { Outcome } from './batch-transaction.ts'
import { commitBatch, isCommittedBefore } from './batch-transaction.ts'
import type { SeriesKeys } from './series.ts'

/** No statement of a lane takes longer; a transaction that was forgotten ends by itself. */
const STATEMENT_DEADLINE_MS = 10_000
/** A whole attempt, also when the network swallows the answers. */
const ATTEMPT_DEADLINE_MS = 15_000
/**
 * A batch whose COMMIT may have been sent is asked about for so long. Its publishers have been told "outcome unknown"
 * by then, and those who wait behind it should hear that the database is away.
 */
const IN_DOUBT_MS = 10_000
const RETRY_PAUSE_MS = 100
/** Deadlocks and serialisation failures of one batch. */
const MAX_REPEATS = 4
/** Numbers of batches are taken from their sequence in blocks: one round trip for so many batches. */
const SEQ_BLOCK = 256

export type Lane = {
  /** One outcome per message, in order. Never rejects. */
  write(messages: readonly IncomingMessage[]): Promise<Outcome[]>
  close(): Promise<void>
}

export type LaneDeps = {
  database: Database
  series: SeriesKeys
  logger: Logger
  name: string
  /** Told of each batch before anything is sent that could commit it: others may see it before this process has an answer. */
  onCommitting: (seq: number, messages: readonly StorableMessage[]) => void
  /** Told of each batch that is known to be committed, with its number in the log and its messages in their order. */
  onCommitted: (seq: number, messages: readonly StorableMessage[]) => void
}

/** A batch over its attempts. */
type Progress = {
  batchId: string
  attempts: number
  batch: readonly StorableMessage[]
  /** What holds if it turns out to be committed; undefined as long as no COMMIT was sent. */
  inDoubt: Outcome[] | undefined
}

export function createLane({ database, series, logger, name, onCommitting, onCommitted }: LaneDeps): Lane {
  let client: pg.Client | undefined
  let seqs: number[] = []

  async function connected(): Promise<pg.Client> {
    if (client !== undefined) return client
    const fresh = await database.dedicated(name)
    await fresh.query(
      `SET statement_timeout = ${STATEMENT_DEADLINE_MS}; SET idle_in_transaction_session_timeout = ${STATEMENT_DEADLINE_MS}`,
    )
    client = fresh
    return fresh
  }

  function disconnect(): void {
    const broken = client
    client = undefined
    void broken?.end().catch(() => undefined)
  }

  async function nextSeq(connection: pg.Client): Promise<number> {
    const seq = seqs.pop()
    if (seq !== undefined) return seq
    const { rows } = await connection.query<{ seq: number }>(
      `SELECT nextval('ingest_batches_seq_seq') AS seq FROM generate_series(1, ${SEQ_BLOCK}) ORDER BY seq DESC`,
    )
    seqs = rows.map((row) => row.seq)
    return seqs.pop() as number
  }

  async function attempt(progress: Progress): Promise<Outcome[]> {
    const connection = await connected()
    // A number of its own for each attempt: only the uuid says that a batch was committed before.
    const names = { id: progress.batchId, seq: await nextSeq(connection) }
    progress.attempts++
    let outcomes: Outcome[] = []
    let stored: readonly StorableMessage[] = []
    try {
      await commitBatch(connection, names, progress.batch, (expected, numbered) => {
        outcomes = expected
        stored = numbered
        progress.inDoubt ??= expected
        onCommitting(names.seq, numbered)
      })
      onCommitted(names.seq, stored)
      return outcomes
    } catch (error) {
      if (isDatabaseAway(error)) throw error
      await connection.query('ROLLBACK').catch(disconnect)
      if (progress.inDoubt !== undefined && isCommittedBefore(error)) return progress.inDoubt
      // PostgreSQL answered: this attempt is rolled back. If there was an earlier one, then only refused data prove
      // that it is not committed, since they come after the row of the log, which would have met it.
      if (progress.attempts === 1 || isRefusedData(error)) progress.inDoubt = undefined
      throw error
    }
  }

  async function transaction(batch: readonly StorableMessage[]): Promise<Outcome[]> {
    const progress: Progress = { batchId: randomUUID(), attempts: 0, batch, inDoubt: undefined }
    const beganMs = monotonicMs()
    let repeats = 0
    let madePartitions = false
    for (;;) {
      try {
        return await withDeadline(attempt(progress), ATTEMPT_DEADLINE_MS, 'writing a batch')
      } catch (error) {
        if (isMissingPartition(error) && !madePartitions) {
          madePartitions = true
          await createPartitions(database)
          continue
        }
        if (isRepeatable(error) && repeats++ < MAX_REPEATS) continue
        if (isAway(error)) disconnect()
        // Refused data, a database that is away before anything was sent, faults of ours: the batch is not stored.
        if (progress.inDoubt === undefined || isRefusedData(error) || !isAway(error)) throw error
        if (monotonicMs() - beganMs > IN_DOUBT_MS) {
          throw new ServiceError('timeout', 'the database did not say whether the message was stored', { cause: error })
        }
        logger.warn({ err: error, lane: name }, 'a batch has no answer and is asked about')
        await sleep(RETRY_PAUSE_MS)
      }
    }
  }

  async function writeWhole(messages: readonly IncomingMessage[]): Promise<Outcome[]> {
    const keys = await series.resolve(messages)
    const outcomes: Outcome[] = keys.map((key) => (key instanceof ServiceError ? key : undefined))
    const batch: (StorableMessage & { index: number })[] = []
    messages.forEach((message, index) => {
      const seriesKeys = keys[index]
      if (Array.isArray(seriesKeys)) batch.push({ message, seriesKeys, index })
    })
    if (batch.length > 0) {
      const written = await transaction(batch)
      batch.forEach(({ index }, position) => (outcomes[index] = written[position]))
    }
    return outcomes
  }

  async function write(messages: readonly IncomingMessage[]): Promise<Outcome[]> {
    try {
      return await writeWhole(messages)
    } catch (error) {
      if (!isRefusedData(error)) {
        const refusal = asServiceError(error)
        if (refusal.kind === 'internal') logger.error({ err: error, lane: name }, 'a batch was not written')
        return messages.map(() => refusal)
      }
      if (messages.length === 1) {
        logger.warn({ err: error, lane: name }, 'a message was refused by the database')
        return [new ServiceError('malformed', 'the message holds a value that cannot be stored', { cause: error })]
      }
      const middle = messages.length >> 1
      return [...(await write(messages.slice(0, middle))), ...(await write(messages.slice(middle)))]
    }
  }

  return {
    write,
    async close() {
      const open = client
      client = undefined
      await open?.end()
    },
  }
}

/** The connection is gone, could not be made, or gave no answer in time. */
function isAway(error: unknown): boolean {
  const kind = asServiceError(error).kind
  return kind === 'unavailable' || kind === 'timeout'
}

function asServiceError(error: unknown): ServiceError {
  const translated = translateDatabaseError(error)
  return translated instanceof ServiceError
    ? translated
    : new ServiceError('internal', 'internal error', { cause: error })
}
