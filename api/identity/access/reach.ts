/**
 * What a user reaches in a domain. The only SQL that joins tables of several slices stands here: it resolves the caller
 * once (domain actions, groups with their actions), and gives every listing one fragment to filter by.
 */
import { sql } from 'kysely'
import type { RawBuilder, SqlBool } from 'kysely'
import type { Queryable } from '#core/database/index.ts'
import { ACTIONS } from './actions.ts'
import type { EntityType } from './actions.ts'
import { ENTITY_TABLES } from './entities.ts'
import { ADMIN_ROLE_KEY } from './admin-role.ts'

export type DomainStatus = 'enabled' | 'disabled' | 'freezed' | 'deleted'

export type Reach = {
  readonly userKey: number
  readonly domainKey: number
  readonly domainStatus: DomainStatus
  readonly isMember: boolean
  readonly isDomainAdmin: boolean
  readonly domainActions: ReadonlySet<string>
  /** Actions by group, of the groups in which the user has a role himself. */
  readonly groupActions: ReadonlyMap<number, ReadonlySet<string>>
  /** Keys whose change makes this wrong. */
  readonly dependsOn: readonly number[]
}

type Row = {
  domain_key: number
  status: DomainStatus
  entity_type: EntityType | null
  entity_key: number
  role_key: number
  actions: string[] | null
}

/** Resolves a user in a domain, named by key or by id, with one statement; undefined when there is no such domain. */
export async function resolveReach(db: Queryable, userKey: number, named: number | string): Promise<Reach | undefined> {
  const isNamed = typeof named === 'number' ? sql`d.key = ${named}` : sql`d.id = ${named}`
  const { rows } = await sql<Row>`
    SELECT d.key AS domain_key, d.status, g.entity_type, g.entity_key, g.role_key, r.actions
      FROM domains d
           LEFT JOIN grants g ON g.user_key = ${userKey} AND g.domain_key = d.key AND g.entity_type IN ('domain', 'group')
           LEFT JOIN roles r ON r.key = g.role_key
     WHERE ${isNamed}`.execute(db)
  const domain = rows[0]
  if (domain === undefined) return undefined
  const domainKey = domain.domain_key
  const domainActions = new Set<string>()
  const groupActions = new Map<number, Set<string>>()
  let isMember = false
  let isDomainAdmin = false
  const dependsOn = new Set([userKey, domainKey])
  for (const grant of rows) {
    if (grant.entity_type === null) continue
    const actions = grant.role_key === ADMIN_ROLE_KEY ? ACTIONS[grant.entity_type] : (grant.actions ?? [])
    if (grant.role_key !== ADMIN_ROLE_KEY) dependsOn.add(grant.role_key)
    if (grant.entity_type === 'domain') {
      isMember = true
      isDomainAdmin ||= grant.role_key === ADMIN_ROLE_KEY
      for (const action of actions) domainActions.add(action)
    } else {
      const known = groupActions.get(grant.entity_key) ?? new Set<string>()
      for (const action of actions) known.add(action)
      groupActions.set(grant.entity_key, known)
      dependsOn.add(grant.entity_key)
    }
  }
  return {
    userKey,
    domainKey,
    domainStatus: domain.status,
    isMember,
    isDomainAdmin,
    domainActions,
    groupActions,
    dependsOn: [...dependsOn],
  }
}

/** The actions that a user holds by roles on this one entity. */
export async function directActions(
  db: Queryable,
  userKey: number,
  domainKey: number,
  type: EntityType,
  entityKey: number,
): Promise<{ actions: ReadonlySet<string>; roleKeys: number[] }> {
  const { rows } = await sql<{ role_key: number; actions: string[] | null }>`
    SELECT g.role_key, r.actions FROM grants g LEFT JOIN roles r ON r.key = g.role_key
     WHERE g.user_key = ${userKey} AND g.domain_key = ${domainKey} AND g.entity_type = ${type} AND g.entity_key = ${entityKey}`.execute(
    db,
  )
  const actions = new Set<string>()
  for (const row of rows) {
    for (const action of row.role_key === ADMIN_ROLE_KEY ? ACTIONS[type] : (row.actions ?? [])) actions.add(action)
  }
  return { actions, roleKeys: rows.map((row) => row.role_key).filter((key) => key !== ADMIN_ROLE_KEY) }
}

/** The group itself and everything above it, nearest first. */
export async function groupAncestors(db: Queryable, groupKey: number): Promise<number[]> {
  const { rows } = await sql<{
    ancestor_key: number
  }>`SELECT ancestor_key FROM group_closure WHERE descendant_key = ${groupKey} ORDER BY depth`.execute(db)
  return rows.map((row) => row.ancestor_key)
}

