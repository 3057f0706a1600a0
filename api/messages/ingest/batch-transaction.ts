/**
 * The one transaction that a batch is written in. It touches nothing that two writers share: new rows of messages and
 * payloads, one row of the batch log, and the idempotency keys of its own publishes.
 */
import type pg from 'pg'
import { violatedConstraint } from '#core/database/index.ts'
import type { ServiceError } from '#core/errors/index.ts'
import type { IncomingMessage } from '../message.ts'
import { runWithCopies } from '../store/copy-in.ts'
import type { StorableMessage } from '../store/message-rows.ts'
import { toCopies } from '../store/message-rows.ts'
import type { Claim } from './idempotency.ts'
import { claimKeys } from './idempotency.ts'

/** What became of each message of a batch: stored (or stored before under its key), or refused alone. */
export type Outcome = undefined | ServiceError

/** Names of a batch: the uuid by which it is recognised after a COMMIT without an answer, and its number in the log. */
export type BatchNames = { id: string; seq: number }

/**
 * Writes and commits the batch, in one round trip unless it claims idempotency keys. `beforeCommit` is called with the
 * outcomes, and with the messages in the
 * order in which they are numbered, before anything is sent that could commit them. Rejects with the violation of `ingest_batches_batch_key`
 * where an earlier attempt with the same id was committed; the transaction is left open for a ROLLBACK then.
 */
export async function commitBatch(
  client: pg.ClientBase,
  names: BatchNames,
  batch: readonly StorableMessage[],
  beforeCommit: (outcomes: Outcome[], stored: readonly StorableMessage[]) => void,
): Promise<void> {
  const messages = batch.map(({ message }) => message)
  const begin = ['BEGIN', logRow(names, messages)]
  if (messages.every(({ idempotency }) => idempotency === undefined)) {
    beforeCommit(
      messages.map(() => undefined),
      batch,
    )
    return await runWithCopies(client, begin, toCopies(batch, names.seq), ['COMMIT'])
  }
  await client.query(begin.join(';\n'))
  const claims = await claimKeys(client, messages)
  const fresh = batch.filter((_, index) => claims[index] === 'store')
  beforeCommit(claims.map(outcomeOf), fresh)
  return await runWithCopies(client, [], toCopies(fresh, names.seq), ['COMMIT'])
}

/** The batch is in the log: an earlier attempt was committed although nobody heard of it. */
export function isCommittedBefore(error: unknown): boolean {
  return violatedConstraint(error) === 'ingest_batches_batch_key'
}

function outcomeOf(claim: Claim): Outcome {
  return typeof claim === 'string' ? undefined : claim
}

/** Every value in the text is a number or a uuid of ours. */
function logRow({ id, seq }: BatchNames, messages: readonly IncomingMessage[]): string {
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
  const span = records === 0 ? 'NULL, NULL' : `to_timestamp(${minSeconds}), to_timestamp(${maxSeconds})`
  return `INSERT INTO ingest_batches (seq, batch, messages, records, min_time, max_time)
    VALUES (${seq}, '${id}', ${messages.length}, ${records}, ${span})`
}
