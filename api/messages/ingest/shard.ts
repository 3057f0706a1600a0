/** A shard of ingest: one connection, one transaction at a time, batches in the order of arrival. */
import type pg from 'pg'
import type { Batch, Database, ItemOutcome } from '#core/database/index.ts'
import { GroupCommit, isDatabaseUnavailable, isOutage } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { withDeadline } from '#core/time.ts'
import type { IncomingMessage } from '../model/message.ts'
import { createPartitions, isMissingPartition } from '../store/partitions.ts'
import type { StorableMessage } from '../store/message-rows.ts'
import { commitBatch, isCommittedBefore } from './batch-transaction.ts'
import { sizeOf } from './message-size.ts'
import { INGEST_OBSERVER } from './metrics.ts'
import type { SeriesKeys } from './series.ts'

/** The limits of a batch, which contains the messages that arrived during the previous commit. */
const MAX_BATCH_MESSAGES = 2_000
const MAX_BATCH_BYTES = 1024 * 1024
/** The maximum duration of a statement of a shard, and of an idle transaction. */
const STATEMENT_DEADLINE_MS = 10_000
/** The maximum duration of an attempt, also when no answer arrives. */
const ATTEMPT_DEADLINE_MS = 15_000
/** Numbers of batches are taken from their sequence in blocks, with one round trip per block. */
const SEQ_BLOCK = 256

export type ShardDeps = {
  database: Database
  series: SeriesKeys
  logger: Logger
  /** The name of its connection. */
  name: string
  maxQueuedMessages: number
  maxQueuedBytes: number
  acknowledgeDeadlineMs: number
  /** Called with each batch before anything is sent that could commit it: others may see it before this process has an answer. */
  onCommitting: (seq: number, messages: readonly StorableMessage[]) => void
  /** Called with each batch that is known to be committed, with its number in the changelog and its messages in order. */
  onCommitted: (seq: number, messages: readonly StorableMessage[]) => void
}

export class IngestShard {
  readonly #deps: ShardDeps
  readonly #queue: GroupCommit<IncomingMessage, undefined>
  #client: pg.Client | undefined
  /** Reserved numbers of batches that are not used yet. */
  #seqs: number[] = []

  constructor(deps: ShardDeps) {
    const { database, logger, maxQueuedMessages, maxQueuedBytes, acknowledgeDeadlineMs } = deps
    this.#deps = deps
    this.#queue = new GroupCommit({
      name: 'the message queue',
      observer: INGEST_OBSERVER,
      item: 'the message',
      logger,
      maxItems: MAX_BATCH_MESSAGES,
      maxBytes: MAX_BATCH_BYTES,
      maxQueuedItems: maxQueuedMessages,
      maxQueuedBytes,
      sizeOf,
      answerDeadlineMs: acknowledgeDeadlineMs,
      commit: (batch) => this.#commit(batch),
      isCommittedBefore,
      replicated: () => database.replicated(),
      repair: async (error) => {
        if (!isMissingPartition(error)) return false
        await createPartitions(database)
        return true
      },
      refuseAlone: (_, error) => {
        logger.warn({ err: error }, 'a message was refused by the database')
        return new ServiceError('malformed', 'the message contains a value that cannot be stored', { cause: error })
      },
    })
  }

  publish(message: IncomingMessage): Promise<undefined> {
    return this.#queue.submit(message)
  }

  /** Messages that wait for their commit. */
  get pending(): number {
    return this.#queue.pending
  }

  /** Bytes of the messages that wait. */
  get queuedBytes(): number {
    return this.#queue.queuedBytes
  }

  /** Takes nothing more and resolves when everything taken is written. */
  async close(): Promise<void> {
    await this.#queue.close()
    const open = this.#client
    this.#client = undefined
    await open?.end()
  }

  async #commit(batch: Batch<IncomingMessage, undefined>): Promise<readonly ItemOutcome<undefined>[]> {
    const keys = await this.#deps.series.resolve(batch.items)
    const outcomes: ItemOutcome<undefined>[] = keys.map((key) => (key instanceof ServiceError ? key : undefined))
    const messages: StorableMessage[] = []
    batch.items.forEach((message, index) => {
      const seriesKeys = keys[index]
      if (Array.isArray(seriesKeys)) messages.push({ message, seriesKeys })
    })
    if (messages.length === 0) return outcomes
    const committing = (expected: readonly ItemOutcome<undefined>[]) => {
      let next = 0
      for (const [index, key] of keys.entries()) if (Array.isArray(key)) outcomes[index] = expected[next++]
      batch.committing(outcomes)
    }
    try {
      await withDeadline(this.#transact(batch.id, messages, committing), ATTEMPT_DEADLINE_MS, 'writing a batch')
    } catch (error) {
      if (isOutage(error)) this.#disconnect()
      throw error
    }
    return outcomes
  }

  async #transact(
    id: string,
    messages: readonly StorableMessage[],
    committing: (expected: readonly ItemOutcome<undefined>[]) => void,
  ): Promise<void> {
    const client = await this.#connected()
    // Each attempt has its own number: only the uuid shows that the batch was committed before.
    const seq = await this.#nextSeq(client)
    let stored: readonly StorableMessage[] = []
    try {
      await commitBatch(client, { id, seq }, messages, (expected, numbered) => {
        stored = numbered
        committing(expected)
        this.#deps.onCommitting(seq, numbered)
      })
    } catch (error) {
      if (!isDatabaseUnavailable(error)) await client.query('ROLLBACK').catch(() => this.#disconnect())
      throw error
    }
    this.#deps.onCommitted(seq, stored)
  }

  async #connected(): Promise<pg.Client> {
    if (this.#client !== undefined) return this.#client
    const client = await this.#deps.database.dedicated(this.#deps.name)
    await client.query(
      `SET statement_timeout = ${STATEMENT_DEADLINE_MS}; SET idle_in_transaction_session_timeout = ${STATEMENT_DEADLINE_MS}`,
    )
    this.#client = client
    return client
  }

  #disconnect(): void {
    const broken = this.#client
    this.#client = undefined
    void broken?.end().catch(() => undefined)
  }

  async #nextSeq(client: pg.Client): Promise<number> {
    const seq = this.#seqs.pop()
    if (seq !== undefined) return seq
    const { rows } = await client.query<{ seq: number }>(
      `SELECT nextval('ingest_batches_seq_seq') AS seq FROM generate_series(1, ${SEQ_BLOCK}) ORDER BY seq DESC`,
    )
    this.#seqs = rows.map((row) => row.seq)
    return this.#seqs.pop() as number
  }
}
