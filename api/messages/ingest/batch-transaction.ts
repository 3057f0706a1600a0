/**
 * The one transaction that a batch is written in. It touches nothing that two writers share: new rows of messages and
 * payloads, one row of the batch log, and the idempotency keys of its own publishes.
 */
import type pg from 'pg'
import type { ServiceError } from '#core/errors/index.ts'
import type { IncomingMessage } from '../message.ts'
import { copyIn } from '../store/copy-in.ts'
import type { StorableMessage } from '../store/message-rows.ts'
import { COPY_MESSAGES, COPY_PAYLOADS, toRows } from '../store/message-rows.ts'
import { claimKeys } from './idempotency.ts'

/** What became of each message of a batch: stored (or stored before under its key), or refused alone. */
export type Outcome = undefined | ServiceError

export type Attempt = {
  /** The batch was found committed by an earlier attempt that had no answer. */
  wasCommitted: boolean
  outcomes: Outcome[]
}

/**
 * Writes the batch up to, and not including, its COMMIT. With the same uuid it can be called again after a COMMIT
 * without an answer: it waits for the transaction in doubt and stores nothing when that one was committed.
 */
export async function writeBatch(
  client: pg.ClientBase,
  batchId: string,
  batch: readonly StorableMessage[],
): Promise<Attempt> {
  const messages = batch.map(({ message }) => message)
  const span = spanOf(messages)
  // One round trip for both; every value in the text is a number or a uuid of ours.
  const results = (await client.query(`BEGIN;
    INSERT INTO ingest_batches (batch, messages, records, min_time, max_time)
    VALUES ('${batchId}', ${messages.length}, ${span.records}, ${timeOf(span.minSeconds)}, ${timeOf(span.maxSeconds)})
    ON CONFLICT ON CONSTRAINT ingest_batches_batch_key DO NOTHING
    RETURNING seq, extract(epoch FROM arrived_at)::float8 AS arrived_at`)) as unknown as pg.QueryResult<{
    seq: number
    arrived_at: number
  }>[]
  const facts = results[1]?.rows[0]
  if (facts === undefined) return { wasCommitted: true, outcomes: messages.map(() => undefined) }

  const claims = await claimKeys(client, messages)
  const rows = toRows(
    batch.filter((_, index) => claims[index] === 'store'),
    { seq: facts.seq, arrivedAtSeconds: facts.arrived_at },
  )
  if (rows.messages.rows > 0) await copyIn(client, COPY_MESSAGES, rows.messages.end())
  if (rows.payloads.rows > 0) await copyIn(client, COPY_PAYLOADS, rows.payloads.end())
  return { wasCommitted: false, outcomes: claims.map((claim) => (typeof claim === 'string' ? undefined : claim)) }
}

/** How many records there are and the span of their times. */
function spanOf(messages: readonly IncomingMessage[]): { records: number; minSeconds: number; maxSeconds: number } {
  let records = 0
  let minSeconds = Infinity
  let maxSeconds = -Infinity
  for (const { content } of messages) {
    if (content.kind !== 'records') continue
    records += content.records.length
    for (const { timeSeconds } of content.records) {
      if (timeSeconds < minSeconds) minSeconds = timeSeconds
      if (timeSeconds > maxSeconds) maxSeconds = timeSeconds
    }
  }
  return { records, minSeconds, maxSeconds }
}

function timeOf(epochSeconds: number): string {
  return Number.isFinite(epochSeconds) ? `to_timestamp(${epochSeconds})` : 'NULL'
}
