/**
 * The users with access to one entity, their roles, and the places of these roles: the entity itself, its ancestors or
 * its domain (contract 2.4). Listings of members, `?roles=true` and the explanation of a decision use it.
 */
import { NO_MORE } from '#core/cursor.ts'
import type { PageEnd } from '#core/cursor.ts'
import { Keyset, pageOf, rangeOf, withinPage } from '#core/database/index.ts'
import type { PlacedRow } from '#core/database/index.ts'
import type { PageRange } from '#core/page.ts'
import type { Queryable } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import { ACTIONS } from './actions.ts'
import type { EntityType } from './actions.ts'
import { ADMIN_ROLE_KEY, ADMIN_ROLE_NAME, adminRoleId } from './admin-role.ts'
import { ENTITY_TABLES } from './entities.ts'
import type { LocatedEntity } from './entities.ts'
import { INHERITED } from './inheritance.ts'
import type { Inheritance, Provider } from './inheritance.ts'

export type AccessType = 'direct' | 'direct_group' | 'indirect_group' | 'domain'

/** A place whose roles apply to an entity. */
export type RoleProvider = {
  accessType: AccessType
  type: EntityType
  key: number
  id: string
  name: string
  /**
   * Maps each action on the entity to the action that a role of this place must contain. Undefined when they are the
   * same.
   */
  inheritance: Inheritance | undefined
  /** Ids of the groups from the root to this one, separated by `.`. Undefined for other places. */
  path: string | undefined
}

type GroupRow = { key: number; id: string; name: string; depth: number; path: string }

/** Returns the places whose roles apply to the entity, nearest first. Without an entity it returns the domain only. */
export async function findRoleProviders(
  db: Queryable,
  domainKey: number,
  entity?: LocatedEntity,
): Promise<RoleProvider[]> {
  const { rows: domains } = await sql<{ key: number; id: string; name: string }>`
    SELECT key, id, name FROM domains WHERE key = ${domainKey}`.execute(db)
  const domain = domains[0]
  if (domain === undefined) return []
  if (entity === undefined)
    return [{ ...domain, accessType: 'direct', type: 'domain', inheritance: undefined, path: undefined }]
  const { rows: groups } = await sql<GroupRow>`
    SELECT g.key, g.id, g.name, c.depth,
           (SELECT string_agg(a.id::text, '.' ORDER BY up.depth DESC)
              FROM group_closure up JOIN groups a ON a.key = up.ancestor_key WHERE up.descendant_key = g.key) AS path
      FROM group_closure c JOIN groups g ON g.key = c.ancestor_key
     WHERE c.descendant_key = ${entity.parentGroupKey} ORDER BY c.depth`.execute(db)
  const { type, key, id } = entity
  const { rows: named } = await sql<{ name: string }>`
    SELECT name FROM ${sql.table(ENTITY_TABLES[type].table)} WHERE key = ${key}`.execute(db)
  return [
    { accessType: 'direct', type, key, id, name: named[0]?.name ?? '', inheritance: undefined, path: undefined },
    ...groups.map((group): RoleProvider => {
      const provider: Provider = group.depth === 0 && type !== 'group' ? 'parent' : 'ancestor'
      return {
        accessType: provider === 'parent' ? 'direct_group' : 'indirect_group',
        type: 'group',
        key: group.key,
        id: group.id,
        name: group.name,
        inheritance: INHERITED[provider][type],
        path: group.path,
      }
    }),
    { ...domain, accessType: 'domain', type: 'domain', inheritance: INHERITED.domain[type], path: undefined },
  ]
}

export type PlacedRole = {
  userId: string
  place: RoleProvider
  id: string
  name: string
  actions: readonly string[]
}

export type HolderFilter = {
  userKey?: number
  roleId?: string
  roleName?: string
  /** The role contains all of these actions. */
  actions?: readonly string[]
}

type HeldRow = PlacedRow<{
  total: number
  user_id: string | null
  place: number
  role_key: number
  role_id: string | null
  role_name: string | null
  role_actions: string[] | null
}>

/**
 * Returns the roles at these places that grant something on the entity, with their members: one page of users in the
 * order of their registration, each with all of their roles, nearest first. `total` is the number of users.
 */
