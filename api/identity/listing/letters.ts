/** Checks whether the database has trigrams of non-ASCII letters, which searches for names in other alphabets use. */
import type { Queryable } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'

/**
 * Logs a warning at the start when searches for non-ASCII names are slow, which depends on the `LC_CTYPE` of the
 * database.
 */
export async function warnOfSlowSearches(db: Queryable, logger: Logger): Promise<void> {
  const { rows } = await sql<{ ctype: string; amount: number }>`
    SELECT datctype AS ctype, cardinality(show_trgm('\u0434\u0430\u0442\u0447\u0438\u043a')) AS amount
      FROM pg_database WHERE datname = current_database()`.execute(db)
  const [found] = rows
  if (found === undefined || found.amount > 0) return
  logger.warn(
    `searches for names with non-ASCII letters are slow: the database has LC_CTYPE ${found.ctype}; see docs/guides/external-database.md`,
  )
}
