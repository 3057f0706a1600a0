/** API schemas of the search in a domain. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Id } from '#api/identity/index.ts'

export const SEARCHED_TYPES = ['client', 'channel', 'group', 'task', 'workflow'] as const
export type SearchedType = (typeof SEARCHED_TYPES)[number]

/** Shorter texts match a large part of the names of a domain. */
const MIN_TEXT_CHARS = 2
const MAX_TEXT_CHARS = 254
const DEFAULT_LIMIT = 10
const MAX_LIMIT = 50

export const SearchQuery = Type.Object({
  q: Type.String({
    minLength: MIN_TEXT_CHARS,
    maxLength: MAX_TEXT_CHARS,
    description: `An id, a tag, or part of a name; ${MIN_TEXT_CHARS} to ${MAX_TEXT_CHARS} characters`,
  }),
  types: Type.Optional(
    Type.String({
      maxLength: 100,
      description: `Comma-separated: ${SEARCHED_TYPES.join(', ')}. Default: all of them`,
    }),
  ),
  limit: Type.Integer({
    default: DEFAULT_LIMIT,
    minimum: 1,
    maximum: MAX_LIMIT,
    description: 'Maximum number of results of each type',
  }),
})
export type SearchQuery = Static<typeof SearchQuery>

export const FoundEntity = Type.Object({
  type: Type.Enum([...SEARCHED_TYPES]),
  id: Id,
  name: Type.String(),
  tags: Type.Array(Type.String()),
  status: Type.String({ description: '`enabled` or `disabled`; of a task its state, of a workflow `enabled`' }),
})
export type FoundEntity = Static<typeof FoundEntity>

export const SearchResults = Type.Object(
  {
    total: Type.Integer({ description: 'Number of matching entities of all types' }),
    totals: Type.Record(Type.String(), Type.Integer(), { description: 'Number of matching entities by type' }),
    results: Type.Array(FoundEntity, {
      description: 'By type, in the order of `types`; within a type, exact matches first, then by name',
    }),
  },
  { $id: 'SearchResults' },
)
export type SearchResults = Static<typeof SearchResults>