export async function listRoleHolders(
  db: Queryable,
  places: readonly RoleProvider[],
  filter: HolderFilter,
  range: PageRange,
): Promise<{ total: number; roles: PlacedRole[]; next: PageEnd }> {
  const { userKey = null, roleId = null, roleName = null, actions = [] } = filter
  // The built-in role is not stored, so its match is computed here.
  const adminFits = places.map(
    (place) =>
      (roleId === null || roleId === adminRoleId(place.type, place.key)) &&
      (roleName === null || roleName === ADMIN_ROLE_NAME) &&
      actions.every((action) => (ACTIONS[place.type] as readonly string[]).includes(action)),
  )
  const needed = JSON.stringify(places.map((place) => (place.inheritance ? [...place.inheritance.values()] : null)))
  const page = withinPage(
    sql`SELECT user_key, ${BY_USER.place}::text AS row_place FROM people WHERE ${BY_USER.after(range.cursor)} ${rangeOf(BY_USER, range)}`,
    sql<number>`(SELECT sum(octet_length(h::text)) FROM held h WHERE h.user_key = listed.user_key)`,
  )
  const { rows } = await sql<HeldRow>`
    WITH places AS (
      SELECT p.key, p.type, p.admin_fits, p.ordinality AS place,
             CASE WHEN jsonb_typeof(${needed}::jsonb -> (p.ordinality - 1)::int) = 'array'
                  THEN ARRAY(SELECT jsonb_array_elements_text(${needed}::jsonb -> (p.ordinality - 1)::int)) END AS needed
        FROM unnest(${places.map((place) => place.key)}::bigint[], ${places.map((place) => place.type)}::text[], ${adminFits}::boolean[])
             WITH ORDINALITY AS p (key, type, admin_fits, ordinality)),
    held AS (
      SELECT g.user_key, p.place, g.role_key, r.id AS role_id, r.name AS role_name, r.actions AS role_actions
        FROM places p JOIN grants g ON g.entity_key = p.key AND g.entity_type = p.type LEFT JOIN roles r ON r.key = g.role_key
       WHERE (${userKey}::bigint IS NULL OR g.user_key = ${userKey})
         AND CASE WHEN g.role_key = ${ADMIN_ROLE_KEY} THEN p.admin_fits
                  ELSE (p.needed IS NULL OR r.actions && p.needed) AND r.actions @> ${actions}::text[]
                       AND (${roleId}::text IS NULL OR r.id = ${roleId}) AND (${roleName}::text IS NULL OR r.name = ${roleName}) END),
    people AS (SELECT DISTINCT user_key FROM held),
    page AS (${page})
    SELECT t.total, page.row_place, page.page_rows, u.id AS user_id, h.place, h.role_key, h.role_id, h.role_name, h.role_actions
      FROM (SELECT count(*) AS total FROM people) t
           LEFT JOIN (page JOIN held h USING (user_key) JOIN users u ON u.key = page.user_key) ON true
     ORDER BY page.user_key, h.place, h.role_key`.execute(db)
  const held = rows.filter((row) => row.user_id !== null)
  // A user has several rows.
  const people = held.filter((row, index) => row.user_id !== held[index - 1]?.user_id)
  const { rows: shown, next } = held.length === 0 ? { rows: [], next: NO_MORE } : pageOf(people, range.limit)
  const userIds = new Set(shown.map((row) => row.user_id))
  const roles = held.flatMap((row): PlacedRole[] => {
    const place = places[row.place - 1]
    if (row.user_id === null || place === undefined || !userIds.has(row.user_id)) return []
    return [{ userId: row.user_id, place, ...describeRole(place, row) }]
  })
  return { total: rows[0]?.total ?? 0, roles, next }
}

const BY_USER = new Keyset([{ by: sql`user_key`, type: 'number' }])

function describeRole(place: RoleProvider, row: HeldRow): Pick<PlacedRole, 'id' | 'name' | 'actions'> {
  return row.role_key === ADMIN_ROLE_KEY
    ? { id: adminRoleId(place.type, place.key), name: ADMIN_ROLE_NAME, actions: ACTIONS[place.type] }
    : { id: row.role_id ?? '', name: row.role_name ?? '', actions: row.role_actions ?? [] }
}
