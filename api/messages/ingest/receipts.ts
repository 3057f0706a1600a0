/**
 * Exactly once (MQTT QoS 2): the packet identifier is stored in the transaction of the message until its sender releases it. A session
 * that another connection has taken over writes nothing more.
 */
import type pg from 'pg'
import { ServiceError } from '#core/errors/index.ts'
import type { IncomingMessage } from '../model/message.ts'
import type { Claim } from './idempotency.ts'

/** One claim per message, in order; undefined for those without a receipt. Runs in the transaction of the batch. */
export async function claimReceipts(
  client: pg.ClientBase,
  messages: readonly IncomingMessage[],
): Promise<readonly (Claim | undefined)[]> {
  const receipts = messages.flatMap(({ receipt }) => (receipt === undefined ? [] : [receipt]))
  if (receipts.length === 0) return messages.map(() => undefined)
  // Sorted: two batches with the same sessions in different orders would deadlock.
  const epochs = new Map(
    receipts.map(({ sessionKey, epoch }) => [sessionKey, epoch] as const).toSorted(([one], [other]) => one - other),
  )
  // Waits for a takeover in progress: the new connection sees what is committed here, or this claim is rejected.
  const { rows: live } = await client.query<{ key: number }>(
    `SELECT key FROM mqtt_sessions WHERE (key, epoch) IN (SELECT * FROM unnest($1::bigint[], $2::bigint[])) ORDER BY key FOR SHARE`,
    [[...epochs.keys()], [...epochs.values()]],
  )
  const liveKeys = new Set(live.map(({ key }) => key))
  const wanted = receipts
    .filter(({ sessionKey, epoch }) => liveKeys.has(sessionKey) && epochs.get(sessionKey) === epoch)
    .toSorted((one, other) => one.sessionKey - other.sessionKey || one.packetId - other.packetId)
  const { rows: fresh } = await client.query<{ session_key: number; packet_id: number }>(
    `INSERT INTO mqtt_received (session_key, packet_id) SELECT * FROM unnest($1::bigint[], $2::integer[])
     ON CONFLICT ON CONSTRAINT mqtt_received_pkey DO NOTHING RETURNING session_key, packet_id`,
    [wanted.map(({ sessionKey }) => sessionKey), wanted.map(({ packetId }) => packetId)],
  )
  const claimed = new Set(fresh.map((row) => `${row.session_key} ${row.packet_id}`))
  return messages.map(({ receipt }) => {
    if (receipt === undefined) return undefined
    const { sessionKey, epoch, packetId } = receipt
    if (!liveKeys.has(sessionKey) || epochs.get(sessionKey) !== epoch)
      return new ServiceError('conflict', 'another connection has taken over the session')
    // The first of two copies in one batch is stored.
    return claimed.delete(`${sessionKey} ${packetId}`) ? 'store' : 'stored'
  })
}
