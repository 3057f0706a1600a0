/** The stored sessions of a client, on any node. */
import { Keyset, readPage } from '#core/database/index.ts'
import type { Queryable } from '#core/database/index.ts'
import type { PageEnd } from '#core/cursor.ts'
import type { PageRange } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import { isUnexpired } from './session-limit.ts'

export type SessionRow = {
  client_identifier: string
  is_connected: boolean
  version: number
  address: string
  expiry_seconds: number
  connected_at: string
  disconnected_at: string | null
  ends_at: string | null
  has_will: boolean
  skipped_messages: number
  subscriptions: { filter: string; qos: number }[]
  queued: number
  unreleased: number
}

export async function listSessions(
  db: Queryable,
  clientKey: number,
  range: PageRange,
): Promise<{ total: number; rows: SessionRow[]; next: PageEnd }> {
  const where = sql<boolean>`s.client_key = ${clientKey} AND ${isUnexpired('s')}`
  const { rows: counted } = await sql<{ total: number }>`
    SELECT count(*) AS total FROM mqtt_sessions s WHERE ${where}`.execute(db)
  const columns = sql`s.client_identifier, s.is_connected, s.version, s.address, s.expiry_seconds, s.connected_at, s.disconnected_at, s.ends_at,
    s.will IS NOT NULL AS has_will, s.skipped_messages,
    coalesce((SELECT json_agg(json_build_object('filter', u.filter, 'qos', u.options & 3) ORDER BY u.filter)
                FROM mqtt_subscriptions u WHERE u.session_key = s.key), '[]') AS subscriptions,
    (SELECT count(*) FROM mqtt_outbound o WHERE o.session_key = s.key) AS queued,
    (SELECT count(*) FROM mqtt_received r WHERE r.session_key = s.key) AS unreleased`
  const joined = { alias: 's', key: 'key' }
  const source = { columns, from: sql`mqtt_sessions s`, where, keyset: BY_IDENTIFIER, joined }
  return { total: counted[0]?.total ?? 0, ...(await readPage<SessionRow>(db, source, range)) }
}

const BY_IDENTIFIER = new Keyset([{ by: sql`s.client_identifier`, type: 'text' }])
