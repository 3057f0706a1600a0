/** What domains have in the queues: messages that wait for runs, publications, and the dead letters of both. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/** Bytes as they are stored, a large message of several triggers once, by domain; a domain that is absent has nothing there. */
export async function readQueuedBytes(
  db: Queryable,
  domainKeys: readonly number[],
): Promise<ReadonlyMap<number, number>> {
  const { rows } = await sql<{ key: number; bytes: number }>`
    SELECT d.key, (coalesce(m.bytes, 0) + coalesce(c.bytes, 0) + coalesce(p.bytes, 0) + coalesce(h.bytes, 0))::float8 AS bytes
      FROM unnest(${[...domainKeys]}::bigint[]) AS d (key),
        LATERAL (SELECT sum(pg_column_size(w.message)) AS bytes FROM tasks t JOIN task_messages w ON w.task_key = t.key
          WHERE t.domain_key = d.key) m,
        LATERAL (SELECT sum(o.content_bytes) AS bytes FROM (SELECT DISTINCT w.content_key, w.content_bytes
          FROM tasks t JOIN task_messages w ON w.task_key = t.key WHERE t.domain_key = d.key AND w.content_key IS NOT NULL) o) c,
        LATERAL (SELECT sum(pg_column_size(w.payload)) AS bytes FROM task_publications w WHERE w.domain_key = d.key) p,
        LATERAL (SELECT sum(pg_column_size(w.payload)) AS bytes FROM held_publications w WHERE w.domain_key = d.key) h`.execute(
    db,
  )
  return new Map(rows.map(({ key, bytes }) => [key, bytes]))
}
