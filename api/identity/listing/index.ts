export type { AccessQuery } from './access-filter.ts'
export {
  allOf,
  anyOf,
  contains,
  containsMetadata,
  createdWithin,
  hasIdOf,
  hasTrigrams,
  orderedBy,
  parseMetadataFilter,
  withTags,
} from './conditions.ts'
export type { CreatedQuery } from './conditions.ts'
export { startCountMerger, sumEntityCounts } from './counts.ts'
export { warnOfSlowSearches } from './letters.ts'
export { endAt, findPageKeys } from './page.ts'
export type { FoundPage } from './page.ts'
export { shownRows } from './shown-rows.ts'
export type { ShownRows } from './shown-rows.ts'
export type { Filters, PageQuery } from './statements.ts'
export { findNamed } from './named.ts'
export type { NamedEntity } from './named.ts'
