/**
 * Whether clients are online and when they were last seen, as lists and views show it. `messages/presence` and the
 * projector write the table. It is only read here, as part of the statements that read clients.
 */
import type { SortColumn } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

export type Activity = { isOnline: boolean; lastSeen: string | null }

/** Condition on the table `alias` of clients. */
export function hasState(alias: string, isOnline: boolean): Sql<boolean> {
  const key = sql.ref(`${alias}.key`)
  return isOnline
    ? sql<boolean>`${key} IN (SELECT t.client_key FROM client_telemetry t WHERE t.is_online)`
    : sql<boolean>`NOT EXISTS (SELECT FROM client_telemetry t WHERE t.client_key = ${key} AND t.is_online)`
}

/**
 * The order of clients by when they were last seen; those that never were are the oldest. No index has it: every message of a client
 * would change such an index.
 */
export function byLastSeen(alias: string): SortColumn {
  const key = sql.ref(`${alias}.key`)
  const seen = sql`(SELECT t.last_seen FROM client_telemetry t WHERE t.client_key = ${key})`
  return { by: sql`coalesce(${seen}, '0001-01-01T00:00:00Z'::timestamptz)`, type: 'time' }
}

/** The columns of a statement that reads clients `e`. */
export const ACTIVITY = {
  columns: 't.is_online AS "isOnline", t.last_seen AS "lastSeen"',
  join: 'LEFT JOIN client_telemetry t ON t.client_key = e.key',
} as const

/** Null: the client was never seen. */
export type ActivityColumns = { isOnline: boolean | null; lastSeen: string | null }

/** Undefined for a record without these columns. */
export function activityOf({ isOnline, lastSeen }: Partial<ActivityColumns>): Activity | undefined {
  return isOnline === undefined ? undefined : { isOnline: isOnline ?? false, lastSeen: lastSeen ?? null }
}
