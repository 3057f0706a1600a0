/**
 * Exactly once (MQTT QoS 2): the packet identifier is in the transaction of the message, until its sender releases it. A
 * session that another connection took over meanwhile writes nothing more.
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
  // Sorted: two batches that hold the same sessions in another order would deadlock.
  const epochs = new Map(
    receipts.map(({ sessionKey, epoch }) => [sessionKey, epoch] as const).toSorted(([one], [other]) => one - other),
  )
  // A session that is being taken over is waited for: whoever takes it over sees what is committed here, or it is refused.
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
      return new ServiceError('conflict', 'another connection took the session over')
    // The first of two copies in one batch stores it.
    return claimed.delete(`${sessionKey} ${packetId}`) ? 'store' : 'stored'
  })
}