/**
 * How rows are held against what the caller reaches: `set` makes the set of his grants once, for statements that look at most
 * rows; `row` looks each row up, for pages that are full after a few of them.
 */
export type ReachPlan = 'set' | 'row'

/**
 * The condition "the caller may do `action` on this row" for a listing of clients, channels or groups, where `alias` is the
 * listed table. True for the whole domain without looking at a row when a domain role says so.
 */
export function reachable(
  reach: Reach,
  isPlatformAdmin: boolean,
  type: Exclude<EntityType, 'domain'>,
  action: string,
  alias: string,
  plan: ReachPlan = 'set',
): RawBuilder<SqlBool> {
  if (isPlatformAdmin || reach.domainActions.has(`${type}_${action}`)) return sql<SqlBool>`true`
  const key = sql.ref(`${alias}.key`)
  const direct =
    plan === 'set'
      ? sql<SqlBool>`${key} IN (SELECT g.entity_key ${grantsOf(reach, type, action)})`
      : sql<SqlBool>`coalesce((SELECT true ${grantsOf(reach, type, action)} AND g.entity_key = ${key} LIMIT 1), false)`
  const parent = sql.ref(`${alias}.${type === 'group' ? 'key' : 'parent_group_key'}`)
  const { inGroups, inSubgroups } = groupsFor(reach, type, action)
  const conditions = [direct]
  if (inGroups.length > 0) conditions.push(sql<SqlBool>`${parent} = ANY (${inGroups}::bigint[])`)
  if (inSubgroups.length > 0) {
    conditions.push(sql<SqlBool>`${parent} IN (
      SELECT descendant_key FROM group_closure WHERE ancestor_key = ANY (${inSubgroups}::bigint[]) AND depth > 0)`)
  }
  return sql<SqlBool>`(${sql.join(conditions, sql` OR `)})`
}

/** Grants `g` of the user on entities of the type whose role holds the action. */
function grantsOf(reach: Reach, type: EntityType, action: string): RawBuilder<unknown> {
  return sql`FROM grants g LEFT JOIN roles r ON r.key = g.role_key
     WHERE g.user_key = ${reach.userKey} AND g.domain_key = ${reach.domainKey} AND g.entity_type = ${type}
       AND (g.role_key = ${ADMIN_ROLE_KEY} OR ${action} = ANY (r.actions))`
}

/** Groups whose members the user may do the action on, and groups for whose descendants that holds. */
export function groupsFor(reach: Reach, type: Exclude<EntityType, 'domain'>, action: string) {
  const groupsWith = (wanted: string) =>
    [...reach.groupActions].filter(([, actions]) => actions.has(wanted)).map(([key]) => key)
  return {
    inGroups: type === 'group' ? [] : groupsWith(`${type}_${action}`),
    inSubgroups: groupsWith(type === 'group' ? `subgroup_${action}` : `subgroup_${type}_${action}`),
  }
}

/** A reach of at most so many entities is looked up by their keys: the whole of it is sorted for a page. */
const SMALL_REACH = 2000

/** The keys of what roles on entities and groups let the user do the action on; undefined: more than a small reach. */
export async function smallReach(
  db: Queryable,
  reach: Reach,
  type: Exclude<EntityType, 'domain'>,
  action: string,
): Promise<readonly number[] | undefined> {
  const { inGroups, inSubgroups } = groupsFor(reach, type, action)
  const table = sql.table(ENTITY_TABLES[type].table)
  const parent = sql.ref(`e.${type === 'group' ? 'key' : ENTITY_TABLES[type].parent}`)
  const parts = [sql`SELECT g.entity_key AS key ${grantsOf(reach, type, action)}`]
  if (inGroups.length > 0)
    parts.push(
      sql`SELECT e.key FROM ${table} e WHERE e.domain_key = ${reach.domainKey} AND ${parent} = ANY (${inGroups}::bigint[])`,
    )
  if (inSubgroups.length > 0)
    parts.push(sql`SELECT e.key FROM group_closure below JOIN ${table} e ON ${parent} = below.descendant_key
      WHERE below.ancestor_key = ANY (${inSubgroups}::bigint[]) AND below.depth > 0 AND e.domain_key = ${reach.domainKey}`)
  // An entity may be reached in several ways; the limit stops the search as soon as the reach is not small.
  const { rows } = await sql<{ key: number }>`
    SELECT key FROM (${sql.join(parts, sql` UNION ALL `)}) reached LIMIT ${SMALL_REACH + 1}`.execute(db)
  return rows.length > SMALL_REACH ? undefined : [...new Set(rows.map(({ key }) => key))]
}
