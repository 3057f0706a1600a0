/** Disconnects the sessions of a dead node. */
import type { Recorder } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import type { DeadNode } from '#core/nodes/index.ts'
import { sql } from '#core/sql.ts'
import { partGroups } from './groups.ts'
import type { SessionFacts } from './session-events.ts'
import { recordSessionEvent } from './session-events.ts'

/** Subscriptions keep the node's position, delays of wills and expiry begin now. */
export async function disconnectSessionsOf(
  tx: Transaction,
  record: Recorder,
  { id, position }: DeadNode,
): Promise<void> {
  // The locks are taken in the order of every writer: sessions first, then the rows that belong to them.
  await sql`SELECT FROM mqtt_sessions WHERE node = ${id} AND is_connected ORDER BY key FOR UPDATE`.execute(tx)
  await sql`
    UPDATE mqtt_subscriptions u SET position = ${position} FROM mqtt_sessions s
     WHERE s.key = u.session_key AND s.node = ${id} AND s.is_connected AND u.position IS NULL`.execute(tx)
  const { rows: lost } = await sql<SessionFacts>`
    UPDATE mqtt_sessions s SET is_connected = false, disconnected_at = now(), ends_at = now() + make_interval(secs => expiry_seconds),
           will_due_at = CASE WHEN will IS NULL THEN NULL
             ELSE now() + make_interval(secs => least((will->>'delaySeconds')::float8, expiry_seconds)) END
      FROM clients c WHERE c.key = s.client_key AND node = ${id} AND is_connected
    RETURNING s.client_key, s.client_identifier, c.id AS client_id, c.domain_key`.execute(tx)
  for (const session of lost) recordSessionEvent(record, 'disconnect', session, id)
  await partGroups(tx, id)
  await sql`DELETE FROM mqtt_takeovers WHERE node = ${id}`.execute(tx)
}
