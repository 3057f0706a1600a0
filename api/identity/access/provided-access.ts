/**
 * The roles by which the caller has access to the entities of a listing (contract 2.4, "Effective access in lists"):
 * one statement for a page, independent of the number of ancestors.
 */
import { prepared } from '#core/database/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { ACTIONS } from './actions.ts'
import type { EntityType } from './actions.ts'
import { ADMIN_ROLE_KEY, ADMIN_ROLE_NAME, adminRoleId } from './admin-role.ts'
import { INHERITED } from './inheritance.ts'
import type { Provider } from './inheritance.ts'
import type { DomainAccess } from './domain-access.ts'

type Listed = Exclude<EntityType, 'domain'>

/** The access fields of a list item with their wire names. `EffectiveAccessFields` is their schema. */
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
  provider: 'direct' | Provider
  /** The entity itself, its parent group, or its domain. */
  place_key: number
  provider_key: number
  provider_id: string
  role_key: number
  role_id: string | null
  role_name: string | null
  role_actions: string[] | null
}

/** Roles of a user in some domains: on some entities of a type, and on the domains. */
const OWN_AND_DOMAIN = `
  SELECT 'direct' AS provider, g.entity_key AS place_key, 0 AS distance, g.entity_key AS provider_key, '' AS provider_id, g.role_key
    FROM grants g WHERE g.user_key = $1 AND g.domain_key = ANY ($2::bigint[]) AND g.entity_type = $3 AND g.entity_key = ANY ($4::bigint[])
  UNION ALL
  SELECT 'domain', g.domain_key, 0, g.entity_key, '', g.role_key
    FROM grants g WHERE g.user_key = $1 AND g.domain_key = ANY ($2::bigint[]) AND g.entity_type = 'domain'`
/** Roles of a user on some groups and their ancestors. */
const ON_GROUPS = `
  SELECT CASE WHEN c.depth = 0 THEN 'parent' ELSE 'ancestor' END, c.descendant_key, c.depth, g.entity_key, p.id::text, g.role_key
    FROM group_closure c JOIN groups p ON p.key = c.ancestor_key
         JOIN grants g ON g.user_key = $1 AND g.domain_key = ANY ($2::bigint[]) AND g.entity_type = 'group' AND g.entity_key = c.ancestor_key
   WHERE c.descendant_key = ANY ($5::bigint[])`
const withRoles = (places: string) => `
  SELECT p.*, r.id AS role_id, r.name AS role_name, r.actions AS role_actions
    FROM (${places}) p LEFT JOIN roles r ON r.key = p.role_key ORDER BY p.distance, p.role_key`

const FIND = prepared<Row>('find_provided_access', withRoles(OWN_AND_DOMAIN))
const FIND_WITH_GROUPS = prepared<Row>(
  'find_provided_access_with_groups',
  withRoles(`${OWN_AND_DOMAIN} UNION ALL ${ON_GROUPS}`),
)

/** The attributes of an entity that determine the roles that apply to it. */
export type PlacedEntity = { key: number; domainKey: number; parentGroupKey: number | null }

/** The access that the caller's roles grant on the entities of a listing. */
export type PageAccess = {
  /**
   * The strongest role on each entity, by its key. The order is: direct, parent group, ancestors (nearest first),
   * domain. Among several roles on one entity the built-in role is first, then the oldest. An entity on which no role
   * grants anything is absent, also for a platform administrator without roles.
   */
  provided: ReadonlyMap<number, EffectiveAccess>
  /** True when the caller may perform the action on one of the entities, from any role. */
  may(entity: PlacedEntity, action: string): boolean
}

