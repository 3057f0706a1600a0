/**
 * Partitions by time of arrival, created ahead and dropped when their retention has passed. Only the holder of the maintenance lock does
 * maintenance.
 */
import type pg from 'pg'
import type { Database } from '#core/database/index.ts'
import type { Logger } from '#core/logging/index.ts'

/**
 * Partitions exist for this number of days ahead. Each one costs planning time in every read of messages, maintenance runs each hour, and a
 * writer without a partition creates it.
 */
const AHEAD_DAYS = 3
/** A partition holds the arrivals of a week, from Monday to Monday in UTC. */
export const WEEK_SECONDS = 7 * 86_400
/** A start waits until partitions exist for this number of days, which is enough until the first round of maintenance. */
export const PRESENT_DAYS = 1
/** An empty partition is dropped this long after its week, when no transaction of that week is running any more. */
const EMPTY_DAYS = 1
/** How long maintenance waits for a lock; it retries in the next round, so that messages are not delayed. */
const LOCK_TIMEOUT_MS = 2_000
const CONNECTION_NAME = 'skein message partitions'
const MAINTENANCE_LOCK = 0x5ce1_0004

const CHECK_VIOLATION = '23514'
/** The routine in PostgreSQL's error when no partition matches. */
const ROUTING_FUNCTION = 'ExecFindPartition'

/** True when no partition covers the time of a row: maintenance has not run for long, or a clock was changed. */
export function isMissingPartition(error: unknown): boolean {
  if (typeof error !== 'object' || error === null || !('code' in error) || !('routine' in error)) return false
  return error.code === CHECK_VIOLATION && error.routine === ROUTING_FUNCTION
}

/** Creates missing partitions for the next days; returns their number. Concurrent calls wait for each other. */
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
 * Drops partitions whose retention has passed, and empty ones of past weeks. Rows of rollups derive from records, so both are dropped
 * together.
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
    // CONCURRENTLY: readers and writers of other partitions are not blocked. It waits for running transactions; if it gives up, the next
    // round finishes it.
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

/** Creates missing partitions and drops expired and empty ones, unless another process holds the maintenance lock. */
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
