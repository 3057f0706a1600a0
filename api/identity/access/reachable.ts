/**
 * SQL conditions for the rows that a caller has access to. Every slice filters by them. Only this file, `domain-grants.ts` and
 * `listing/` contain SQL that joins tables of several slices.
 */
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { EntityType } from './actions.ts'
import { ADMIN_ROLE_KEY } from './admin-role.ts'
import { ENTITY_TABLES } from './entities.ts'
import type { DomainGrants } from './domain-grants.ts'

type Listed = Exclude<EntityType, 'domain'>

/**
 * Plan of an access condition. `set` computes the set of accessible keys once, for statements that read most rows of a
 * domain. `row` looks each row up, for pages that need few rows and for rows selected by key.
 */
export type GrantsPlan = 'set' | 'row'

/**
 * Up to this number of groups are parameters of the statement. More groups are read from the grants by the statement
 * itself.
 */
const MANY_GROUPS = 200
/**
 * Condition: the caller may perform `action` on a row of a listing of clients, channels or groups, where `alias` is the
 * listed table. The constant `true` when a role of the domain grants the action.
 */
export function reachable(
  domainGrants: DomainGrants,
  isPlatformAdmin: boolean,
  type: Listed,
  action: string,
  alias: string,
  plan: GrantsPlan = 'set',
): Sql<boolean> {
  if (isPlatformAdmin || domainGrants.domainActions.has(`${type}_${action}`)) return sql<boolean>`true`
  const key = sql.ref(`${alias}.key`)
  const parent = sql.ref(`${alias}.${type === 'group' ? 'key' : 'parent_group_key'}`)
  const conditions = [isAmong(key, plan, sql`own.entity_key`, grantsOf(domainGrants, type, action))]
  const { inGroups, inSubgroups } = groupsFor(domainGrants, type, action)
  if (isMany(inGroups)) {
    conditions.push(
      isAmong(parent, plan, sql`own.entity_key`, grantsOf(domainGrants, 'group', actionInGroups(type, action))),
    )
  } else if (inGroups.length > 0) {
    conditions.push(sql<boolean>`${parent} = ANY (${inGroups}::bigint[])`)
  }
  if (inSubgroups.length > 0) {
    const below = belowGroups(domainGrants, inSubgroups, actionInSubgroups(type, action))
    // Few groups are few rows to start from. With many groups it is cheaper to check the ancestors of each row.
    conditions.push(isAmong(parent, isMany(inSubgroups) ? plan : 'set', sql`below.descendant_key`, below))
  }
  return sql<boolean>`(${sql.join(conditions, sql` OR `)})`
}

/**
 * Condition: `value` is one of the values of the column `of` in these rows, as a set or looked up. `rows` must end in a
 * condition.
 */
export function isAmong(value: Sql<unknown>, plan: GrantsPlan, of: Sql<unknown>, rows: Sql<unknown>): Sql<boolean> {
  return plan === 'set'
    ? // Without IS TRUE the planner makes it a join, which is slow while PostgreSQL has no statistics of the tables.
      sql<boolean>`(${value} IN (SELECT ${of} ${rows})) IS TRUE`
    : // The limit keeps the planner from computing the whole set.
      sql<boolean>`coalesce((SELECT true ${rows} AND ${of} = ${value} LIMIT 1), false)`
}

/** Grants `own` of the user on entities of the type whose role contains the action. No listed table uses this alias. */
function grantsOf(domainGrants: DomainGrants, type: EntityType, action: string): Sql<unknown> {
  return sql`FROM grants own LEFT JOIN roles role ON role.key = own.role_key
     WHERE own.user_key = ${domainGrants.userKey} AND own.domain_key = ${domainGrants.domainKey} AND own.entity_type = ${type}
       AND (own.role_key = ${ADMIN_ROLE_KEY} OR ${action} = ANY (role.actions))`
}

/** The descendants `below` of these groups, on which a role of the user contains the action. */
function belowGroups(domainGrants: DomainGrants, groups: readonly number[], action: string): Sql<unknown> {
  return isMany(groups)
    ? sql`FROM group_closure below JOIN grants own ON own.entity_key = below.ancestor_key LEFT JOIN roles role ON role.key = own.role_key
       WHERE own.user_key = ${domainGrants.userKey} AND own.domain_key = ${domainGrants.domainKey} AND own.entity_type = 'group'
         AND (own.role_key = ${ADMIN_ROLE_KEY} OR ${action} = ANY (role.actions)) AND below.depth > 0`
    : sql`FROM group_closure below WHERE below.ancestor_key = ANY (${groups}::bigint[]) AND below.depth > 0`
}

