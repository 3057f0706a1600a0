/** The log of batches, which consumers follow: what all of them have passed long ago goes. */
import type { Database } from '#core/database/index.ts'

/** Nobody goes on from an older position. */
const KEPT_DAYS = 8
/** Rows of one statement, so that housekeeping never holds a publish up for long. */
const STEP_ROWS = 10_000

/** Deletes projected batches that are older than is kept; returns how many. */
export async function forgetOldBatches({ pool }: Database): Promise<number> {
  for (let forgotten = 0; ;) {
    // By number, as the primary key walks them: the oldest are the first.
    const { rowCount } = await pool.query(
      `DELETE FROM ingest_batches WHERE seq = ANY (ARRAY(
         SELECT seq FROM (SELECT seq, projected, arrived_at FROM ingest_batches ORDER BY seq LIMIT $2) oldest
          WHERE projected AND arrived_at < now() - make_interval(days => $1)))`,
      [KEPT_DAYS, STEP_ROWS],
    )
    if ((rowCount ?? 0) === 0) return forgotten
    forgotten += rowCount ?? 0
  }
}
