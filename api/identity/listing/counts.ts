/**
 * Numbers of clients, channels and groups of each domain and status. Triggers add a row for the changes of each
 * statement, in its transaction, so that creations do not wait for each other. The rows of a domain are merged
 * periodically.
 */
import type { Database, Queryable } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { startPeriodicRounds } from '#core/rounds.ts'
import type { PeriodicRounds } from '#core/rounds.ts'
import { sql } from '#core/sql.ts'
import type { EntityFacts } from '../access/index.ts'

const MERGE_INTERVAL_MS = 60_000
/** Number of rows of one count that are not merged. */
const MAX_PARTS = 16

/** Returns the sum of these domains. Without `status` it counts every status. */
export async function sumEntityCounts(
  db: Queryable,
  type: EntityFacts['type'],
  domainKeys: readonly number[],
  status: string | undefined,
): Promise<number> {
  const ofStatus = status === undefined ? sql`` : sql`AND status = ${status}`
  const { rows } = await sql<{ total: number }>`SELECT coalesce(sum(amount), 0)::bigint AS total FROM entity_counts
    WHERE domain_key = ANY (${domainKeys}::bigint[]) AND entity_type = ${type} ${ofStatus}`.execute(db)
  return rows[0]?.total ?? 0
}

/** Concurrent merges are safe: the second does not find the rows that the first has deleted. */
export async function mergeCounts(db: Queryable): Promise<void> {
  await sql`WITH many AS (
      SELECT domain_key, entity_type, status FROM entity_counts
       GROUP BY domain_key, entity_type, status HAVING count(*) > ${MAX_PARTS} OR sum(amount) = 0),
    gone AS (
      DELETE FROM entity_counts c USING many m
       WHERE c.domain_key = m.domain_key AND c.entity_type = m.entity_type AND c.status = m.status RETURNING c.*)
    INSERT INTO entity_counts (domain_key, entity_type, status, amount)
    SELECT domain_key, entity_type, status, sum(amount) FROM gone GROUP BY 1, 2, 3 HAVING sum(amount) <> 0`.execute(db)
}

export function startCountMerger({ database, logger }: { database: Database; logger: Logger }): PeriodicRounds {
  return startPeriodicRounds({
    firstPauseMs: MERGE_INTERVAL_MS,
    pauseMs: MERGE_INTERVAL_MS,
    round: () => mergeCounts(database.db),
    onFailure: (error) => logger.warn({ err: error }, 'failed to merge the counts of entities; retrying in a minute'),
  })
}
