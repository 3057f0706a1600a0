/**
 * Idempotency-Key (contract decision 54): a publish that is repeated with its key is stored once. The row of the key is written in the
 * transaction of the message, so both exist or neither.
 */
import { createHash } from 'node:crypto'
import type pg from 'pg'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { Idempotency, IncomingMessage } from '../model/message.ts'

/** How long a key is kept. */
export const IDEMPOTENCY_HOURS = 24

/** `store`: new, write the message. `stored`: already stored. An error: the key was used with another body. */
export type Claim = 'store' | 'stored' | ServiceError

/** One claim per message, in order; messages without a key are stored. Runs in the transaction of the batch. */
export async function claimKeys(client: pg.ClientBase, messages: readonly IncomingMessage[]): Promise<Claim[]> {
  const first = new Map<string, number>()
  messages.forEach(({ idempotency }, index) => {
    const scope = idempotency?.scope.toString('hex')
    if (scope !== undefined && !first.has(scope)) first.set(scope, index)
  })
  if (first.size === 0) return messages.map(() => 'store')

  // Sorted: two batches with the same keys in different orders would deadlock.
  const sorted = [...first.keys()].toSorted()
  const scopes = sorted.map((scope) => Buffer.from(scope, 'hex'))
  const digests = sorted.map((scope) => messages[first.get(scope) as number]?.idempotency?.requestDigest)
  const { rows: fresh } = await client.query<{ scope: Buffer }>(
    `INSERT INTO idempotency_keys (scope, request_digest)
     SELECT * FROM unnest($1::bytea[], $2::bytea[])
     ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE
        SET request_digest = EXCLUDED.request_digest, created_at = EXCLUDED.created_at
      WHERE idempotency_keys.created_at < now() - make_interval(hours => $3)
     RETURNING scope`,
    [scopes, digests, IDEMPOTENCY_HOURS],
  )
  const claimed = new Set(fresh.map((row) => row.scope.toString('hex')))
  const { rows: known } = await client.query<{ scope: Buffer; request_digest: Buffer }>(
    'SELECT scope, request_digest FROM idempotency_keys WHERE scope = ANY ($1::bytea[])',
    [scopes],
  )
  const digestOf = new Map(known.map((row) => [row.scope.toString('hex'), row.request_digest]))

  return messages.map(({ idempotency }, index) => {
    if (idempotency === undefined) return 'store'
    const scope = idempotency.scope.toString('hex')
    if (digestOf.get(scope)?.equals(idempotency.requestDigest) !== true) {
      return new ServiceError('unprocessable', 'this Idempotency-Key was used with another body')
    }
    return claimed.has(scope) && first.get(scope) === index ? 'store' : 'stored'
  })
}

/** The maximum length of a key. */
const MAX_KEY_LENGTH = 255

/**
 * Identifies a repeatable publish: `caller` is the client or user that owns the key; the digest covers the content.
 * Throws `malformed` for an empty or overlong key.
 */
export function idempotencyOf(request: {
  caller: string
  channelKey: number
  subtopic: string
  key: string
  contentType: string
  body: Uint8Array
}): Idempotency {
  const { caller, channelKey, subtopic, key, contentType, body } = request
  if (key === '' || key.length > MAX_KEY_LENGTH) {
    throw new ServiceError('malformed', `the header Idempotency-Key must have 1 to ${MAX_KEY_LENGTH} characters`)
  }
  return {
    scope: createHash('sha256').update(`${caller}\0${channelKey}\0${subtopic}\0${key}`).digest(),
    requestDigest: createHash('sha256').update(`${contentType}\0`).update(body).digest(),
  }
}

/** The number of rows of one statement, so that maintenance does not delay publishes. */
const DELETE_ROWS = 10_000

/** Deletes expired keys; returns their number. */
export async function deleteExpiredKeys({ db }: Database): Promise<number> {
  for (let forgotten = 0; ;) {
    const { numAffectedRows = 0n } = await sql`
      DELETE FROM idempotency_keys WHERE scope IN (
        SELECT scope FROM idempotency_keys WHERE created_at < now() - make_interval(hours => ${IDEMPOTENCY_HOURS}) LIMIT ${DELETE_ROWS})`.execute(
      db,
    )
    forgotten += Number(numAffectedRows)
    if (numAffectedRows < DELETE_ROWS) return forgotten
  }
}
