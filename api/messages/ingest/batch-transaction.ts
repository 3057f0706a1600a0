/**
 * The one transaction that writes a batch. It touches no rows that two writers share: new rows of messages and payloads, one row of
 * the changelog of batches, and the idempotency keys of its own publishes.
 */
import type pg from 'pg'
import { violatedConstraint } from '#core/database/index.ts'
import type { ServiceError } from '#core/errors/index.ts'
import type { IncomingMessage } from '../model/message.ts'
import { isClearing } from '../model/message.ts'
import { runWithCopies } from '../store/copy-in.ts'
import type { StorableMessage } from '../store/message-rows.ts'
import { toCopies } from '../store/message-rows.ts'
import { formatEnvelopes, publishingRuns } from './envelopes.ts'
import type { Claim } from './idempotency.ts'
import { claimKeys } from './idempotency.ts'
import { claimReceipts } from './receipts.ts'
import { storeRetained } from './retaining.ts'

/** The outcome of each message: undefined when it is stored (or was stored before under its key), or its own error. */
export type Outcome = undefined | ServiceError

/** The uuid of a batch, which identifies it after a COMMIT without an answer, and its number in the changelog. */
export type BatchNames = { id: string; seq: number }

/**
 * Writes and commits the batch, in one round trip unless it claims idempotency keys. `beforeCommit` is called before anything is sent
 * that could commit, with the outcomes and with the stored messages in the order of their numbers. Rejects with the violation of
 * `ingest_batches_batch_key` when an earlier attempt with the same id was committed; the transaction is left open for a ROLLBACK then.
 */
export async function commitBatch(
  client: pg.ClientBase,
  names: BatchNames,
  batch: readonly StorableMessage[],
  beforeCommit: (outcomes: Outcome[], stored: readonly StorableMessage[]) => void,
): Promise<void> {
  const messages = batch.map(({ message }) => message)
  if (messages.every(isPlain)) {
    beforeCommit(
      messages.map(() => undefined),
      batch,
    )
    const begin = ['BEGIN', logRow(names, messages, noted(messages))]
    return await runWithCopies(client, begin, toCopies(batch, names.seq), ['COMMIT'])
  }
  await client.query(['BEGIN', logRow(names, messages, noted([]))].join(';\n'))
  const receipts = await claimReceipts(client, messages)
  const claims = (await claimKeys(client, messages)).map((claim, index) => receipts[index] ?? claim)
  const fresh = batch.filter((_, index) => claims[index] === 'store')
  beforeCommit(claims.map(outcomeOf), fresh)
  const stored = fresh.map(({ message }) => message)
  await storeRetained(client, stored)
  // Numbered in the order in which they are stored.
  const { envelopes, runs } = noted(stored)
  const cleared = arrayOf('bigint', [...new Set(stored.filter(isClearing).map(({ access }) => access.channelKey))])
  const before =
    envelopes === 'NULL'
      ? []
      : [
          `UPDATE ingest_batches SET envelopes = ${envelopes}, task_runs = ${runs}, cleared_channels = ${cleared}
            WHERE seq = ${names.seq}`,
        ]
  return await runWithCopies(client, before, toCopies(fresh, names.seq), ['COMMIT'])
}

/** The batch is in the changelog: an earlier attempt was committed without an answer. */
export function isCommittedBefore(error: unknown): boolean {
  return violatedConstraint(error) === 'ingest_batches_batch_key'
}

function outcomeOf(claim: Claim): Outcome {
  return typeof claim === 'string' ? undefined : claim
}

/** The message needs no other rows. */
function isPlain({ idempotency, receipt, isRetained }: IncomingMessage): boolean {
  return idempotency === undefined && receipt === undefined && isRetained === undefined
}

/** Quotes untrusted text as hexadecimal digits, so that it is valid under every server setting. */
function quote(text: string): string {
  return `convert_from(decode('${Buffer.from(text).toString('hex')}', 'hex'), 'UTF8')`
}

/** An array of numbers or quoted texts; NULL when it is empty. */
function arrayOf(type: 'bigint' | 'uuid', elements: readonly (number | string)[]): string {
  return elements.length === 0 ? 'NULL' : `ARRAY[${elements.join()}]::${type}[]`
}

/** The columns of a batch that say what its messages are besides their content. */
type Noted = { envelopes: string; runs: string }

function noted(messages: readonly IncomingMessage[]): Noted {
  const envelopes = formatEnvelopes(messages)
  const runs = publishingRuns(messages).map((id) => `${quote(id)}::uuid`)
  return { envelopes: envelopes === undefined ? 'NULL' : quote(envelopes), runs: arrayOf('uuid', runs) }
}

/** Every other value in the text is a number or a generated uuid. */
function logRow({ id, seq }: BatchNames, messages: readonly IncomingMessage[], { envelopes, runs }: Noted): string {
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
  return `INSERT INTO ingest_batches (seq, batch, messages, records, min_time, max_time, envelopes, task_runs)
    VALUES (${seq}, '${id}', ${messages.length}, ${records}, ${span}, ${envelopes}, ${runs})`
}
