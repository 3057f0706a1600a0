/** The ancestors and descendants of a group that the caller may read (contract section 3, decision 26). */
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

/** Maximum number of groups in a response of a hierarchy. Larger hierarchies are read in pages from `/children`. */
const MAX_HIERARCHY_GROUPS = 10_000

export class GroupHierarchyService {
  readonly #database: Database
  readonly #access: AccessPolicy

  constructor({ database, access }: { database: Database; access: AccessPolicy }) {
    this.#database = database
    this.#access = access
  }

  /** Lists the readable descendants of the group, level by level. */
  async children(caller: UserPrincipal, at: Address, query: ChildrenQuery): Promise<Page<WithAccess<ListedGroup>>> {
    const [filter, levels] = [parseFilter(query), levelsOf(query)]
    const { domain, group } = await findReadable(this.#database.db, this.#access, caller, at)
    return await listPage(this.#database.db, [domain], filter, { side: 'below', key: group.key, ...levels })
  }

  /** Lists the readable ancestors of the group, nearest first. */
  async parents(caller: UserPrincipal, at: Address, query: ParentsQuery): Promise<Page<WithAccess<ListedGroup>>> {
    const filter = parseFilter(query)
    const { domain, group } = await findReadable(this.#database.db, this.#access, caller, at)
    return await listPage(this.#database.db, [domain], filter, {
      side: 'above',
      key: group.key,
      fromLevel: 1,
      toLevel: MAX_LEVELS,
    })
  }

  /**
   * Returns the group with all ancestors or descendants, also those that the caller may not read. Throws
   * `unprocessable` above `MAX_HIERARCHY_GROUPS`.
   */
  async hierarchy(
    caller: UserPrincipal,
    at: Address,
    { level, dir }: HierarchyQuery,
  ): Promise<(GroupRecord & { isReadable: boolean })[]> {
    const { domain, group } = await findReadable(this.#database.db, this.#access, caller, at)
    const hierarchy: HierarchyFilter = {
      side: dir < 0 ? 'below' : 'above',
      key: group.key,
      fromLevel: 0,
      toLevel: level === 0 ? MAX_LEVELS : level,
    }
    if ((await countRelatives(this.#database.db, hierarchy)) > MAX_HIERARCHY_GROUPS)
      throw new ServiceError(
        'unprocessable',
        `the hierarchy has more than ${MAX_HIERARCHY_GROUPS} groups: request fewer levels, or pages from /children`,
      )
    const { total, groups } = await listRelatives(this.#database.db, hierarchy, domain.reachable('group', 'read', 'g'))
    if (groups.length < total)
      throw new ServiceError(
        'unprocessable',
        `the hierarchy has more than ${MAX_PAGE_BYTES} bytes: request fewer levels, or pages from /children`,
      )
    return groups
  }
}

/**
 * Returns the levels relative to the group of the path. Throws `malformed` when the last level is less than the first.
 */
function levelsOf({ start_level: fromLevel, end_level: endLevel, tree }: ChildrenQuery) {
  const end = endLevel ?? (tree === true ? -1 : 0)
  const toLevel = end < 0 ? MAX_LEVELS : end === 0 ? fromLevel : end
  if (toLevel < fromLevel) throw refusedField('end_level', 'must not be less than start_level')
  return { fromLevel, toLevel }
}
