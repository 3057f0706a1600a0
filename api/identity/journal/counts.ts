/**
 * Numbers of journal records of domains and users, in total and per day, maintained by consumers of the journal. A
 * query adds the maintained count and the records since the position of the consumer in one statement, so it is exact
 * whatever the lag of the consumer.
 */
import type { Database, Queryable } from '#core/database/index.ts'
import { LOG_START, findPosition, startLogFollower } from '#core/changelog/index.ts'
import type { LogFollower } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { allOf } from '../listing/index.ts'
import { JOURNAL_CONSUMERS } from './consumers.ts'

/** Queries count the uncounted records themselves, so a long interval is sufficient. */
const INTERVAL_MS = 5000
const MAX_ROWS = 5000
/** Limit of uncounted records above which the counts per day are not used. */
const MAX_UNCOUNTED = 20_000

/** The kinds of counts, with their grouping columns. Each kind has a table and a consumer. */
const COUNTS = { totals: sql`operation`, days: sql`day, operation` }
export type CountKind = keyof typeof COUNTS

export type CountedScope = { kind: 'domain' | 'user'; key: number }

/**
 * Counts records by scope and `by`. `table` has the columns of `by`, `domain_key` and `keys`, the keys of every entity
 * of the record.
 */
export function countsOf(table: string, by: Sql<unknown> = COUNTS.totals): Sql<unknown> {
  return sql`SELECT scope.key AS scope_key, ${by}, count(*) AS total FROM ${sql.table(table)} r CROSS JOIN LATERAL (
      SELECT r.domain_key AS key WHERE r.domain_key IS NOT NULL
      UNION SELECT u.key FROM users u WHERE u.key = ANY (r.keys)) scope
    GROUP BY scope.key, ${by} ORDER BY scope.key, ${by}`
}

const consumerOf = (kind: CountKind) => `${JOURNAL_CONSUMERS}${kind}`
/** The day in UTC, like in the trigger that subtracts removed records. */
const dayOf = (alias: string) => sql`(${sql.ref(`${alias}.occurred_at`)} AT TIME ZONE 'UTC')::date`

export function startJournalCounts(options: { database: Database; logger: Logger }, kind: CountKind): LogFollower {
  const { database, logger } = options
  const table = `journal_${kind}`
  return startLogFollower({
    database,
    table: { name: 'journal', columns: ['operation'] },
    consumer: consumerOf(kind),
    logger,
    intervalMs: INTERVAL_MS,
    maxRows: MAX_ROWS,
    async apply(tx, rows) {
      const xids = rows.map(({ position }) => position.xid.toString())
      const seqs = rows.map(({ position }) => position.seq)
      const by = COUNTS[kind]
      await sql`WITH noted AS (
          SELECT j.operation, ${dayOf('j')} AS day, j.domain_key, j.entity_keys || j.actor_key AS keys
            FROM unnest(${xids}::text[], ${seqs}::bigint[]) AS list (xid, seq)
            JOIN journal j ON j.xid = list.xid::xid8 AND j.seq = list.seq)
        INSERT INTO ${sql.table(table)} (scope_key, ${by}, total) ${countsOf('noted', by)}
        ON CONFLICT (scope_key, ${by}) DO UPDATE SET total = ${sql.table(table)}.total + EXCLUDED.total`.execute(tx)
    },
  })
}

/** Condition: the record `s` is not counted in the snapshot of the statement. */
async function isUncounted(db: Queryable, kind: CountKind): Promise<Sql<boolean>> {
  const consumer = consumerOf(kind)
  // An older position selects at least the same records, and as a constant it lets PostgreSQL estimate that few records
  // follow. For a position from a subquery it estimates a third of the journal and reads all of it.
  const { xid, seq } = (await findPosition(db, consumer)) ?? LOG_START
  const stands = (column: 'xid' | 'seq') => sql`(SELECT ${sql.ref(column)} FROM consumers WHERE name = ${consumer})`
  return sql<boolean>`(s.xid, s.seq) > (${xid.toString()}::xid8, ${seq}::bigint)
    AND (s.xid, s.seq) > (coalesce(${stands('xid')}, '0'::xid8), coalesce(${stands('seq')}, 0))`
}

const isIn = ({ kind, key }: CountedScope) =>
  kind === 'domain'
    ? sql<boolean>`s.domain_key = ${key}`
    : sql<boolean>`(s.actor_key = ${key} OR ${key} = ANY (s.entity_keys))`

/** Returns the number of records of a domain or a user that match `where`, a condition on the operation of `s`. */
export async function totalOf(db: Queryable, scope: CountedScope, where: Sql<boolean>): Promise<number> {
  const { rows } = await sql<{ total: number }>`
    SELECT (SELECT coalesce(sum(s.total), 0) FROM journal_totals s WHERE s.scope_key = ${scope.key} AND ${where})::bigint
         + (SELECT count(*) FROM journal s WHERE ${await isUncounted(db, 'totals')} AND ${isIn(scope)} AND ${where}) AS total`.execute(
    db,
  )
  return rows[0]?.total ?? 0
}

/**
 * Returns the condition and the offset of the same page, relative to the day in which it begins, so that earlier
 * records are not read. Undefined when the counts per day are not available.
 */
export async function startOfPage(
  db: Queryable,
  scope: CountedScope,
  where: Sql<boolean>,
  { dir, offset }: { dir: 'asc' | 'desc'; offset: number },
): Promise<{ where: Sql<boolean>; offset: number } | undefined> {
  const { rows } = await sql<{ since: string; until: string; passed: number }>`
    WITH uncounted AS MATERIALIZED (
      SELECT s.* FROM journal s WHERE ${await isUncounted(db, 'days')} ORDER BY s.xid, s.seq LIMIT ${MAX_UNCOUNTED + 1}),
    days AS (
      SELECT day, sum(total) AS total FROM (
        SELECT s.day, s.total FROM journal_days s WHERE s.scope_key = ${scope.key} AND ${where}
        UNION ALL
        SELECT ${dayOf('s')}, 1 FROM uncounted s WHERE ${isIn(scope)} AND ${where}) counted GROUP BY day),
    placed AS (SELECT day, total, sum(total) OVER (ORDER BY day ${dir === 'desc' ? sql`DESC` : sql`ASC`}) AS upto FROM days)
    SELECT day::timestamp AT TIME ZONE 'UTC' AS since, (day + 1)::timestamp AT TIME ZONE 'UTC' AS until, (upto - total)::bigint AS passed
      FROM placed WHERE upto > ${offset} AND (SELECT count(*) FROM uncounted) <= ${MAX_UNCOUNTED} ORDER BY upto LIMIT 1`.execute(
    db,
  )
  const [found] = rows
  if (found === undefined) return undefined
  const { since, until, passed } = found
  const bound =
    dir === 'desc'
      ? sql<boolean>`s.occurred_at < ${until}::timestamptz`
      : sql<boolean>`s.occurred_at >= ${since}::timestamptz`
  return { where: allOf([where, bound]), offset: offset - passed }
}
