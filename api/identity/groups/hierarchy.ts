/** Who is above and below a group, as its caller may see it (contract section 3, decision 26). */
import type { Database } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { MAX_PAGE_BYTES } from '#core/page.ts'
import type { Page } from '#core/page.ts'
import type { AccessPolicy, UserPrincipal } from '../access/index.ts'
import { findReadable } from './find.ts'
import type { Address, WithAccess } from './find.ts'
import { listPage, parseFilter } from './listing.ts'
import type { GroupRecord, HierarchyFilter, ListedGroup } from './repository.ts'
import { countRelatives, listRelatives } from './repository.ts'
import type { ChildrenQuery, HierarchyQuery, ParentsQuery } from './schema.ts'
import { MAX_LEVELS } from './schema.ts'

export type GroupHierarchyService = {
  /** Readable groups below this one, level by level from here. */
  children(caller: UserPrincipal, at: Address, query: ChildrenQuery): Promise<Page<WithAccess<ListedGroup>>>
  /** Readable groups above this one, the nearest first. */
  parents(caller: UserPrincipal, at: Address, query: ParentsQuery): Promise<Page<WithAccess<ListedGroup>>>
  /** The group with everything above or below it, also what the caller may not read. Throws `unprocessable` above the bound. */
  hierarchy(
    caller: UserPrincipal,
    at: Address,
    query: HierarchyQuery,
  ): Promise<(GroupRecord & { isReadable: boolean })[]>
}

/** Groups that one answer of a hierarchy may hold; more are read page by page from `/children`. */
const MAX_HIERARCHY_GROUPS = 10_000

export function createGroupHierarchyService({
  database,
  access,
}: {
  database: Database
  access: AccessPolicy
}): GroupHierarchyService {
  const { db } = database
  return {
    async children(caller, at, query) {
      const [filter, levels] = [parseFilter(query), levelsOf(query)]
      const { domain, group } = await findReadable(db, access, caller, at)
      return await listPage(db, [domain], filter, { side: 'below', key: group.key, ...levels })
    },
    async parents(caller, at, query) {
      const filter = parseFilter(query)
      const { domain, group } = await findReadable(db, access, caller, at)
      return await listPage(db, [domain], filter, {
        side: 'above',
        key: group.key,
        fromLevel: 1,
        toLevel: MAX_LEVELS,
      })
    },
    async hierarchy(caller, at, { level, dir }) {
      const { domain, group } = await findReadable(db, access, caller, at)
      const hierarchy: HierarchyFilter = {
        side: dir < 0 ? 'below' : 'above',
        key: group.key,
        fromLevel: 0,
        toLevel: level === 0 ? MAX_LEVELS : level,
      }
      if ((await countRelatives(db, hierarchy)) > MAX_HIERARCHY_GROUPS)
        throw new ServiceError(
          'unprocessable',
          `the hierarchy has more than ${MAX_HIERARCHY_GROUPS} groups: ask for fewer levels, or page by page from /children`,
        )
      const { total, groups } = await listRelatives(db, hierarchy, domain.reachable('group', 'read', 'g'))
      if (groups.length < total)
        throw new ServiceError(
          'unprocessable',
          `the hierarchy has more than ${MAX_PAGE_BYTES} bytes: ask for fewer levels, or page by page from /children`,
        )
      return groups
    },
  }
}

/** Levels counted from the group of the path; throws `malformed` when the last comes before the first. */
function levelsOf({ start_level: fromLevel, end_level: endLevel, tree }: ChildrenQuery) {
  const end = endLevel ?? (tree === true ? -1 : 0)
  const toLevel = end < 0 ? MAX_LEVELS : end === 0 ? fromLevel : end
  if (toLevel < fromLevel) throw refusedField('end_level', 'must not be less than start_level')
  return { fromLevel, toLevel }
}
