/** The records after a place in the order of time, as a range of times and an offset in it. */
import type { Place } from '#core/cursor.ts'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { RECORDS } from '../store/opened.ts'
import { all, conditionsIn, matchingIn } from './conditions.ts'
import type { Scope } from './conditions.ts'
import type { Filter } from './filter.ts'
import { recordsByTime } from './order.ts'
import type { Direction } from './order.ts'
import { intersection } from './time-range.ts'

const MICROSECONDS = 1e6
/** The bound of a range lies at least this far from the time of the place, because its seconds are rounded. */
const LEAST_MARGIN_SECONDS = 2e-6
/** The margin of larger times, as a part of them: four times the precision of a double. */
const MARGIN_PART = 2 ** -50

/**
 * The filter that begins with the time of the place, and the number of its records up to the place: those that have this time, or
 * nearly. Throws `malformed` for a cursor of another order.
 */
export async function afterPlace(
  tx: Transaction,
  scope: Scope,
  filter: Filter,
  { cursor, dir }: { cursor: Place; dir: Direction },
): Promise<{ filter: Filter; passed: number }> {
  const isAfter = recordsByTime(dir, { row: 'm', record: 'r' }).after(cursor)
  const seconds = Number(cursor[0]) / MICROSECONDS
  const margin = Math.max(LEAST_MARGIN_SECONDS, Math.abs(seconds) * MARGIN_PART)
  const [fromSeconds, toSeconds] = [seconds - margin, seconds + margin]
  const [beyond, around] =
    dir === 'desc'
      ? [
          { fromSeconds: undefined, toSeconds },
          { fromSeconds, toSeconds },
        ]
      : [
          { fromSeconds, toSeconds: undefined },
          { fromSeconds, toSeconds },
        ]
  const conditions = conditionsIn(scope, intersection(filter, around))
  const { rows } = await sql<{ passed: number }>`
    SELECT count(*) AS passed FROM ${RECORDS}
     WHERE ${all([conditions.rows, ...matchingIn(conditions)])} AND NOT ${isAfter}`.execute(tx)
  return { filter: { ...filter, ...intersection(filter, beyond) }, passed: rows[0]?.passed ?? 0 }
}
