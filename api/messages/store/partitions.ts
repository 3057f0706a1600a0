/**
 * Partitions by time of arrival, made ahead of need and dropped when their retention has passed. Whoever holds the
 * maintenance lock works; everybody else leaves it to him.
 */
import type pg from 'pg'
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'

/**
 * Partitions exist for arrivals so far ahead. Each of them costs every read of messages time to plan, maintenance runs each hour,
 * and a writer that finds none makes it.
 */
const AHEAD_DAYS = 3
/** What a start waits for, enough until the first round of maintenance. */
export const PRESENT_DAYS = 1
/** An empty partition goes so long after its week: no transaction of that week is under way any more. */
const EMPTY_DAYS = 1
/** Maintenance gives way to messages: it waits so long for a lock and tries again with the next round. */
const LOCK_TIMEOUT_MS = 2_000
const CONNECTION_NAME = 'skein message partitions'
const MAINTENANCE_LOCK = 0x5ce1_0004

const CHECK_VIOLATION = '23514'
/** What PostgreSQL's tuple routing reports under that code when no partition fits. */
const ROUTING_FUNCTION = 'ExecFindPartition'

/** True where a row fell into a time that no partition covers: maintenance has not run for long, or a clock jumped. */
export function isMissingPartition(error: unknown): boolean {
  if (typeof error !== 'object' || error === null || !('code' in error) || !('routine' in error)) return false
  return error.code === CHECK_VIOLATION && error.routine === ROUTING_FUNCTION
}

/** Makes the partitions that are missing from now on, so many days ahead; returns how many. Several callers wait for each other. */
export async function createPartitions(database: Database, aheadDays: number = AHEAD_DAYS): Promise<number> {
  const client = await database.dedicated(CONNECTION_NAME)
  try {
    await client.query('SELECT pg_advisory_lock($1)', [MAINTENANCE_LOCK])
    return await create(client, aheadDays)
  } finally {
    await client.end()
  }
}

async function create(client: pg.Client, aheadDays: number): Promise<number> {
  const { rows } = await client.query<{ made: number }>(
    'SELECT create_message_partitions(now(), now() + make_interval(days => $1)) AS made',
    [aheadDays],
  )
  return rows[0]?.made ?? 0
}

/**
 * Drops partitions whose last arrival is older than their class keeps it, and those of weeks in which nothing arrived. Rows of rollups
 * follow from records, so that a week has them as long as it has records.
 */
async function dropPassed(client: pg.Client, logger: Logger): Promise<void> {
  const { rows } = await client.query<{
    parent: string
    partition: string
    is_expired: boolean
    is_pending: boolean
  }>(
    `
    SELECT parent.relname AS parent, leaf.relname AS partition, is_expired, inhdetachpending AS is_pending
      FROM pg_inherits
      JOIN pg_class leaf ON leaf.oid = inhrelid
      JOIN pg_class parent ON parent.oid = inhparent
     CROSS JOIN LATERAL substring(parent.relname FROM '^(?:records|payloads|rollups)_r(\\d+)$') AS days
     CROSS JOIN LATERAL substring(pg_get_expr(leaf.relpartbound, leaf.oid) FROM 'TO \\(''([^'']+)''\\)') AS upper_bound
     CROSS JOIN LATERAL (SELECT days <> '0' AND upper_bound::timestamptz < now() - make_interval(days => days::integer)) AS e (is_expired)
     WHERE parent.relnamespace = current_schema()::regnamespace
       AND (is_expired OR upper_bound::timestamptz < now() - make_interval(days => $1) AND pg_relation_size(leaf.oid) = 0
            AND coalesce(pg_relation_size(to_regclass(replace(leaf.relname, 'rollups', 'records'))), 0) = 0)
     ORDER BY parent.relname LIKE 'rollups%' DESC, leaf.relname`,
    [EMPTY_DAYS],
  )
  for (const { parent, partition, is_expired, is_pending } of rows) {
    // CONCURRENTLY: readers and writers of the other partitions go on. It waits for those that are under way, and where it gives up
    // the next round finishes it.
    await client.query(
      `ALTER TABLE ${parent} DETACH PARTITION ${partition} ${is_pending ? 'FINALIZE' : 'CONCURRENTLY'}`,
    )
    await client.query(`DROP TABLE ${partition}`)
    logger.info(
      { partition },
      is_expired ? 'dropped an expired partition of messages' : 'dropped an empty partition of messages',
    )
  }
}

/** Makes what is missing and drops what has expired or stayed empty; leaves it to whoever holds the maintenance lock already. */
export async function maintainPartitions(database: Database, logger: Logger): Promise<void> {
  const client = await database.dedicated(CONNECTION_NAME)
  try {
    await client.query(`SET lock_timeout = ${LOCK_TIMEOUT_MS}`)
    const { rows } = await client.query<{ locked: boolean }>('SELECT pg_try_advisory_lock($1) AS locked', [
      MAINTENANCE_LOCK,
    ])
    if (rows[0]?.locked !== true) return
    await create(client, AHEAD_DAYS)
    await dropPassed(client, logger)
  } finally {
    await client.end()
  }
}
