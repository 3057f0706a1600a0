/**
 * Which rows a caller reaches: one fragment of SQL for every slice to filter by. With `reach.ts` and `listing/` the only SQL that
 * joins tables of several slices.
 */
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { EntityType } from './actions.ts'
import { ADMIN_ROLE_KEY } from './admin-role.ts'
import { ENTITY_TABLES } from './entities.ts'
import type { Reach } from './reach.ts'

type Listed = Exclude<EntityType, 'domain'>

/**
 * How rows are held against what the caller reaches: `set` makes the sets of his grants once, for statements that look at most
 * rows of a domain; `row` looks each row up, for pages that are full after a few of them and for rows that are named.
 */
export type ReachPlan = 'set' | 'row'

/** So many groups travel with a statement as their keys; more are read from the grants where the statement runs. */
const MANY_GROUPS = 200
/**
 * The condition "the caller may do `action` on this row" for a listing of clients, channels or groups, where `alias` is the
 * listed table. True for the whole domain without looking at a row when a domain role says so.
 */
export function reachable(
  reach: Reach,
  isPlatformAdmin: boolean,
  type: Listed,
  action: string,
  alias: string,
  plan: ReachPlan = 'set',
): Sql<boolean> {
  if (isPlatformAdmin || reach.domainActions.has(`${type}_${action}`)) return sql<boolean>`true`
  const key = sql.ref(`${alias}.key`)
  const parent = sql.ref(`${alias}.${type === 'group' ? 'key' : 'parent_group_key'}`)
  const conditions = [isAmong(key, plan, sql`own.entity_key`, grantsOf(reach, type, action))]
  const { inGroups, inSubgroups } = groupsFor(reach, type, action)
  if (isMany(inGroups)) {
    conditions.push(isAmong(parent, plan, sql`own.entity_key`, grantsOf(reach, 'group', actionInGroups(type, action))))
  } else if (inGroups.length > 0) {
    conditions.push(sql<boolean>`${parent} = ANY (${inGroups}::bigint[])`)
  }
  if (inSubgroups.length > 0) {
    const below = belowGroups(reach, inSubgroups, actionInSubgroups(type, action))
    // Few groups are few rows to begin from, many are not: there the groups above the row are looked at.
    conditions.push(isAmong(parent, isMany(inSubgroups) ? plan : 'set', sql`below.descendant_key`, below))
  }
  return sql<boolean>`(${sql.join(conditions, sql` OR `)})`
}

/** "`value` is one of the column `of` of these rows", as a set or looked up. `rows` ends in a condition. */
export function isAmong(value: Sql<unknown>, plan: ReachPlan, of: Sql<unknown>, rows: Sql<unknown>): Sql<boolean> {
  return plan === 'set'
    ? // As a condition of its own it would be a join, and a bad one as long as PostgreSQL knows nothing of the tables' sizes.
      sql<boolean>`(${value} IN (SELECT ${of} ${rows})) IS TRUE`
    : // The limit keeps PostgreSQL from making a set of it after all.
      sql<boolean>`coalesce((SELECT true ${rows} AND ${of} = ${value} LIMIT 1), false)`
}

/** Grants `own` of the user on entities of the type whose role holds the action. No listed table is called so. */
function grantsOf(reach: Reach, type: EntityType, action: string): Sql<unknown> {
  return sql`FROM grants own LEFT JOIN roles role ON role.key = own.role_key
     WHERE own.user_key = ${reach.userKey} AND own.domain_key = ${reach.domainKey} AND own.entity_type = ${type}
       AND (own.role_key = ${ADMIN_ROLE_KEY} OR ${action} = ANY (role.actions))`
}

/** The groups `below` these, on which a role of the user holds the action. */
function belowGroups(reach: Reach, groups: readonly number[], action: string): Sql<unknown> {
  return isMany(groups)
    ? sql`FROM group_closure below JOIN grants own ON own.entity_key = below.ancestor_key LEFT JOIN roles role ON role.key = own.role_key
       WHERE own.user_key = ${reach.userKey} AND own.domain_key = ${reach.domainKey} AND own.entity_type = 'group'
         AND (own.role_key = ${ADMIN_ROLE_KEY} OR ${action} = ANY (role.actions)) AND below.depth > 0`
    : sql`FROM group_closure below WHERE below.ancestor_key = ANY (${groups}::bigint[]) AND below.depth > 0`
}

