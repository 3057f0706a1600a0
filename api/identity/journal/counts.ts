/**
 * How many records domains and users have, in all and of each day, counted once by consumers of the journal. A total is what was
 * counted and what came since, in one statement: exact at once, however far behind the consumer is.
 */
import type { Database, Queryable } from '#core/database/index.ts'
import { LOG_START, findPosition, startLogFollower } from '#core/changelog/index.ts'
import type { LogFollower } from '#core/changelog/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { allOf } from '../listing/index.ts'
import { JOURNAL_CONSUMERS } from './consumers.ts'

/** What is not counted yet is counted with each listing, so there is no hurry. */
const INTERVAL_MS = 5000
const MAX_ROWS = 5000
/** Days are no help while more records than this are not counted. */
const MAX_UNCOUNTED = 20_000

/** Each a table, a consumer that fills it, and what is counted apart there. */
const COUNTS = { totals: sql`operation`, days: sql`day, operation` }
export type CountKind = keyof typeof COUNTS

export type CountedScope = { kind: 'domain' | 'user'; key: number }

/** Records by scope and more; `table` has these columns, `domain_key` and `keys`, every entity of the record. */
export function countsOf(table: string, by: Sql<unknown> = COUNTS.totals): Sql<unknown> {
  return sql`SELECT scope.key AS scope_key, ${by}, count(*) AS total FROM ${sql.table(table)} r CROSS JOIN LATERAL (
      SELECT r.domain_key AS key WHERE r.domain_key IS NOT NULL
      UNION SELECT u.key FROM users u WHERE u.key = ANY (r.keys)) scope
    GROUP BY scope.key, ${by} ORDER BY scope.key, ${by}`
}

const consumerOf = (kind: CountKind) => `${JOURNAL_CONSUMERS}${kind}`
/** In UTC, as the trigger that takes removed records off has it. */
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

/** The records `s` that are not counted in the snapshot of the statement. */
async function isUncounted(db: Queryable, kind: CountKind): Promise<Sql<boolean>> {
  const consumer = consumerOf(kind)
  // The position as it was a moment ago says no less, and PostgreSQL sees from it how few records come after. Of one that the
  // statement itself looks up it believes that it leaves a third of the journal, and reads all of it.
  const { xid, seq } = (await findPosition(db, consumer)) ?? LOG_START
  const stands = (column: 'xid' | 'seq') => sql`(SELECT ${sql.ref(column)} FROM consumers WHERE name = ${consumer})`
  return sql<boolean>`(s.xid, s.seq) > (${xid.toString()}::xid8, ${seq}::bigint)
    AND (s.xid, s.seq) > (coalesce(${stands('xid')}, '0'::xid8), coalesce(${stands('seq')}, 0))`
}

const isIn = ({ kind, key }: CountedScope) =>
  kind === 'domain'
    ? sql<boolean>`s.domain_key = ${key}`
    : sql<boolean>`(s.actor_key = ${key} OR ${key} = ANY (s.entity_keys))`

/** All records of a domain or a user that meet `where`, a condition on the operation of `s`. */
export async function totalOf(db: Queryable, scope: CountedScope, where: Sql<boolean>): Promise<number> {
  const { rows } = await sql<{ total: number }>`
    SELECT (SELECT coalesce(sum(s.total), 0) FROM journal_totals s WHERE s.scope_key = ${scope.key} AND ${where})::bigint
         + (SELECT count(*) FROM journal s WHERE ${await isUncounted(db, 'totals')} AND ${isIn(scope)} AND ${where}) AS total`.execute(
    db,
  )
  return rows[0]?.total ?? 0
}

/**
 * The same page of these records, with the condition and the offset from the day on that it begins in, so that what lies before is not
 * passed one by one. Undefined where it is not known how many there are of each day.
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
