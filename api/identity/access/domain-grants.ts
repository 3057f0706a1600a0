/**
 * The grants of a user in a domain: their actions on the domain and on groups, resolved with one statement and cached by
 * the callers. `reachable.ts` builds the conditions of listings from it.
 */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { ACTIONS } from './actions.ts'
import type { EntityType } from './actions.ts'
import { ADMIN_ROLE_KEY } from './admin-role.ts'

export type DomainStatus = 'enabled' | 'disabled' | 'freezed' | 'deleted'

export type DomainGrants = {
  /** Unique number of this resolution in this process. */
  readonly serial: number
  readonly userKey: number
  readonly domainKey: number
  readonly domainStatus: DomainStatus
  readonly isMember: boolean
  readonly isDomainAdmin: boolean
  readonly domainActions: ReadonlySet<string>
  /** Actions by group, for groups on which the user has a role. */
  readonly groupActions: ReadonlyMap<number, ReadonlySet<string>>
  /** Keys of the entities whose changes invalidate the grants. */
  readonly dependsOn: readonly number[]
}

/** Grants on one entity type with the same actions. */
type Row = {
  domain_key: number
  status: DomainStatus
  entity_type: EntityType | null
  is_admin: boolean
  actions: string[] | null
  /** Comma-separated: there can be tens of thousands. */
  entity_keys: string
  role_keys: string
}

let resolutions = 0

/**
 * Resolves the grants of a user in a domain, given by key or id, with one statement. Undefined when the domain does not
 * exist.
 */
export async function resolveDomainGrants(
  db: Queryable,
  userKey: number,
  named: number | string,
): Promise<DomainGrants | undefined> {
  const isNamed = typeof named === 'number' ? sql`d.key = ${named}` : sql`d.id = ${named}`
  const { rows } = await sql<Row>`
    SELECT d.key AS domain_key, d.status, held.*
      FROM domains d LEFT JOIN LATERAL (
        SELECT of_role.entity_type, of_role.key = ${ADMIN_ROLE_KEY} AS is_admin, r.actions,
               string_agg(of_role.entity_keys, ',') AS entity_keys, string_agg(of_role.key::text, ',') AS role_keys
          FROM (SELECT g.entity_type, g.role_key AS key, string_agg(g.entity_key::text, ',') AS entity_keys
                  FROM grants g WHERE g.user_key = ${userKey} AND g.domain_key = d.key AND g.entity_type IN ('domain', 'group')
                 GROUP BY g.entity_type, g.role_key) of_role LEFT JOIN roles r ON r.key = of_role.key
         GROUP BY of_role.entity_type, is_admin, r.actions) held ON true
     WHERE ${isNamed}`.execute(db)
  const domain = rows[0]
  if (domain === undefined) return undefined
  const domainKey = domain.domain_key
  const domainActions = new Set<string>()
  const groupActions = new Map<number, ReadonlySet<string>>()
  let isMember = false
  let isDomainAdmin = false
  const dependsOn = new Set([userKey, domainKey])
  for (const held of rows) {
    if (held.entity_type === null) continue
    const actions = new Set<string>(held.is_admin ? ACTIONS[held.entity_type] : held.actions)
    if (!held.is_admin) for (const key of held.role_keys.split(',')) dependsOn.add(Number(key))
    if (held.entity_type === 'domain') {
      isMember = true
      isDomainAdmin ||= held.is_admin
      for (const action of actions) domainActions.add(action)
      continue
    }
    for (const key of held.entity_keys.split(',').map(Number)) {
      const known = groupActions.get(key)
      // Groups with the same actions share one set.
      groupActions.set(key, known === undefined ? actions : new Set([...known, ...actions]))
      dependsOn.add(key)
    }
  }
  return {
    serial: ++resolutions,
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

/** Returns the actions that a user has by roles on this entity. */
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

/** Returns the group and its ancestors, nearest first. */
export async function groupAncestors(db: Queryable, groupKey: number): Promise<number[]> {
  const { rows } = await sql<{
    ancestor_key: number
  }>`SELECT ancestor_key FROM group_closure WHERE descendant_key = ${groupKey} ORDER BY depth`.execute(db)
  return rows.map((row) => row.ancestor_key)
}
