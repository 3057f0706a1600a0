/** Paging of listings: one form of query and one form of page (contract section 0). */
import { Type } from 'typebox'

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

export type Page<T> = { total: number; offset: number; limit: number; items: T[] }

/** `offset` and `limit` of a query, with other bounds where the contract gives them. */
export function pageQuery(bounds: { limit?: number; maxLimit?: number } = {}) {
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

/** `dir` of a listing. */
export const Direction = Type.Enum(['asc', 'desc'], { description: 'Sort direction' })

/**
 * The fields of a page besides its array. With `only_total=true` the array is empty and only `total` is present, so the others are
 * optional in the schema.
 */
export const pageFields = {
  total: Type.Integer({ minimum: 0, description: 'Rows that match' }),
  offset: Type.Optional(Type.Integer({ minimum: 0 })),
  limit: Type.Optional(Type.Integer({ minimum: 0 })),
}