const isMany = (groups: readonly number[]) => groups.length > MANY_GROUPS
const actionInGroups = (type: Listed, action: string) => `${type}_${action}`
const actionInSubgroups = (type: Listed, action: string) =>
  type === 'group' ? `subgroup_${action}` : `subgroup_${type}_${action}`

/**
 * Returns the groups on whose members the user may perform the action, and the groups on whose descendants they may.
 */
function groupsFor(domainGrants: DomainGrants, type: Listed, action: string) {
  return {
    inGroups: type === 'group' ? [] : groupsWith(domainGrants, actionInGroups(type, action)),
    inSubgroups: groupsWith(domainGrants, actionInSubgroups(type, action)),
  }
}

/** Cached by grants and action: every condition of a listing needs these groups, and there can be tens of thousands. */
const foundGroups = new WeakMap<DomainGrants, Map<string, readonly number[]>>()

function groupsWith(domainGrants: DomainGrants, action: string): readonly number[] {
  const found = foundGroups.get(domainGrants) ?? new Map<string, readonly number[]>()
  foundGroups.set(domainGrants, found)
  const known = found.get(action)
  if (known !== undefined) return known
  const groups = [...domainGrants.groupActions].filter(([, actions]) => actions.has(action)).map(([key]) => key)
  found.set(action, groups)
  return groups
}

/**
 * Returns the keys of the groups on whose members the user may perform the action, and of the descendants of groups
 * that grant it for their descendants.
 */
function groupsGiving(domainGrants: DomainGrants, type: Listed, action: string): Sql<unknown>[] {
  const { inGroups, inSubgroups } = groupsFor(domainGrants, type, action)
  const keysOf = (groups: readonly number[], given: string) =>
    isMany(groups)
      ? sql`SELECT own.entity_key AS key ${grantsOf(domainGrants, 'group', given)}`
      : sql`SELECT unnest(${groups}::bigint[]) AS key`
  const below = sql`SELECT DISTINCT below.key FROM (${keysOf(inSubgroups, actionInSubgroups(type, action))} OFFSET 0) upper
    CROSS JOIN LATERAL (
      SELECT c.descendant_key AS key FROM group_closure c WHERE c.ancestor_key = upper.key AND c.depth > 0 OFFSET 0) below`
  return [
    ...(inGroups.length === 0 ? [] : [keysOf(inGroups, actionInGroups(type, action))]),
    ...(inSubgroups.length === 0 ? [] : [below]),
  ]
}

/** Columns that a statement reads. PostgreSQL reads an index alone when it has all of them. */
export type Columns = readonly string[] | 'all'

/**
 * Returns the entities on which roles on entities and groups grant the action, each once, as a table of these columns. Each
 * part starts with the grants and continues by an index (`OFFSET 0` keeps the order), independent of the statistics. Keys are
 * looked up in ascending order, so that each page of the index and of the table is read once. A parent and its members belong
 * to one domain.
 */
export function accessibleRows(
  domainGrants: DomainGrants,
  type: Listed,
  action: string,
  columns: Columns,
): Sql<unknown> {
  const table = sql.table(ENTITY_TABLES[type].table)
  const read = columnsOf('e', columns)
  // Several roles can grant the action on one entity.
  const granted = sql`SELECT DISTINCT own.entity_key AS key ${grantsOf(domainGrants, type, action)}`
  const groups = groupsGiving(domainGrants, type, action)
  const byKey = (
    keys: Sql<unknown>,
    of: Sql<unknown>,
  ) => sql`SELECT e.* FROM (${keys} ORDER BY key OFFSET 0) own CROSS JOIN LATERAL (
    SELECT ${of} FROM ${table} e WHERE e.key = own.key OFFSET 0) e`
  if (groups.length === 0) return sql`(${byKey(granted, read)})`
  const above = sql`SELECT DISTINCT key FROM (${sql.join(groups, UNION)}) every`
  if (type === 'group') return sql`(${byKey(sql`SELECT key FROM (${granted} UNION ${above}) every`, read)})`
  // Members of these groups are excluded from the part of the direct roles, so each entity occurs once.
  const withParent = columns === 'all' ? columns : [...columns, 'parent_group_key']
  return sql`(WITH above AS MATERIALIZED (${above})
    SELECT e.* FROM above CROSS JOIN LATERAL (SELECT ${read} FROM ${table} e WHERE e.parent_group_key = above.key OFFSET 0) e
    UNION ALL
    SELECT ${read} FROM (${byKey(granted, columnsOf('e', withParent))}) e
     WHERE (e.parent_group_key IN (SELECT key FROM above)) IS NOT TRUE)`
}

export function columnsOf(alias: string, columns: Columns): Sql<unknown> {
  if (columns === 'all') return sql`${sql.ref(alias)}.*`
  return sql.join(columns.map((column) => sql.ref(`${alias}.${column}`)))
}

const UNION = sql` UNION ALL `
