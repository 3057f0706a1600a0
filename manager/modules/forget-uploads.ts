/** Uploads that no task has any more, and no run under way wants: their bytes are the largest rows of the database. */
import type { Database } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'

/** Enough for a run that was started just before its task got another module. */
const KEPT = '1 hour'
const MAX_PER_CLEANING = 100

export async function forgetUploads(database: Database, kept: string = KEPT): Promise<void> {
  // A task that takes the same module meanwhile holds its row, or finds it gone and stores it anew (storeModule).
  await sql`
    DELETE FROM modules WHERE key IN (
      SELECT m.key FROM modules m
      WHERE m.created_at < now() - ${kept}::interval
        AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.module_key = m.key)
        AND m.digest NOT IN (SELECT r.module_digest FROM runs r WHERE r.next_check_at IS NOT NULL)
      ORDER BY m.key LIMIT ${MAX_PER_CLEANING}
      FOR UPDATE OF m SKIP LOCKED)`.execute(database.db)
}
