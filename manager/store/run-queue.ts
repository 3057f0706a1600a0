/** The queue of runs as the database has it, of all managers together, and the numbers that order it. */
import type { Database } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/** How many runs wait for a worker, at most `maxCounted`, and the age of the oldest of them in seconds; 0: none waits. */
export async function measureRunQueue(
  database: Database,
  maxCounted: number,
): Promise<{ waiting: number; oldestSeconds: number }> {
  const { rows } = await sql<{ waiting: number; oldest: number }>`
    SELECT count(*) AS waiting, coalesce(greatest(extract(epoch FROM now() - min(created_at)), 0), 0)::float8 AS oldest
      FROM (SELECT created_at FROM runs WHERE queue_seq IS NOT NULL LIMIT ${maxCounted}) AS waiting`.execute(
    database.db,
  )
  const [{ waiting, oldest } = { waiting: 0, oldest: 0 }] = rows
  return { waiting, oldestSeconds: oldest }
}

/**
 * Takes fences, the highest first. They are durable when it resolves, because the statement that takes numbers of a sequence is answered
 * after its commit: none is ever given again.
 */
export async function takeFences({ db }: Pick<Database, 'db'>, count: number): Promise<number[]> {
  const { rows } = await sql<{ fence: number }>`
    SELECT nextval('fence') AS fence FROM generate_series(1, ${count}) ORDER BY fence DESC`.execute(db)
  return rows.map(({ fence }) => fence)
}
