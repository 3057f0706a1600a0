/** Deletes expired rows: old runs, notes, uploads, tokens, certificates. Each deletion has its own row limit. */
import type { Database } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { forgetKept } from '#api/identity/index.ts'
import { removeOldLetters } from '#queues/index.ts'

/** Idempotency keys are kept for 24 h (contract decision 54); parts of unreferenced results for the same time. */
const KEPT_KEYS = '24 hours'
const KEPT_EVENTS_HOURS = 24
/** Long enough for a run that started just before its task got another module. */
const KEPT_UPLOADS = '1 hour'
/** Kept beyond the expiry, so that an expired certificate is still recognized as revoked. */
const KEPT_CERTIFICATES_DAYS = 365
/** Earlier attempts that are kept of a long-lived run. */
const KEPT_ATTEMPTS = 100
/** Rows that one statement reads or deletes, so that retention never delays a start for long. */
const PAGE_ROWS = 5_000
const STEP_ROWS = 10_000
const MAX_UPLOADS = 100

/** One round of all deletions. `keptRunsMs`: retention of ended runs. */
export async function deleteExpired(database: Database, keptRunsMs: number): Promise<void> {
  await deleteStartKeys(database)
  await deleteStagedResults(database)
  await deleteEvents(database)
  await deleteTokens(database)
  await deleteUploads(database)
  await deleteCertificates(database)
  await removeOldLetters(database.db)
  await deleteRuns(database, keptRunsMs)
  await forgetKept(database.db, keptRunsMs)
}

async function deleteStartKeys({ db }: Database): Promise<void> {
  await sql`DELETE FROM run_start_keys WHERE (task_key, user_key, idempotency_key) IN (
      SELECT task_key, user_key, idempotency_key FROM run_start_keys
      WHERE created_at < now() - ${KEPT_KEYS}::interval LIMIT ${STEP_ROWS})`.execute(db)
}

async function deleteStagedResults({ db }: Database): Promise<void> {
  await sql`DELETE FROM staged_results s WHERE s.staged_at < now() - ${KEPT_KEYS}::interval
    AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.result_digest = s.digest)`.execute(db)
}

/** Notes of states, oldest first. */
async function deleteEvents({ db }: Database): Promise<void> {
  for (;;) {
    const { numAffectedRows = 0n } = await sql`DELETE FROM task_events WHERE seq = ANY (ARRAY(
      SELECT seq FROM (SELECT seq, occurred_at FROM task_events ORDER BY seq LIMIT ${STEP_ROWS}) oldest
      WHERE occurred_at < now() - make_interval(hours => ${KEPT_EVENTS_HOURS})))`.execute(db)
    if (numAffectedRows < STEP_ROWS) return
  }
}

/** Expired tokens; those of the installation never expire. */
async function deleteTokens({ db }: Database): Promise<void> {
  await sql`DELETE FROM worker_tokens WHERE expires_at < now()`.execute(db)
}

/** Uploads without a task and without an active run: their bytes are the largest rows of the database. */
export async function deleteUploads({ db }: Database, kept: string = KEPT_UPLOADS): Promise<void> {
  // A task that gets the same module meanwhile locks its row, or finds it deleted and stores it again (storeModule).
  await sql`
    DELETE FROM modules WHERE key IN (
      SELECT m.key FROM modules m
      WHERE m.created_at < now() - ${kept}::interval
        AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.module_key = m.key)
        AND m.digest NOT IN (SELECT r.module_digest FROM runs r WHERE r.next_check_at IS NOT NULL)
      ORDER BY m.key LIMIT ${MAX_UPLOADS}
      FOR UPDATE OF m SKIP LOCKED)`.execute(db)
}

async function deleteCertificates({ db }: Database): Promise<void> {
  await sql`DELETE FROM worker_certificates
    WHERE expires_at < now() - make_interval(days => ${KEPT_CERTIFICATES_DAYS})`.execute(db)
}

type Page = { last: number | null; is_old: boolean | null; removed: number }

/**
 * Deletes runs that ended longer ago than the retention, except the one whose result its task shows. Scans the runs in
 * the order of their keys, which is roughly their age, and stops at the first page without old runs. Returns the number
 * of deleted runs.
 */
export async function deleteRuns({ db }: Database, keptMs: number): Promise<number> {
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
