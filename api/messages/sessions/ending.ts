/** Ends sessions at the request of the client's owner, with or without a connection, on any node. */
import type { Recorder } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { isUnexpired } from './session-limit.ts'
import type { SessionFacts } from './session-events.ts'
import { recordSessionEvent } from './session-events.ts'

type Ended = SessionFacts & { key: number; epoch: number; node: string; was_connected: boolean }

/**
 * Ends one session, or all, and returns the identifiers of the ended ones. The row is removed after its will is sent; the node with the
 * connection is notified as of a takeover.
 */
export async function endSessions(
  tx: Transaction,
  record: Recorder,
  clientKey: number,
  clientIdentifier: string | undefined,
): Promise<string[]> {
  const isMeant = clientIdentifier === undefined ? sql`true` : sql`s.client_identifier = ${clientIdentifier}`
  const { rows } = await sql<Ended>`
    WITH meant AS (
      SELECT s.key, s.epoch, s.is_connected FROM mqtt_sessions s
       WHERE s.client_key = ${clientKey} AND ${isMeant} AND ${isUnexpired('s')} ORDER BY s.key FOR UPDATE)
    UPDATE mqtt_sessions s
       SET epoch = s.epoch + 1, is_connected = false, expiry_seconds = 0, ends_at = now(),
           disconnected_at = CASE WHEN s.is_connected THEN now() ELSE s.disconnected_at END,
           will_due_at = CASE WHEN s.will IS NULL THEN NULL ELSE now() END
      FROM meant, clients c WHERE s.key = meant.key AND c.key = s.client_key
    RETURNING s.key, meant.epoch, s.node, meant.is_connected AS was_connected, s.client_key, s.client_identifier,
              c.id AS client_id, c.domain_key`.execute(tx)
  const connected = rows.filter((row) => row.was_connected)
  if (connected.length > 0) {
    await sql`
      INSERT INTO mqtt_takeovers (node, session_key, epoch) SELECT * FROM unnest(
        ${connected.map(({ node }) => node)}::text[], ${connected.map(({ key }) => key)}::bigint[], ${connected.map(({ epoch }) => epoch)}::bigint[])
      ON CONFLICT ON CONSTRAINT mqtt_takeovers_pkey DO NOTHING`.execute(tx)
  }
  for (const row of connected) recordSessionEvent(record, 'disconnect', row, row.node)
  return rows.map((row) => row.client_identifier)
}
