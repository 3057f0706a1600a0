/** The rows of messages in flight to clients, and of packet identifiers that clients have not released. */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { OutboundFacts, OutboundState, StoredOutbound } from './rows.ts'
import { OUTBOUND_STATES } from './rows.ts'

export async function writeOutbound(
  tx: Transaction,
  outbound: readonly (StoredOutbound & { sessionKey: number })[],
): Promise<void> {
  // One batch may contain a message twice: sent, then released.
  const last = new Map(outbound.map((one) => [`${one.sessionKey} ${one.ordinal}`, one]))
  if (last.size === 0) return
  const rows = [...last.values()].toSorted(
    (one, other) => one.sessionKey - other.sessionKey || one.ordinal - other.ordinal,
  )
  await sql`
    INSERT INTO mqtt_outbound (session_key, ordinal, packet_id, qos, state, batch_seq, message, channel_key, subtopic, properties, payload)
    SELECT session_key, ordinal, packet_id, qos, state, batch_seq, message, channel_key, subtopic, properties::jsonb, payload FROM unnest(
      ${rows.map(({ sessionKey }) => sessionKey)}::bigint[], ${rows.map(({ ordinal }) => ordinal)}::bigint[],
      ${rows.map(({ packetId }) => packetId)}::integer[], ${rows.map(({ qos }) => qos)}::smallint[],
      ${rows.map(({ state }) => OUTBOUND_STATES[state])}::smallint[], ${rows.map(({ batchSeq }) => batchSeq ?? null)}::bigint[],
      ${rows.map(({ message }) => message)}::integer[], ${rows.map(({ channelKey }) => channelKey)}::bigint[],
      ${rows.map(({ subtopic }) => subtopic)}::text[], ${rows.map(({ facts }) => JSON.stringify(facts))}::text[],
      ${rows.map(({ payload }) => payload)}::bytea[])
      AS sent (session_key, ordinal, packet_id, qos, state, batch_seq, message, channel_key, subtopic, properties, payload)
    ON CONFLICT ON CONSTRAINT mqtt_outbound_pkey DO UPDATE SET packet_id = EXCLUDED.packet_id, state = EXCLUDED.state`.execute(
    tx,
  )
}

export async function loadOutbound(
  tx: Transaction,
  sessionKeys: readonly number[],
): Promise<Map<number, StoredOutbound[]>> {
  const found = new Map<number, StoredOutbound[]>()
  if (sessionKeys.length === 0) return found
  const { rows } = await sql<{
    session_key: number
    ordinal: number
    packet_id: number
    qos: 1 | 2
    state: number
    batch_seq: number | null
    message: number
    channel_key: number
    subtopic: string
    properties: OutboundFacts
    payload: Buffer
  }>`
    SELECT session_key, ordinal, packet_id, qos, state, batch_seq, message, channel_key, subtopic, properties, payload
      FROM mqtt_outbound WHERE session_key = ANY (${[...sessionKeys]}::bigint[]) ORDER BY session_key, ordinal`.execute(
    tx,
  )
  const states = Object.keys(OUTBOUND_STATES) as OutboundState[]
  for (const row of rows) {
    const one = {
      ordinal: row.ordinal,
      packetId: row.packet_id,
      qos: row.qos,
      state: states[row.state] ?? 'waiting',
      batchSeq: row.batch_seq ?? undefined,
      message: row.message,
      channelKey: row.channel_key,
      subtopic: row.subtopic,
      facts: row.properties,
      payload: row.payload,
    }
    const mine = found.get(row.session_key)
    if (mine === undefined) found.set(row.session_key, [one])
    else mine.push(one)
  }
  return found
}

export async function loadReceived(tx: Transaction, sessionKeys: readonly number[]): Promise<Map<number, number[]>> {
  const found = new Map<number, number[]>()
  if (sessionKeys.length === 0) return found
  const { rows } = await sql<{ session_key: number; packet_id: number }>`
    SELECT session_key, packet_id FROM mqtt_received WHERE session_key = ANY (${[...sessionKeys]}::bigint[])`.execute(
    tx,
  )
  for (const { session_key: key, packet_id: packetId } of rows) {
    const mine = found.get(key)
    if (mine === undefined) found.set(key, [packetId])
    else mine.push(packetId)
  }
  return found
}

export async function deleteReceived(
  tx: Transaction,
  released: readonly { sessionKey: number; packetId: number }[],
): Promise<void> {
  if (released.length === 0) return
  const rows = released.toSorted((one, other) => one.sessionKey - other.sessionKey || one.packetId - other.packetId)
  await sql`
    DELETE FROM mqtt_received WHERE (session_key, packet_id) IN (
      SELECT * FROM unnest(${rows.map(({ sessionKey }) => sessionKey)}::bigint[], ${rows.map(({ packetId }) => packetId)}::integer[]))`.execute(
    tx,
  )
}
