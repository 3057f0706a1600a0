/**
 * What a user reaches in a domain: his actions there and on groups, resolved once with one statement and remembered by whoever
 * asks. What listings filter by is made of it in `reachable.ts`.
 */
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { ACTIONS } from './actions.ts'
import type { EntityType } from './actions.ts'
import { ADMIN_ROLE_KEY } from './admin-role.ts'

export type DomainStatus = 'enabled' | 'disabled' | 'freezed' | 'deleted'

export type Reach = {
  /** Tells one resolution from every other of this process. */
  readonly serial: number
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

/** Grants of one kind of entity that give the same actions. */
type Row = {
  domain_key: number
  status: DomainStatus
  entity_type: EntityType | null
  is_admin: boolean
  actions: string[] | null
  /** Joined by commas: there may be tens of thousands. */
  entity_keys: string
  role_keys: string
}

let resolvedReaches = 0

/** Resolves a user in a domain, named by key or by id, with one statement; undefined when there is no such domain. */
export async function resolveReach(db: Queryable, userKey: number, named: number | string): Promise<Reach | undefined> {
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
      // Groups with the same actions share them.
      groupActions.set(key, known === undefined ? actions : new Set([...known, ...actions]))
      dependsOn.add(key)
    }
  }
  return {
    serial: ++resolvedReaches,
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
