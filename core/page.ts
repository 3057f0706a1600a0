/** Paging of listings: one form of query and one form of page (contract section 0). */
import { Type } from 'typebox'
import { MAX_CURSOR_CHARS } from './cursor.ts'
import type { PageEnd, Place } from './cursor.ts'

export const DEFAULT_LIMIT = 10
export const MAX_LIMIT = 100
/** The maximum offset: larger ones are rejected before PostgreSQL counts to them. */
export const MAX_OFFSET = 1_000_000_000

/**
 * Maximum size of a page in bytes (decision 79). A larger page is cut but has at least one item, and its `limit` becomes the number
 * of its items, so that the next page begins at `offset + limit`.
 */
export const MAX_PAGE_BYTES = 8 * 1024 * 1024
/** The maximum size in bytes of a run's result in a listing; for a larger one only the size is shown. */
export const MAX_LISTED_RESULT_BYTES = 4 * 1024

/** The rows of a listing that a page has: those after `offset` rows, or those after a place in the order. */
export type PageRange = { offset: number; limit: number; cursor?: Place | undefined }

export type Page<T> = { total: number; offset: number; limit: number; items: T[]; next: PageEnd }

/** The `next` of a page, instead of an offset. The HTTP edge replaces the text with the place before a handler runs. */
export const cursorOf = (description: string) =>
  Type.Unsafe<Place>(Type.String({ maxLength: MAX_CURSOR_CHARS, description }))

export const Cursor = cursorOf('The `next` of the page before, with the same other parameters, instead of an offset')

/** `offset` and `limit` of a query, with other bounds where the contract gives them. */
export function offsetQuery(bounds: { limit?: number; maxLimit?: number } = {}) {
  return {
    offset: Type.Integer({ minimum: 0, maximum: MAX_OFFSET, default: 0, description: 'Rows to skip' }),
    limit: Type.Integer({
      minimum: 1,
      maximum: bounds.maxLimit ?? MAX_LIMIT,
      default: bounds.limit ?? DEFAULT_LIMIT,
      description: 'Rows to return',
    }),
  }
}

/** `offset`, `limit` and `cursor` of a query. */
export function pageQuery(bounds: { limit?: number; maxLimit?: number } = {}) {
  return { ...offsetQuery(bounds), cursor: Type.Optional(Cursor) }
}

/** `dir` of a listing. */
export const Direction = Type.Enum(['asc', 'desc'], { description: 'Sort direction' })

/**
 * The fields of a page besides its array. With `only_total=true` the array is empty and only `total` is present, so the others are
 * optional in the schema.
 */
export const offsetPageFields = {
  total: Type.Integer({ minimum: 0, description: 'Rows that match' }),
  offset: Type.Optional(Type.Integer({ minimum: 0, description: 'Absent on a page of a cursor' })),
  limit: Type.Optional(Type.Integer({ minimum: 0 })),
}

/** The HTTP edge sends the end of a page as the cursor of the next one. */
export const Next = Type.Optional(
  Type.Unsafe<PageEnd>(Type.String({ description: 'The cursor of the next page; absent on the last page' })),
)

/** The fields of a page of a listing with cursors. */
export const pageFields = { ...offsetPageFields, next: Next }
