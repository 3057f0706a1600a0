/** Bounds the size of a page in the database: rows beyond MAX_PAGE_BYTES are not sent (decision 79). */
import { MAX_PAGE_BYTES } from '../page.ts'
import { sql } from '../sql.ts'
import type { Sql } from '../sql.ts'

/** Reserved for field names and for fields that are not columns. */
const MAX_ADDED_BYTES = 1024 * 1024
const MAX_ROW_BYTES = MAX_PAGE_BYTES - MAX_ADDED_BYTES

export type PageRow<Row> = Row & {
  /** The number of rows of the page before it was cut. */
  page_rows: number
}

/**
 * The rows of a page in their order, as many as fit in MAX_ROW_BYTES of text, and at least one. A row may be as large as a
 * request body, so every statement that reads a page of a listing uses this. `bytes` is the size of a row `listed`; set it where
 * the response has more than its columns.
 */
export function withinPage<Row>(
  page: Sql<Row>,
  bytes: Sql<number> = sql<number>`octet_length(listed::text)`,
): Sql<PageRow<Row>> {
  return sql<PageRow<Row>>`SELECT sized.* FROM (
    SELECT listed.*, row_number() OVER () AS page_place, count(*) OVER () AS page_rows,
           sum(${bytes}) OVER (ROWS UNBOUNDED PRECEDING) AS page_bytes
      FROM (${page}) listed) sized
    WHERE sized.page_place = 1 OR sized.page_bytes <= ${sql.raw(String(MAX_ROW_BYTES))} ORDER BY sized.page_place`
}
