/**
 * Whether clients are online and when they were last seen, as lists and views show it. `messages/presence` and the
 * projector write the table; here it is read alone, because a filter of a list must be part of the list's statement.
 */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

export type Activity = { isOnline: boolean; lastSeen: string | null }

const NEVER_SEEN: Activity = { isOnline: false, lastSeen: null }

/** Condition on the table `alias` of clients. */
export function hasState(alias: string, isOnline: boolean): Sql<boolean> {
  const key = sql.ref(`${alias}.key`)
  return isOnline
    ? sql<boolean>`${key} IN (SELECT t.client_key FROM client_telemetry t WHERE t.is_online)`
    : sql<boolean>`NOT EXISTS (SELECT FROM client_telemetry t WHERE t.client_key = ${key} AND t.is_online)`
}

/** Returns the activity of these clients, in the order of the keys. */
export async function findActivities(db: Queryable, keys: readonly number[]): Promise<Activity[]> {
  if (keys.length === 0) return []
  const { rows } = await sql<{ client_key: number; is_online: boolean; last_seen: string }>`
    SELECT client_key, is_online, last_seen FROM client_telemetry WHERE client_key = ANY (${keys}::bigint[])`.executePrepared(
    db,
    'find-activities',
  )
  const found = new Map(rows.map((row) => [row.client_key, { isOnline: row.is_online, lastSeen: row.last_seen }]))
  return keys.map((key) => found.get(key) ?? NEVER_SEEN)
}
