/** Deletions of records that are in the archive. */
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'

/**
 * A statement that makes archived ranges due again in the transaction that changes their records. `rows` has `retention_days` and
 * `arrived_at` of the changed ones, all of the channel. Ranges begin and end with a day.
 */
export function rangesChanged(channelKey: number, rows: Sql<unknown>): Sql<unknown> {
  return sql`
    UPDATE archive_ranges a SET changes = a.changes + 1, due_at = CASE WHEN a.changes = a.exported_changes THEN now() ELSE a.due_at END
     WHERE a.domain_key = (SELECT c.domain_key FROM channels c WHERE c.key = ${channelKey})
       AND EXISTS (
         SELECT FROM (SELECT DISTINCT retention_days, date_trunc('day', arrived_at, 'UTC') AS day FROM (${rows}) one) g
          WHERE g.retention_days = a.retention_days AND g.day >= a.range_start AND g.day < a.range_end)`
}
