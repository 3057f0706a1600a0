/** Totals over all domains, for platform administrators. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

export type PlatformTotals = {
  users: number
  domains: number
  clients: number
  online: number
  channels: number
  groups: number
  now: string
}

/** Entities come from the counts that every change keeps, so that nothing large is counted. */
export async function findPlatformTotals(db: Queryable): Promise<PlatformTotals> {
  const counted = (type: string) =>
    sql`(SELECT coalesce(sum(amount), 0)::bigint FROM entity_counts WHERE entity_type = ${type})`
  const { rows } = await sql<PlatformTotals>`
    SELECT (SELECT count(*) FROM users WHERE status <> 'deleted') AS users,
           (SELECT count(*) FROM domains WHERE status <> 'deleted') AS domains,
           ${counted('client')} AS clients, (SELECT count(*) FROM client_telemetry WHERE is_online) AS online,
           ${counted('channel')} AS channels, ${counted('group')} AS groups, now() AS now`.execute(db)
  return rows[0] as PlatformTotals
}
