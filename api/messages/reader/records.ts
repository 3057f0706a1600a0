/** Reads SenML records: ordered pages, and totals. */
import { withinPage } from '#core/database/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { RECORDS } from '../store/opened.ts'
import { findPageBuckets, findPageSeconds, timeRangeOf } from './buckets.ts'
import { nearEnd } from './arrivals.ts'
import type { RecordConditions, Scope } from './conditions.ts'
import { all, conditionsIn, matchingIn, scopeOf } from './conditions.ts'
import type { Filter } from './filter.ts'
import { afterPlace } from './after-place.ts'
import { byTime, directionOf } from './order.ts'
import type { Parts } from './parts.ts'
import { isKnownToRollups, partsOf } from './parts.ts'
import { pageByTime, pageOfBuckets } from './time-page.ts'
import { intersection } from './time-range.ts'
import { countRecords, knownTotal } from './totals.ts'
import type { PageRows, RecordRow, Window } from './window.ts'
import { pageRowsOf } from './window.ts'

/** Smaller offsets are skipped row by row. */
const BUCKETS_OFFSET = 100
/** Rows that are read for a page before its buckets are found by the rollups. */
const MAX_LOOKED_ROWS = 5_000
/** The factor by which the number of weeks grows when they did not contain the page. */
const WIDER = 4

/** The maximum number of matches in the buckets of a page that are sorted; with more, the seconds of the page are found first. */
const MAX_OPENED_RECORDS = 200_000

/** The columns that a page can be ordered by; an unknown order is that of time. */
const ORDER_COLUMNS: Readonly<Record<string, Sql<unknown>>> = {
  name: sql`s.name`,
  unit: sql`s.unit`,
  publisher: sql`s.publisher_id`,
  subtopic: sql`s.subtopic`,
  protocol: sql`m.protocol`,
  value: sql`r.value`,
}

/** True for an order other than that of time. */
export const isColumn = (order: string | undefined): boolean =>
  order !== undefined && Object.hasOwn(ORDER_COLUMNS, order)

/** The columns of a record that a page shows or is ordered by. */
export const SELECTED = sql`m.arrived_at, m.batch_seq, m.message, m.chunk, m.protocol, r.series_key, r.time, r.value, r.sum, r.update_time,
  r.bool_value, r.string_value, r.data_value, r.place`

/** The records of one query, within the snapshot of the transaction. */
export class RecordsQuery {
  readonly #tx: Transaction
  readonly #scope: Scope
  readonly #filter: Filter
  readonly #parts: Parts

  static async of(tx: Transaction, channelKey: number, filter: Filter): Promise<RecordsQuery> {
    const scope = await scopeOf(tx, channelKey, filter)
    return new RecordsQuery(tx, scope, filter, partsOf(scope, filter))
  }

  private constructor(tx: Transaction, scope: Scope, filter: Filter, parts: Parts) {
    this.#tx = tx
    this.#scope = scope
    this.#filter = filter
    this.#parts = parts
  }

  async page(window: Window): Promise<PageRows<RecordRow>> {
    // No series has the name, publisher or subtopic, or the message or run has no records.
    if (this.#scope.seriesKeys?.length === 0 || this.#scope.selected === 'nothing')
      return { rows: [], found: 0, total: 0 }
    const column = window.order === undefined ? undefined : ORDER_COLUMNS[window.order]
    if (column !== undefined) {
      const conditions = conditionsIn(this.#scope, this.#filter)
      return pageRowsOf((await pageByColumn(conditions, window, column).execute(this.#tx)).rows)
    }
    if (window.cursor !== undefined) {
      const { cursor, ...rest } = window
      const { filter, passed } = await afterPlace(this.#tx, this.#scope, this.#filter, { cursor, dir: window.dir })
      const after = new RecordsQuery(this.#tx, this.#scope, filter, partsOf(this.#scope, filter))
      // Its total is that of the records that follow.
      const { total: _, ...page } = await after.page({ ...rest, offset: passed })
      return page
    }
    const isKnown = isKnownToRollups(this.#scope)
    if (!isKnown || window.offset < BUCKETS_OFFSET) {
      const page = await this.#pageByTime(window, isKnown ? MAX_LOOKED_ROWS : Infinity)
      if (page !== undefined) return page
    }
    return await this.#pageOfBuckets(window)
  }

  /** Reads the last week first, then four times as many. */
  async #pageByTime(window: Window, maxLook: number): Promise<PageRows<RecordRow> | undefined> {
    for (let weeks = 1; ; weeks *= WIDER) {
      const { arrivals } = this.#scope
      const near = arrivals === undefined ? undefined : nearEnd(arrivals, this.#filter, window.dir, weeks)
      const conditions = conditionsIn(this.#scope, near ?? this.#filter)
      const page = await pageByTime(this.#tx, conditions, window, maxLook)
      if (near === undefined || page === undefined || page.found >= window.limit) return page
    }
  }

  async #pageOfBuckets(window: Window): Promise<PageRows<RecordRow>> {
    const found = await findPageBuckets(this.#tx, this.#parts, window)
    const { total } = found
    const conditions = conditionsIn(this.#scope, this.#filter, { heldIn: timeRangeOf(found) })
    if (found.records <= MAX_OPENED_RECORDS)
      return { ...(await pageOfBuckets(this.#tx, conditions, found, window)), total }
    const seconds = await findPageSeconds(this.#tx, conditions, found, window)
    const within = conditionsIn(this.#scope, intersection(this.#filter, seconds))
    return { ...(await pageOfBuckets(this.#tx, within, { ...found, offset: seconds.offset }, window)), total }
  }

  total(): Promise<number> {
    return countRecords(this.#tx, this.#parts)
  }

  knownTotal(): number | undefined {
    return knownTotal(this.#parts)
  }
}

/** A page in another order: all matches are sorted, those without the column last. */
function pageByColumn(
  conditions: RecordConditions,
  { offset, limit, dir }: Window,
  column: Sql<unknown>,
): Sql<RecordRow & { page_rows: number }> {
  const order = sql`f.sorted ${directionOf(dir)} NULLS LAST, ${byTime(dir)}`
  const source = sql`SELECT ${SELECTED}, ${column} AS sorted FROM ${RECORDS} JOIN series s ON s.key = r.series_key
    WHERE ${all([conditions.rows, ...matchingIn(conditions)])}`
  return withinPage(sql<RecordRow>`
    SELECT s.subtopic, s.publisher_id, s.name, s.unit, f.protocol, f.batch_seq, f.message, extract(epoch FROM f.time)::float8 AS time, f.value,
           f.sum, f.update_time, f.bool_value, f.string_value, f.data_value
      FROM (SELECT f.* FROM (${source}) f ORDER BY ${order} LIMIT ${limit} OFFSET ${offset}) f
      JOIN series s ON s.key = f.series_key
     ORDER BY ${order}`)
}
