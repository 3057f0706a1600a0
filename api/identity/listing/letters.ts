/** Whether the database has trigrams of letters beyond ASCII, by which names in other alphabets are found. */
import type { Queryable } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'

/** Says at the start what an operator would otherwise see as slow searches: this depends on the `LC_CTYPE` of the database. */
export async function warnOfSlowSearches(db: Queryable, logger: Logger): Promise<void> {
  const { rows } = await sql<{ ctype: string; amount: number }>`
    SELECT datctype AS ctype, cardinality(show_trgm('\u0434\u0430\u0442\u0447\u0438\u043a')) AS amount
      FROM pg_database WHERE datname = current_database()`.execute(db)
  const [found] = rows
  if (found === undefined || found.amount > 0) return
  logger.warn(
    `names with letters beyond ASCII are searched slowly: the database has LC_CTYPE ${found.ctype}; see docs/guides/external-database.md`,
  )
}
