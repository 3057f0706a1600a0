/** Old runs go: those that ended longer ago than is kept, but for the one whose result is its task's. */
import type { Database } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/** Rows that one statement looks at, so that housekeeping never holds a start up for long. */
const PAGE_ROWS = 5_000
/** Earlier attempts that are shown of a run that goes on and on. */
const KEPT_ATTEMPTS = 100

type Page = { last: number | null; is_old: boolean | null; removed: number }

/**
 * Walks the runs in the order of their keys, which is nearly that of their age, and stops at the first page that is young
 * throughout. Returns how many it removed.
 */
export async function forgetRuns({ db }: Database, keptMs: number): Promise<number> {
  let removed = 0
  for (let after = 0; ;) {
    const { rows } = await sql<Page>`
      WITH page AS MATERIALIZED (
        SELECT r.key, r.id, r.parent_id, r.created_at, r.next_check_at IS NULL
          AND r.finished_at < now() - make_interval(secs => ${keptMs / 1000}::float8) AS is_over
        FROM runs r WHERE r.key > ${after} ORDER BY r.key LIMIT ${PAGE_ROWS}),
      removed AS (
        -- By their keys: a plan that joins may compare each run of the page with every run that there is.
        DELETE FROM runs WHERE key = ANY (ARRAY(SELECT p.key FROM page p WHERE p.is_over
          AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.run_key = p.key)
          AND NOT EXISTS (SELECT 1 FROM runs g JOIN tasks t ON t.run_key = g.key WHERE g.id = p.parent_id)))
        RETURNING key)
      SELECT max(key) AS last, bool_or(created_at < now() - make_interval(secs => ${keptMs / 1000}::float8)) AS is_old,
        (SELECT count(*) FROM removed)::int AS removed FROM page`.execute(db)
    const [page] = rows
    removed += page?.removed ?? 0
    if (page === undefined || page.last === null || page.is_old !== true) break
    after = page.last
  }
  await sql`DELETE FROM run_attempts a USING runs r
    WHERE r.key = a.run_key AND r.next_check_at IS NOT NULL AND a.attempt < r.attempt - ${KEPT_ATTEMPTS}`.execute(db)
  return removed
}
