/** What domains have in the queues: messages that wait for runs, publications, and the dead letters of both. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/**
 * Bytes as they are stored, a large message of several triggers once, by domain; a domain that is absent has nothing there. Many domains with many
 * rows are read in the order of the tables: their rows are scattered.
 */
export async function readQueuedBytes(
  db: Queryable,
  domainKeys: readonly number[],
): Promise<ReadonlyMap<number, number>> {
  const wanted = sql`ANY (${[...domainKeys]}::bigint[])`
  const { rows } = await sql<{ key: number; bytes: number }>`
    SELECT key, sum(bytes)::float8 AS bytes FROM (
      SELECT t.domain_key AS key, sum(pg_column_size(w.message) + coalesce(pg_column_size(w.packed), 0)) AS bytes
        FROM task_messages w JOIN tasks t ON t.key = w.task_key WHERE t.domain_key = ${wanted} GROUP BY 1
      UNION ALL SELECT o.domain_key, sum(o.content_bytes) FROM (SELECT DISTINCT t.domain_key, w.content_key, w.content_bytes
        FROM task_messages w JOIN tasks t ON t.key = w.task_key WHERE t.domain_key = ${wanted} AND w.content_key IS NOT NULL) o GROUP BY 1
      UNION ALL SELECT domain_key, sum(pg_column_size(payload)) FROM task_publications WHERE domain_key = ${wanted} GROUP BY 1
      UNION ALL SELECT domain_key, sum(pg_column_size(payload)) FROM held_publications WHERE domain_key = ${wanted} GROUP BY 1
    ) parts GROUP BY key`.execute(db)
  return new Map(rows.map(({ key, bytes }) => [key, bytes]))
}

/** Tables whose rows count with their size. Contents of large messages count as JSON, which is larger than what is stored. */
const TABLES = ['task_messages', 'task_publications', 'held_publications']

/**
 * Returns at least as much as all domains have in the queues and in the other tables together: the sizes of the tables, which are read
 * without their rows, and a row for each large message.
 */
export async function boundQueuedBytes(db: Queryable, others: readonly string[]): Promise<number> {
  const { rows } = await sql<{ bytes: number }>`
    SELECT ((SELECT sum(pg_table_size(name::regclass)) FROM unnest(${[...TABLES, ...others]}::text[]) AS name)
      + (SELECT coalesce(sum(w.content_bytes), 0) FROM message_contents c
          CROSS JOIN LATERAL (SELECT content_bytes FROM task_messages WHERE content_key = c.key LIMIT 1) w))::float8 AS bytes`.execute(
    db,
  )
  return rows[0]?.bytes ?? Infinity
}
