/**
 * How many records domains and users have, counted once by a consumer of the journal. A total is what it has counted and
 * what came since, in one statement: exact at once, however far behind the consumer is.
 */
import type { Database, Queryable } from '#core/database/index.ts'
import { LOG_START, findPosition, startLogFollower } from '#core/log/index.ts'
import type { LogFollower } from '#core/log/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { JOURNAL_CONSUMERS } from './consumers.ts'

const TOTALS_CONSUMER = `${JOURNAL_CONSUMERS}totals`
/** What is not counted yet is counted with each listing, so there is no hurry. */
const INTERVAL_MS = 5000
const MAX_ROWS = 5000

/** Records by scope and operation; `table` has `operation`, `domain_key` and `keys`, every entity of the record. */
export function countsOf(table: string): Sql<unknown> {
  return sql`SELECT scope.key AS scope_key, r.operation, count(*) AS total FROM ${sql.table(table)} r CROSS JOIN LATERAL (
      SELECT r.domain_key AS key WHERE r.domain_key IS NOT NULL
      UNION SELECT u.key FROM users u WHERE u.key = ANY (r.keys)) scope
    GROUP BY scope.key, r.operation ORDER BY scope.key, r.operation`
}

export function startJournalTotals(options: { database: Database; logger: Logger }): LogFollower {
  const { database, logger } = options
  return startLogFollower({
    database,
    table: { name: 'journal', columns: ['operation'] },
    consumer: TOTALS_CONSUMER,
    logger,
    intervalMs: INTERVAL_MS,
    maxRows: MAX_ROWS,
    async apply(tx, rows) {
      const xids = rows.map(({ position }) => position.xid.toString())
      const seqs = rows.map(({ position }) => position.seq)
      await sql`WITH noted AS (
          SELECT j.operation, j.domain_key, j.entity_keys || j.actor_key AS keys
            FROM unnest(${xids}::text[], ${seqs}::bigint[]) AS list (xid, seq)
            JOIN journal j ON j.xid = list.xid::xid8 AND j.seq = list.seq)
        INSERT INTO journal_totals (scope_key, operation, total) ${countsOf('noted')}
        ON CONFLICT ON CONSTRAINT journal_totals_pkey DO UPDATE SET total = journal_totals.total + EXCLUDED.total`.execute(
        tx,
      )
    },
  })
}

/** All records of a domain or a user that meet `where`, a condition on the operation of `s`. */
export async function totalOf(
  db: Queryable,
  scope: { kind: 'domain' | 'user'; key: number },
  where: Sql<boolean>,
): Promise<number> {
  const { key } = scope
  const inScope =
    scope.kind === 'domain'
      ? sql<boolean>`s.domain_key = ${key}`
      : sql<boolean>`(s.actor_key = ${key} OR ${key} = ANY (s.entity_keys))`
  // The position as it was a moment ago says no less, and PostgreSQL sees from it how few records come after. Of one that the
  // statement itself looks up it believes that it leaves a third of the journal, and reads all of it.
  const { xid, seq } = (await findPosition(db, TOTALS_CONSUMER)) ?? LOG_START
  const { rows } = await sql<{ total: number }>`
    WITH counted AS (
      SELECT coalesce((SELECT xid FROM consumers WHERE name = ${TOTALS_CONSUMER}), '0'::xid8) AS xid,
             coalesce((SELECT seq FROM consumers WHERE name = ${TOTALS_CONSUMER}), 0) AS seq)
    SELECT (SELECT coalesce(sum(s.total), 0) FROM journal_totals s WHERE s.scope_key = ${key} AND ${where})::bigint
         + (SELECT count(*) FROM journal s
             WHERE (s.xid, s.seq) > (${xid.toString()}::xid8, ${seq}::bigint)
               AND (s.xid, s.seq) > ((SELECT xid FROM counted), (SELECT seq FROM counted)) AND ${inScope} AND ${where}) AS total`.execute(
    db,
  )
  return rows[0]?.total ?? 0
}