/** The domains of the entities must be among `domains`. */
export async function findPageAccess(
  db: Queryable,
  domains: readonly DomainAccess[],
  type: Listed,
  entities: readonly PlacedEntity[],
): Promise<PageAccess> {
  const entered = new Map(domains.map((domain) => [domain.domainKey, domain]))
  const places = [...new Set(entities.map(({ domainKey }) => domainKey))]
  const rows = await findRoles(db, domains, type, places, entities)
  const byPlace = (...providers: Row['provider'][]) =>
    Map.groupBy(
      rows.filter(({ provider }) => providers.includes(provider)),
      ({ place_key: place }) => place,
    )
  const [direct, ofGroups, ofDomains] = [byPlace('direct'), byPlace('parent', 'ancestor'), byPlace('domain')]
  /** Returns the roles in descending order of precedence. */
  const rolesOn = ({ key, domainKey, parentGroupKey }: PlacedEntity) => [
    ...(direct.get(key) ?? []),
    ...((parentGroupKey === null ? undefined : ofGroups.get(parentGroupKey)) ?? []),
    ...(ofDomains.get(domainKey) ?? []),
  ]
  /** A role grants the same to all entities of its place, so each role is presented once. */
  const presented = new Map<Row, EffectiveAccess | undefined>()
  const present = (row: Row, domainKey: number) => {
    if (presented.has(row)) return presented.get(row)
    const provider = row.provider === 'domain' ? { provider_id: entered.get(domainKey)?.domainId ?? '' } : {}
    const access = presentProvided(type, { ...row, ...provider })
    presented.set(row, access)
    return access
  }
  const provided = new Map<number, EffectiveAccess>()
  for (const entity of entities) {
    for (const row of rolesOn(entity)) {
      const access = present(row, entity.domainKey)
      if (access === undefined) continue
      provided.set(entity.key, access)
      break
    }
  }
  return {
    provided,
    may(entity, action) {
      const domain = entered.get(entity.domainKey)
      // The token restricts the permissions of the roles.
      if (domain?.permits({ type, ...entity }, action) !== true) return false
      return domain.principal.isPlatformAdmin || rolesOn(entity).some((row) => gives(row, type, action))
    },
  }
}

/** Returns `provided` of `findPageAccess`. */
export async function findProvidedAccess(
  db: Queryable,
  domains: readonly DomainAccess[],
  type: Listed,
  entities: readonly PlacedEntity[],
): Promise<ReadonlyMap<number, EffectiveAccess>> {
  return (await findPageAccess(db, domains, type, entities)).provided
}

async function findRoles(
  db: Queryable,
  domains: readonly DomainAccess[],
  type: Listed,
  places: readonly number[],
  entities: readonly PlacedEntity[],
): Promise<Row[]> {
  const [entered] = domains
  if (entered === undefined || entities.length === 0) return []
  const parents = [...new Set(entities.flatMap(({ parentGroupKey }) => parentGroupKey ?? []))]
  const values = [entered.principal.key, places, type, entities.map(({ key }) => key)]
  // A caller without roles on groups does not need the larger half of the statement.
  const isByGroups = parents.length > 0 && domains.some(({ hasGroupRoles }) => hasGroupRoles)
  const { rows } = isByGroups ? await FIND_WITH_GROUPS(db, [...values, parents]) : await FIND(db, values)
  return rows
}

const placeOf = ({ provider }: Row, type: Listed): EntityType =>
  provider === 'direct' ? type : provider === 'domain' ? 'domain' : 'group'

const actionsOf = (row: Row, type: Listed): readonly string[] =>
  row.role_key === ADMIN_ROLE_KEY ? ACTIONS[placeOf(row, type)] : (row.role_actions ?? [])

/** True when the role grants the action on an entity of the type. */
function gives(row: Row, type: Listed, action: string): boolean {
  const needed = row.provider === 'direct' ? action : INHERITED[row.provider][type].get(action)
  return needed !== undefined && actionsOf(row, type).includes(needed)
}

/** Undefined for a role that grants nothing on the entity. */
function presentProvided(type: Listed, row: Row): EffectiveAccess | undefined {
  const { provider } = row
  const actions = [...actionsOf(row, type)]
  const role =
    row.role_key === ADMIN_ROLE_KEY
      ? { id: adminRoleId(placeOf(row, type), row.provider_key), name: ADMIN_ROLE_NAME }
      : { id: row.role_id ?? '', name: row.role_name ?? '' }
  if (provider === 'direct') {
    if (actions.length === 0) return undefined
    return { access_type: 'direct', role_id: role.id, role_name: role.name, actions }
  }
  const held = new Set<string>(actions)
  if (![...INHERITED[provider][type].values()].some((needed) => held.has(needed))) return undefined
  return {
    // A group inherits from other groups through `subgroup_` actions only.
    access_type:
      provider === 'domain' ? 'domain' : provider === 'parent' && type !== 'group' ? 'direct_group' : 'indirect_group',
    access_provider_id: row.provider_id,
    access_provider_role_id: role.id,
    access_provider_role_name: role.name,
    access_provider_role_actions: actions,
  }
}
