/** Rollups by week are deleted after the partitions of their records, so that a total is never below the records of pages. */
import type { Database } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { RETENTION_CLASSES } from '../model/message.ts'

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
       WHERE to_regclass(format('records_r%s_%s', retention_days, to_char(arrived_on AT TIME ZONE 'UTC', 'YYYYMMDD'))) IS NULL
    )
    DELETE FROM rollup_weeks w USING dropped d
     WHERE (w.retention_days, w.arrived_on) = (d.retention_days, d.arrived_on)`.execute(db)
}
