/** What domains have in the queues: messages that wait for runs, publications, and the dead letters of both. */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/** Bytes as they are stored, by domain; a domain that is absent has nothing there. */
export async function readQueuedBytes(
  db: Queryable,
  domainKeys: readonly number[],
): Promise<ReadonlyMap<number, number>> {
  const { rows } = await sql<{ key: number; bytes: number }>`
    SELECT d.key, (coalesce(m.bytes, 0) + coalesce(p.bytes, 0) + coalesce(h.bytes, 0))::float8 AS bytes
      FROM unnest(${[...domainKeys]}::bigint[]) AS d (key),
        LATERAL (SELECT sum(pg_column_size(w.message)) AS bytes FROM tasks t JOIN task_messages w ON w.task_key = t.key
          WHERE t.domain_key = d.key) m,
        LATERAL (SELECT sum(pg_column_size(w.payload)) AS bytes FROM task_publications w WHERE w.domain_key = d.key) p,
        LATERAL (SELECT sum(pg_column_size(w.payload)) AS bytes FROM held_publications w WHERE w.domain_key = d.key) h`.execute(
    db,
  )
  return new Map(rows.map(({ key, bytes }) => [key, bytes]))
}
