/** The end of a connection: the session ends with it, or is kept with its messages in flight (MQTT 5.0 section 4.1). */
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { writeOutbound } from './outbound.ts'
import type { CloseSession } from './rows.ts'
import { writePositions } from './subscriptions.ts'
import { formatWill } from './wills.ts'

/** The rows are locked and belong to these connections. */
export async function closeSessions(tx: Transaction, sessions: readonly CloseSession[]): Promise<void> {
  // A session whose will is still to be sent is removed after it is sent.
  const isOver = ({ expirySeconds, will }: CloseSession) => expirySeconds === 0 && will === undefined
  const ended = sessions.filter(isOver).map(({ key }) => key)
  if (ended.length > 0) await sql`DELETE FROM mqtt_sessions WHERE key = ANY (${ended}::bigint[])`.execute(tx)
  const kept = sessions.filter((session) => !isOver(session)).toSorted((one, other) => one.key - other.key)
  if (kept.length === 0) return
  const keys = kept.map(({ key }) => key)
  const wills = kept.map(({ will }) => (will === undefined ? null : JSON.stringify(formatWill(will))))
  // If the node was considered dead, its end is already stored: the will was sent, or is about to be.
  await sql`
    UPDATE mqtt_sessions s
       SET is_connected = false, expiry_seconds = closed.expiry_seconds,
           disconnected_at = CASE WHEN s.is_connected THEN now() ELSE s.disconnected_at END,
           ends_at = CASE WHEN s.is_connected THEN now() + make_interval(secs => closed.expiry_seconds) ELSE s.ends_at END,
           will = CASE WHEN s.is_connected THEN closed.will::jsonb ELSE s.will END,
           will_payload = CASE WHEN s.is_connected THEN closed.will_payload ELSE s.will_payload END,
           will_due_at = CASE WHEN s.is_connected THEN now() + make_interval(secs => closed.delay_seconds) ELSE s.will_due_at END
      FROM unnest(${keys}::bigint[], ${kept.map(({ expirySeconds }) => expirySeconds)}::float8[], ${wills}::text[],
                  ${kept.map(({ will }) => will?.payload ?? null)}::bytea[], ${kept.map(({ will, expirySeconds }) => (will === undefined ? null : Math.min(will.delaySeconds, expirySeconds)))}::float8[])
           AS closed (key, expiry_seconds, will, will_payload, delay_seconds)
     WHERE s.key = closed.key`.execute(tx)
  await sql`DELETE FROM mqtt_outbound WHERE session_key = ANY (${keys}::bigint[])`.execute(tx)
  await writeOutbound(
    tx,
    kept.flatMap(({ key, outbound }) => outbound.map((one) => ({ ...one, sessionKey: key }))),
  )
  await writePositions(
    tx,
    kept.flatMap(({ key, positions }) => positions.map((one) => ({ ...one, sessionKey: key }))),
  )
}
