/** Rollups and counts by week are deleted after the partitions of their records, so that a total is never below the records of pages. */
import type { Database } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { RETENTION_CLASSES } from '../model/message.ts'

/** The partition of `parent` with the class and the week of a row; NULL after it was dropped. */
const partition = (parent: 'records' | 'payloads') =>
  sql`to_regclass(format(${`${parent}_r%s_%s`}, retention_days, to_char(arrived_on AT TIME ZONE 'UTC', 'YYYYMMDD')))`

/** Deletes the rows of `rollup_weeks` whose partition of records was dropped. */
export async function deleteDroppedWeeks({ db }: Database): Promise<void> {
  await sql`
    WITH passed AS MATERIALIZED (
      SELECT DISTINCT w.retention_days, w.arrived_on
        FROM unnest(${RETENTION_CLASSES}::smallint[]) AS class (days)
       CROSS JOIN LATERAL (
         SELECT retention_days, arrived_on FROM rollup_weeks
          WHERE retention_days = days AND arrived_on < now() - make_interval(days => days + 7)) w
    ), dropped AS MATERIALIZED (
      SELECT * FROM passed
       WHERE ${partition('records')} IS NULL
    )
    DELETE FROM rollup_weeks w USING dropped d
     WHERE (w.retention_days, w.arrived_on) = (d.retention_days, d.arrived_on)`.execute(db)
}

/** Deletes the counts of stored records of weeks whose partitions were dropped, that of records and that of payloads. */
export async function deleteDroppedCounts({ db }: Database): Promise<void> {
  await sql`
    WITH dropped AS MATERIALIZED (
      SELECT retention_days, arrived_on FROM domain_stored_records
       WHERE arrived_on < now() - make_interval(days => retention_days + 7)
       GROUP BY 1, 2 HAVING ${partition('records')} IS NULL AND ${partition('payloads')} IS NULL
    )
    DELETE FROM domain_stored_records u USING dropped d
     WHERE (u.retention_days, u.arrived_on) = (d.retention_days, d.arrived_on)`.execute(db)
}
