/** Deletes old rows of the changelog of batches, which all consumers have passed. */
import type { Database } from '#core/database/index.ts'

/** No consumer resumes from an older position. */
const KEPT_DAYS = 8
/** The number of rows of one statement, so that maintenance does not delay publishes. */
const STEP_ROWS = 10_000

/** Deletes expired projected batches; returns their number. */
export async function deleteOldBatches({ pool }: Database): Promise<number> {
  for (let forgotten = 0; ;) {
    // The rows are taken by number, as the primary key walks them: the oldest are the first.
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
