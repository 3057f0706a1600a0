/**
 * `held_publications`: what guests publish in runs that a message caused. It moves to `task_publications` in the transaction that records the
 * end of the run, if the run completed under that fence. Otherwise it is deleted, so an execution that does not count has published nothing.
 */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { storeCall } from './publications.ts'
import type { CallPublication } from './publications.ts'

/** Calls of a run that may publish. */
export const HELD_CALLS = 100_000
/** Runs whose publications were left that one round moves. */
const MAX_LEFT = 500

/** Stores a publication like `publishCall`, but the message goes out with the end of the run. */
export const holdCall = (db: Queryable, call: CallPublication): Promise<boolean> =>
  storeCall(db, 'held_publications', call)

/**
 * Moves what ended runs have published, or deletes it. Returns the number of publications that moved. Those of open runs stay.
 */
export async function releaseHeld(
  db: Queryable,
  runIds: readonly string[],
  { completed, open }: { completed: number; open: readonly number[] },
): Promise<number> {
  const { rows } = await sql<{ moved: number }>`
    WITH taken AS (
      DELETE FROM held_publications h USING unnest(${runIds}::uuid[]) AS g (run_id)
       WHERE h.run_id = g.run_id AND NOT EXISTS (SELECT FROM runs r WHERE r.id = g.run_id AND r.state = ANY(${open}::int[]))
       RETURNING h.*),
    moved AS (
      INSERT INTO task_publications (domain_key, user_key, channel_id, subtopic, payload, task_key, run_id, fence, call_id, traceparent, created_at)
      SELECT h.domain_key, h.user_key, h.channel_id, h.subtopic, h.payload, h.task_key, h.run_id, h.fence, h.call_id, h.traceparent, h.created_at
        FROM taken h JOIN runs r ON r.id = h.run_id AND r.fence = h.fence AND r.state = ${completed}
       ORDER BY h.run_id, h.call_id
      ON CONFLICT ON CONSTRAINT task_publications_call_key DO NOTHING RETURNING key)
    SELECT count(*)::int AS moved FROM moved`.executePrepared(db, 'release-held')
  return rows[0]?.moved ?? 0
}

/** Does the same for runs whose end was recorded without it, by a node of an earlier build. */
export async function releaseLeft(
  db: Queryable,
  states: { completed: number; open: readonly number[] },
): Promise<number> {
  const { rows } = await sql<{ run_id: string }>`
    SELECT DISTINCT h.run_id FROM held_publications h LEFT JOIN runs r ON r.id = h.run_id
     WHERE r.id IS NULL OR NOT r.state = ANY(${states.open}::int[]) LIMIT ${MAX_LEFT}`.execute(db)
  if (rows.length === 0) return 0
  return await releaseHeld(
    db,
    rows.map((row) => row.run_id),
    states,
  )
}