const isMany = (groups: readonly number[]) => groups.length > MANY_GROUPS
const actionInGroups = (type: Listed, action: string) => `${type}_${action}`
const actionInSubgroups = (type: Listed, action: string) =>
  type === 'group' ? `subgroup_${action}` : `subgroup_${type}_${action}`

/** Groups whose members the user may do the action on, and groups for whose descendants that holds. */
function groupsFor(reach: Reach, type: Listed, action: string) {
  return {
    inGroups: type === 'group' ? [] : groupsWith(reach, actionInGroups(type, action)),
    inSubgroups: groupsWith(reach, actionInSubgroups(type, action)),
  }
}

/** By reach and action: every condition of a listing asks for them, and there may be tens of thousands. */
const foundGroups = new WeakMap<Reach, Map<string, readonly number[]>>()

function groupsWith(reach: Reach, action: string): readonly number[] {
  const found = foundGroups.get(reach) ?? new Map<string, readonly number[]>()
  foundGroups.set(reach, found)
  const known = found.get(action)
  if (known !== undefined) return known
  const groups = [...reach.groupActions].filter(([, actions]) => actions.has(action)).map(([key]) => key)
  found.set(action, groups)
  return groups
}

/** The keys of groups: those whose members the user may do the action on, and those below groups for whose descendants he may. */
function groupsGiving(reach: Reach, type: Listed, action: string): Sql<unknown>[] {
  const { inGroups, inSubgroups } = groupsFor(reach, type, action)
  const keysOf = (groups: readonly number[], given: string) =>
    isMany(groups)
      ? sql`SELECT own.entity_key AS key ${grantsOf(reach, 'group', given)}`
      : sql`SELECT unnest(${groups}::bigint[]) AS key`
  const below = sql`SELECT DISTINCT below.key FROM (${keysOf(inSubgroups, actionInSubgroups(type, action))} OFFSET 0) upper
    CROSS JOIN LATERAL (
      SELECT c.descendant_key AS key FROM group_closure c WHERE c.ancestor_key = upper.key AND c.depth > 0 OFFSET 0) below`
  return [
    ...(inGroups.length === 0 ? [] : [keysOf(inGroups, actionInGroups(type, action))]),
    ...(inSubgroups.length === 0 ? [] : [below]),
  ]
}

/**
 * What roles on entities and groups let the user do the action on, each once: a table of `key` and `status`. Each part begins with the
 * grants and goes on by an index (`OFFSET 0` keeps the order), whatever PostgreSQL believes of the tables' sizes. A parent and what lies in it
 * are of one domain.
 */
export function accessibleRows(reach: Reach, type: Listed, action: string): Sql<{ key: number; status: string }> {
  const table = sql.table(ENTITY_TABLES[type].table)
  // Several roles may give it on one entity.
  const granted = sql`SELECT DISTINCT own.entity_key AS key ${grantsOf(reach, type, action)}`
  const groups = groupsGiving(reach, type, action)
  const byKey = (keys: Sql<unknown>, columns: string) => sql`SELECT e.* FROM (${keys} OFFSET 0) own CROSS JOIN LATERAL (
    SELECT ${sql.raw(columns)} FROM ${table} e WHERE e.key = own.key OFFSET 0) e`
  if (groups.length === 0) return sql`(${byKey(granted, 'e.key, e.status')})`
  const above = sql`SELECT DISTINCT key FROM (${sql.join(groups, UNION)}) every`
  if (type === 'group')
    return sql`(${byKey(sql`SELECT key FROM (${granted} UNION ${above}) every`, 'e.key, e.status')})`
  // What lies in a group of these is not looked up again for a role on it.
  return sql`(WITH above AS MATERIALIZED (${above})
    SELECT e.* FROM above CROSS JOIN LATERAL (
      SELECT e.key, e.status FROM ${table} e WHERE e.parent_group_key = above.key OFFSET 0) e
    UNION ALL
    SELECT e.key, e.status FROM (${byKey(granted, 'e.key, e.status, e.parent_group_key')}) e
     WHERE (e.parent_group_key IN (SELECT key FROM above)) IS NOT TRUE)`
}

const UNION = sql` UNION ALL `
