/** Replaces or clears the retained message of a topic in the transaction of the message. */
import type pg from 'pg'
import { formatEnvelope } from '../model/envelope.ts'
import type { IncomingMessage } from '../model/message.ts'
import { isClearing } from '../model/message.ts'

/** Of two messages for one topic, the later one wins. */
export async function storeRetained(client: pg.ClientBase, messages: readonly IncomingMessage[]): Promise<void> {
  const last = new Map<string, IncomingMessage>()
  for (const message of messages) {
    if (message.isRetained === true) last.set(`${message.access.channelKey} ${message.subtopic}`, message)
  }
  if (last.size === 0) return
  // Sorted, like every statement over many rows.
  const sorted = [...last.values()].toSorted(
    (one, other) => one.access.channelKey - other.access.channelKey || (one.subtopic < other.subtopic ? -1 : 1),
  )
  const cleared = sorted.filter(isClearing)
  if (cleared.length > 0) {
    await client.query(
      `DELETE FROM mqtt_retained WHERE (channel_key, subtopic) IN (
         SELECT channel_key, subtopic FROM mqtt_retained
           JOIN unnest($1::bigint[], $2::text[]) AS cleared (channel_key, subtopic) USING (channel_key, subtopic)
          ORDER BY channel_key, subtopic FOR UPDATE OF mqtt_retained)`,
      [cleared.map(({ access }) => access.channelKey), cleared.map(({ subtopic }) => subtopic)],
    )
  }
  const rows = sorted.filter((message) => !isClearing(message))
  if (rows.length === 0) return
  await client.query(
    `INSERT INTO mqtt_retained (channel_key, subtopic, publisher_id, qos, envelope, payload, expires_at)
     SELECT channel_key, subtopic, publisher_id, qos, envelope, payload, to_timestamp(expires_ms / 1000)
       FROM unnest($1::bigint[], $2::text[], $3::text[], $4::smallint[], $5::text[], $6::bytea[], $7::float8[])
         AS kept (channel_key, subtopic, publisher_id, qos, envelope, payload, expires_ms)
     ON CONFLICT ON CONSTRAINT mqtt_retained_pkey DO UPDATE
        SET publisher_id = EXCLUDED.publisher_id, qos = EXCLUDED.qos, envelope = EXCLUDED.envelope,
            payload = EXCLUDED.payload, expires_at = EXCLUDED.expires_at, stored_at = now()`,
    [
      rows.map(({ access }) => access.channelKey),
      rows.map(({ subtopic }) => subtopic),
      rows.map(({ access }) => access.publisherId ?? ''),
      rows.map(({ envelope }) => envelope?.qos ?? 1),
      rows.map(({ envelope }) => formatEnvelope(envelope)),
      rows.map(({ original }) => original?.body ?? Buffer.alloc(0)),
      rows.map(({ envelope }) => envelope?.expiresAtMs ?? null),
    ],
  )
}
