/** Converts the query of a listing of groups to conditions on the table `g` (contract section 3). */
import type { Queryable } from '#core/database/index.ts'
import { isId } from '#core/ids.ts'
import { NO_MORE } from '#core/cursor.ts'
import type { Page } from '#core/page.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { parseActions } from '../access/index.ts'
import type { DomainAccess } from '../access/index.ts'
import {
  allOf,
  anyOf,
  contains,
  containsMetadata,
  createdWithin,
  endAt,
  findPageKeys,
  hasIdOf,
  hasTrigrams,
  parseMetadataFilter,
  shownRows,
} from '../listing/index.ts'
import type { Filters } from '../listing/index.ts'
import { withAccess } from './find.ts'
import type { WithAccess } from './find.ts'
import { countGroups, listGroups } from './repository.ts'
import type { HierarchyFilter, ListedGroup } from './repository.ts'
import type { GroupQuery, ParentsQuery } from './schema.ts'

/** A parsed query. Parsing throws `malformed` before any look-up (decision 45). */
export type GroupFilter = {
  query: GroupQuery | ParentsQuery
  actions: readonly string[]
  /** All filters except the status. */
  filters: Filters
}

/** Throws `malformed` for a metadata filter that is not a JSON object, and for unknown actions. */
export function parseFilter(query: GroupQuery | ParentsQuery): GroupFilter {
  return { query, actions: parseActions('group', query.actions), filters: filtersOf(query) }
}

/** Returns a page of the groups that the caller may read: all of these domains, or the relatives of one group. */
export async function listPage(
  db: Queryable,
  domains: readonly DomainAccess[],
  filter: GroupFilter,
  hierarchy?: HierarchyFilter,
): Promise<Page<WithAccess<ListedGroup>>> {
  const { query, filters } = filter
  const { offset, limit, cursor, order, dir = 'asc' } = query
  const shown = await shownRows(db, domains, { type: 'group', alias: 'g' }, filter, (domain) =>
    query.root_group === true ? [isSeenAsRoot(domain)] : [],
  )
  // A tree requires parents before their children. Without a sort key, the list of ancestors begins with the nearest
  // one.
  const levels = query.tree === true ? 'upper first' : order === undefined ? 'lower first' : undefined
  const sorting = { hierarchy, order: order ?? '', dir, levels } as const
  if (hierarchy === undefined && levels === undefined) {
    const listed = { type: 'group', alias: 'g', shown, filters } as const
    const found = await findPageKeys(db, listed, {
      offset,
      limit,
      cursor,
      order: order ?? '',
      dir,
      status: query.status,
      only_total: query.only_total === true,
    })
    const { total, keys } = found
    const where = sql<boolean>`g.key = ANY (${keys}::bigint[])`
    const { groups } = keys.length === 0 ? NOTHING : await listGroups(db, { ...sorting, where, offset: 0, limit })
    return { total, offset, limit, items: await withAccess(db, domains, groups), next: endAt(found, groups) }
  }
  const inDomains = shown.map(({ domain, accessible, narrowed }) =>
    allOf([sql<boolean>`g.domain_key = ${domain.domainKey}`, accessible.isAmong('g', 'set'), ...narrowed('set')]),
  )
  const where = allOf([anyOf(inDomains), ...recordConditions(filter)])
  const counted = await countGroups({ where, hierarchy }).execute(db)
  const total = counted.rows[0]?.total ?? 0
  const isShown = query.only_total !== true && total > offset
  const { groups, next } = isShown ? await listGroups(db, { ...sorting, where, offset, limit, cursor }) : NOTHING
  return { total, offset, limit, items: await withAccess(db, domains, groups), next }
}

const NOTHING = { groups: [], next: NO_MORE }

/** Conditions on the columns of the groups, including the status. */
export function recordConditions({ query: { status }, filters }: GroupFilter): Sql<boolean>[] {
  return [...(status === 'all' ? [] : [sql<boolean>`g.status = ${status}`]), ...filters.conditions]
}

/** Condition: the caller may read no ancestor of the group, so the group is a root in their view of the hierarchy. */
function isSeenAsRoot(domain: DomainAccess): Sql<boolean> {
  if (domain.can('group_read')) return sql<boolean>`g.parent_key IS NULL`
  return sql<boolean>`NOT EXISTS (SELECT 1 FROM group_closure above JOIN groups a ON a.key = above.ancestor_key
    WHERE above.descendant_key = g.key AND above.depth > 0 AND ${domain.reachable('group', 'read', 'a', 'row')})`
}

/** Conditions on the columns of the groups. An invalid id matches nothing. */
function filtersOf(query: GroupQuery | ParentsQuery): Filters {
  const conditions: Sql<boolean>[] = []
  if (query.name !== undefined) conditions.push(contains('g.name', query.name))
  const tags = [...(query.tags?.split(',') ?? []), query.tag ?? ''].filter((tag) => tag !== '')
  if (tags.length > 0) conditions.push(sql<boolean>`g.tags @> ${tags}::text[]`)
  if (query.metadata !== undefined) conditions.push(containsMetadata('g.metadata', parseMetadataFilter(query.metadata)))
  conditions.push(...createdWithin('g', query))
  if (query.id !== undefined) conditions.push(hasIdOf('g.id', query.id))
  if (query.parentID !== undefined) {
    conditions.push(
      isId(query.parentID)
        ? sql<boolean>`g.parent_key = (SELECT p.key FROM groups p WHERE p.domain_key = g.domain_key AND p.id = ${query.parentID})`
        : sql<boolean>`false`,
    )
  }
  if (query.ownerID !== undefined)
    conditions.push(isId(query.ownerID) ? sql<boolean>`g.created_by = ${query.ownerID}` : sql<boolean>`false`)
  const { name = '', metadata, id, parentID, ownerID } = query
  const isIndexed =
    hasTrigrams(name) || tags.length > 0 || [metadata, id, parentID, ownerID].some((one) => one !== undefined)
  return { conditions, isIndexed }
}
