/** Removes the state of dead nodes. */
import type { Journal } from '#api/identity/index.ts'
import { sql } from '#core/sql.ts'
import { partGroups } from './groups.ts'
import type { SessionFacts } from './session-events.ts'
import { recordSessionEvent } from './session-events.ts'

/** Their sessions are disconnected: subscriptions keep the node's position, delays of wills and expiry begin now. */
export async function clearDeadNodes(journal: Journal, deadAfterSeconds: number): Promise<void> {
  await journal.change('system', async (tx, record) => {
    const { rows } = await sql<{ node: string; position: string | null }>`
      SELECT node, position FROM mqtt_nodes WHERE seen_at < now() - make_interval(secs => ${deadAfterSeconds})
       ORDER BY node FOR UPDATE SKIP LOCKED`.execute(tx)
    for (const dead of rows) {
      // In the order of every writer: sessions, then the rows that belong to them.
      await sql`SELECT FROM mqtt_sessions WHERE node = ${dead.node} AND is_connected ORDER BY key FOR UPDATE`.execute(
        tx,
      )
      await sql`
        UPDATE mqtt_subscriptions u SET position = ${dead.position} FROM mqtt_sessions s
         WHERE s.key = u.session_key AND s.node = ${dead.node} AND s.is_connected AND u.position IS NULL`.execute(tx)
      const { rows: lost } = await sql<SessionFacts>`
        UPDATE mqtt_sessions s SET is_connected = false, disconnected_at = now(), ends_at = now() + make_interval(secs => expiry_seconds),
               will_due_at = CASE WHEN will IS NULL THEN NULL
                 ELSE now() + make_interval(secs => least((will->>'delaySeconds')::float8, expiry_seconds)) END
          FROM clients c WHERE c.key = s.client_key AND node = ${dead.node} AND is_connected
        RETURNING s.client_key, s.client_identifier, c.id AS client_id, c.domain_key`.execute(tx)
      for (const session of lost) recordSessionEvent(record, 'disconnect', session, dead.node)
      await partGroups(tx, dead.node)
      await sql`DELETE FROM mqtt_takeovers WHERE node = ${dead.node}`.execute(tx)
      await sql`DELETE FROM mqtt_nodes WHERE node = ${dead.node}`.execute(tx)
    }
  })
}
