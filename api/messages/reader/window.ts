/** The part of the matches that is read, and the fields that are read of it. */
import type { PageEnd, Place } from '#core/cursor.ts'
import type { Direction } from './order.ts'

export type Window = {
  offset: number
  limit: number
  order: string | undefined
  dir: Direction
  /** Replaces the offset in the order of time. Other orders have no cursor. */
  cursor?: Place | undefined
}

/** The place where a row was stored: its batch and the number of its message in it. Absent for an aggregate. */
export type LinkedRow = {
  /** Its place in the order of time, as JSON; absent in other orders. */
  row_place?: string
  batch_seq?: number
  message?: number
  /** The run of a task that published it, where links are requested. */
  run?: { id: string; task: string }
}

export type RecordRow = LinkedRow & {
  subtopic: string
  publisher_id: string
  name: string
  unit: string
  protocol: number
  time: number
  value: number | null
  sum: number | null
  update_time: number | null
  bool_value: boolean | null
  string_value: string | null
  data_value: Buffer | null
  /** The results of an interval and series, when several aggregations are requested. */
  aggregates?: Readonly<Record<string, number>>
}

/**
 * `found`: the rows of the page before it was cut to its size; `total`, where it is known with the page; `places`: of the rows, where
 * a page can go on after a place.
 */
export type PageRows<Row> = { rows: Row[]; found: number; total?: number; places?: readonly string[] | undefined }

/** The rows of `withinPage`. */
export function pageRowsOf<Row extends { page_rows: number }>(rows: Row[]): PageRows<Row> {
  return { rows, found: rows[0]?.page_rows ?? 0 }
}

/** A total, and whether it is exact; otherwise it is a lower bound. */
export type Total = { total: number; isExact: boolean }

/** A page and the total of all matches. */
export type Rows<Row> = { rows: Row[]; next?: PageEnd | undefined } & Total
