/**
 * By which role the caller has access to the entities of a listing (contract 2.4, "Effective access in lists"): one
 * statement for a whole page, whatever the number of groups above.
 */
import { sql } from 'kysely'
import type { Queryable } from '#core/database/index.ts'
import { ACTIONS } from './actions.ts'
import type { EntityType } from './actions.ts'
import { ADMIN_ROLE_KEY, ADMIN_ROLE_NAME, adminRoleId } from './admin-role.ts'
import { ENTITY_TABLES } from './entities.ts'
import { INHERITED } from './inheritance.ts'
import type { Provider } from './inheritance.ts'
import type { DomainAccess } from './policy.ts'

type Listed = Exclude<EntityType, 'domain'>

/** The access fields of a list item as the wire names them; `EffectiveAccessFields` is their schema. */
export type EffectiveAccess =
  | { access_type: 'direct'; role_id: string; role_name: string; actions: string[] }
  | {
      access_type: 'direct_group' | 'indirect_group' | 'domain'
      access_provider_id: string
      access_provider_role_id: string
      access_provider_role_name: string
      access_provider_role_actions: string[]
    }

type Row = {
  entity_key: number
  provider: 'direct' | Provider
  provider_key: number
  provider_id: string
  role_key: number
  role_id: string | null
  role_name: string | null
  role_actions: string[] | null
}

/**
 * The strongest role of the caller for each of those of the entities that lie in these domains, which he entered: a direct one before that of the parent group, before that of a
 * group above (the nearest first), before that of the domain; of several in one place the built-in one, then the oldest.
 * An entity on which no role gives anything is absent, as for a platform administrator without roles.
 */
export async function findProvidedAccess(
  db: Queryable,
  domains: readonly DomainAccess[],
  type: Listed,
  entityKeys: readonly number[],
): Promise<ReadonlyMap<number, EffectiveAccess>> {
  const found = new Map<number, EffectiveAccess>()
  const [entered] = domains
  if (entered === undefined || entityKeys.length === 0) return found
  const userKey = entered.principal.key
  const domainKeys = domains.map(({ domainKey }) => domainKey)
  const parent = sql.ref(`e.${ENTITY_TABLES[type].parent}`)
  const { rows } = await sql<Row>`
    WITH e AS (
      SELECT e.key, e.domain_key, ${parent} AS parent_key FROM ${sql.table(ENTITY_TABLES[type].table)} e
       WHERE e.key = ANY (${entityKeys}::bigint[]) AND e.domain_key = ANY (${domainKeys}::bigint[])),
    provided AS (
      SELECT e.key AS entity_key, 'direct' AS provider, 0 AS distance, ''::text AS provider_id, g.entity_key AS provider_key, g.role_key
        FROM e JOIN grants g ON g.user_key = ${userKey} AND g.domain_key = e.domain_key AND g.entity_type = ${type} AND g.entity_key = e.key
      UNION ALL
      SELECT e.key, CASE WHEN c.depth = 0 THEN 'parent' ELSE 'ancestor' END, c.depth + 1, p.id::text, g.entity_key, g.role_key
        FROM e JOIN group_closure c ON c.descendant_key = e.parent_key
             JOIN grants g ON g.user_key = ${userKey} AND g.domain_key = e.domain_key AND g.entity_type = 'group' AND g.entity_key = c.ancestor_key
             JOIN groups p ON p.key = c.ancestor_key
      UNION ALL
      SELECT e.key, 'domain', 1000, d.id::text, g.entity_key, g.role_key
        FROM e JOIN domains d ON d.key = e.domain_key
             JOIN grants g ON g.user_key = ${userKey} AND g.domain_key = e.domain_key AND g.entity_type = 'domain')
    SELECT p.entity_key, p.provider, p.provider_key, p.provider_id, p.role_key, r.id AS role_id, r.name AS role_name, r.actions AS role_actions
      FROM provided p LEFT JOIN roles r ON r.key = p.role_key
     ORDER BY p.entity_key, p.distance, p.role_key`.execute(db)
  for (const row of rows) {
    if (found.has(row.entity_key)) continue
    const access = presentProvided(type, row)
    if (access !== undefined) found.set(row.entity_key, access)
  }
  return found
}

/** Undefined for a role that gives nothing on the entity. */
function presentProvided(type: Listed, row: Row): EffectiveAccess | undefined {
  const { provider } = row
  const on = provider === 'direct' ? type : provider === 'domain' ? 'domain' : 'group'
  const role =
    row.role_key === ADMIN_ROLE_KEY
      ? { id: adminRoleId(on, row.provider_key), name: ADMIN_ROLE_NAME, actions: [...ACTIONS[on]] }
      : { id: row.role_id ?? '', name: row.role_name ?? '', actions: row.role_actions ?? [] }
  if (provider === 'direct') {
    if (role.actions.length === 0) return undefined
    return { access_type: 'direct', role_id: role.id, role_name: role.name, actions: role.actions }
  }
  const held = new Set<string>(role.actions)
  if (![...INHERITED[provider][type].values()].some((needed) => held.has(needed))) return undefined
  return {
    // What comes to a group from a group is always inherited by `subgroup_`.
    access_type:
      provider === 'domain' ? 'domain' : provider === 'parent' && type !== 'group' ? 'direct_group' : 'indirect_group',
    access_provider_id: row.provider_id,
    access_provider_role_id: role.id,
    access_provider_role_name: role.name,
    access_provider_role_actions: role.actions,
  }
}
