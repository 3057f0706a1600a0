/**
 * How the folder keeps out of the way of publishers: a little at a time, with rests in which those have the processors. A round
 * that was one piece of work would be the longest that a message waits for.
 */

/** Rows of one statement: some milliseconds of PostgreSQL. */
export const PART_ROWS = 500

/** Resolves after a rest. */
export type Rest = () => Promise<void>

/** As many of them at a time as one statement is given. */
export function* partsOf<Row>(rows: readonly Row[]): Generator<Row[]> {
  for (let start = 0; start < rows.length; start += PART_ROWS) yield rows.slice(start, start + PART_ROWS)
}
