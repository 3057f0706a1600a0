/** Paging of listings: one query shape, one page shape (contract section 0). */
import { Type } from 'typebox'

export const DEFAULT_LIMIT = 10
export const MAX_LIMIT = 100
/** Deep offsets are served, absurd ones are refused before PostgreSQL counts to them. */
export const MAX_OFFSET = 1_000_000_000

/**
 * Largest page in bytes (decision 79). A page that would be larger ends earlier, holds at least one item, and its `limit` is then
 * the number of its items, so that `offset + limit` is where the next one begins.
 */
export const MAX_PAGE_BYTES = 8 * 1024 * 1024
/** Largest result of a run in bytes that a list shows; of a larger one it shows the size. */
export const MAX_LISTED_RESULT_BYTES = 4 * 1024

export type Page<T> = { total: number; offset: number; limit: number; items: T[] }

/** `offset` and `limit` of a query; other bounds where the contract names them. */
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
 * The fields beside the array of a page. With `only_total=true` the array is empty and only `total` stands beside it, so the
 * others are optional in the schema.
 */
export const pageFields = {
  total: Type.Integer({ minimum: 0, description: 'Rows that match' }),
  offset: Type.Optional(Type.Integer({ minimum: 0 })),
  limit: Type.Optional(Type.Integer({ minimum: 0 })),
}
