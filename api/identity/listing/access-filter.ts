/**
 * Filters of a listing by the access of the caller or of another user (contract 2.4, sections 3 and 4). They agree with
 * the access fields of the items. The precedence is: role on the entity, on its parent group, on an ancestor, on the
 * domain.
 */
import type { Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import {
  ACTIONS,
  ADMIN_ROLE_KEY,
  ADMIN_ROLE_NAME,
  ENTITY_TABLES,
  INHERITED,
  adminRoleId,
  isAmong,
} from '../access/index.ts'
import type { Accessible, DomainAccess, DomainAction, EntityType, Provider, GrantsPlan } from '../access/index.ts'

type Listed = Exclude<EntityType, 'domain'>

export type AccessQuery = {
  role_id?: string
  role_name?: string
  access_type?: 'direct' | 'direct_group' | 'indirect_group' | 'domain'
  /** Id of a user whose accessible entities are listed. */
  user?: string
}

type Condition = Sql<boolean>
const NEVER = sql<boolean>`false`

/**
 * Listing the entities of a user requires the user themselves or an administrator of one of the domains, in that domain
 * only (contract 4.3). Throws `forbidden`.
 */
export function requireMayListFor(domains: readonly DomainAccess[], userId: string | undefined): void {
  if (userId === undefined || domains.some((domain) => mayListFor(domain, userId))) return
  // A caller without access to any domain gets an empty list.
  if (domains.length > 0)
    throw new ServiceError(
      'forbidden',
      'failed to perform authorization: the entities of another user require an administrator',
    )
}

const mayListFor = (domain: DomainAccess, userId: string) => domain.isAdmin || domain.principal.id === userId

/** Returns the conditions of one domain on the table `alias`, except the one on another user. */
export async function accessConditions(
  db: Queryable,
  domain: DomainAccess,
  listed: { type: Listed; alias: string },
  actions: readonly string[],
  query: AccessQuery,
): Promise<(plan: GrantsPlan) => Condition[]> {
  const { role_id: roleId, role_name: roleName, access_type: accessType } = query
  const ofRole = roleId === undefined ? undefined : await findRoleHeld(db, domain, listed, roleId)
  // Actions that the caller has on every entity of the domain are omitted: without a condition the listing of the whole
  // domain is faster.
  const narrowing = actions.filter((action) => action !== 'read' && !mayDoEverywhere(domain, listed.type, action))
  return (plan) => [
    ...narrowing.map((action) => domain.reachable(listed.type, action, listed.alias, plan)),
    ...(ofRole === undefined ? [] : [ofRole(plan)]),
    ...(roleName === undefined ? [] : [holdsRoleNamed(domain, listed, roleName, plan)]),
    ...(accessType === undefined ? [] : [isReachedBy(domain, listed, accessType, plan)]),
  ]
}

type On = { type: Listed; alias: string }

function mayDoEverywhere(domain: DomainAccess, type: Listed, action: string): boolean {
  const needed = INHERITED.domain[type].get(action)
  return needed !== undefined && domain.can(needed as DomainAction)
}

/** Condition on the caller's roles on the entity itself, joined with the table `r` of roles. */
function direct(domain: DomainAccess, { type, alias }: On, condition: Condition, plan: GrantsPlan): Condition {
  return isAmong(
    sql.ref(`${alias}.key`),
    plan,
    sql`held.entity_key`,
    sql`FROM grants held LEFT JOIN roles r ON r.key = held.role_key
       WHERE held.user_key = ${domain.principal.key} AND held.domain_key = ${domain.domainKey} AND held.entity_type = ${type} AND ${condition}`,
  )
}

async function findRoleHeld(
  db: Queryable,
  domain: DomainAccess,
  listed: On,
  roleId: string,
): Promise<(plan: GrantsPlan) => Condition> {
  const { type, alias } = listed
  if (!roleId.startsWith(`${type}_`)) return () => NEVER
  // The built-in role is not stored. Its id is derived from the key of the entity, so it is compared with the entities
  // that the caller administers.
  const { rows } = await sql<{
    entity_key: number
  }>`SELECT entity_key FROM grants WHERE user_key = ${domain.principal.key}
    AND domain_key = ${domain.domainKey} AND entity_type = ${type} AND role_key = ${ADMIN_ROLE_KEY}`.execute(db)
  const administered = rows.find((row) => adminRoleId(type, row.entity_key) === roleId)
  return administered === undefined
    ? (plan) => direct(domain, listed, sql<boolean>`r.id = ${roleId}`, plan)
    : () => sql<boolean>`${sql.ref(`${alias}.key`)} = ${administered.entity_key}`
}

function holdsRoleNamed(domain: DomainAccess, listed: On, name: string, plan: GrantsPlan): Condition {
  const isNamed =
    name === ADMIN_ROLE_NAME ? sql<boolean>`held.role_key = ${ADMIN_ROLE_KEY}` : sql<boolean>`r.name = ${name}`
  return direct(domain, listed, isNamed, plan)
}

const givesAny = (needed: Iterable<string>) =>
  sql<boolean>`(held.role_key = ${ADMIN_ROLE_KEY} OR r.actions && ${[...needed]}::text[])`

/**
 * Condition on the caller's roles on the ancestors of the entity. The parent of a group is an ancestor like the others.
 */
function throughGroup(
  domain: DomainAccess,
  { type, alias }: On,
  provider: Exclude<Provider, 'domain'>,
  plan: GrantsPlan,
): Condition {
  if (type === 'group' && provider === 'parent') return NEVER
  return isAmong(
    sql.ref(`${alias}.${type === 'group' ? 'key' : ENTITY_TABLES[type].parent}`),
    plan,
    sql`up.descendant_key`,
    sql`FROM group_closure up JOIN grants held ON held.entity_key = up.ancestor_key AND held.entity_type = 'group'
             LEFT JOIN roles r ON r.key = held.role_key
       WHERE ${provider === 'parent' ? sql`up.depth = 0` : sql`up.depth > 0`}
         AND held.user_key = ${domain.principal.key} AND held.domain_key = ${domain.domainKey}
         AND ${givesAny(INHERITED[provider][type].values())}`,
  )
}

function throughDomain(domain: DomainAccess, { type }: On): Condition {
  return sql<boolean>`EXISTS (
    SELECT 1 FROM grants held LEFT JOIN roles r ON r.key = held.role_key
     WHERE held.user_key = ${domain.principal.key} AND held.domain_key = ${domain.domainKey} AND held.entity_type = 'domain'
       AND ${givesAny(INHERITED.domain[type].values())})`
}

function isReachedBy(
  domain: DomainAccess,
  listed: On,
  type: NonNullable<AccessQuery['access_type']>,
  plan: GrantsPlan,
): Condition {
  const isDirect = direct(domain, listed, givesAny(ACTIONS[listed.type]), plan)
  const isDirectGroup = throughGroup(domain, listed, 'parent', plan)
  const isIndirectGroup = throughGroup(domain, listed, 'ancestor', plan)
  switch (type) {
    case 'direct':
      return isDirect
    case 'direct_group':
      return sql<boolean>`NOT (${isDirect}) AND ${isDirectGroup}`
    case 'indirect_group':
      return sql<boolean>`NOT (${isDirect}) AND NOT (${isDirectGroup}) AND ${isIndirectGroup}`
    case 'domain':
      return sql<boolean>`NOT (${isDirect}) AND NOT (${isDirectGroup}) AND NOT (${isIndirectGroup}) AND ${throughDomain(domain, listed)}`
  }
}

/**
 * Returns the entities that another user may read. Undefined when the caller may not see them, and for a user who is
 * not a member.
 */
export async function accessibleToUser(
  db: Queryable,
  domain: DomainAccess,
  type: Listed,
  userId: string,
): Promise<Accessible | undefined> {
  if (!mayListFor(domain, userId) || !isId(userId)) return undefined
  const { rows } = await sql<{
    key: number
  }>`SELECT key FROM users WHERE id = ${userId} AND status <> 'deleted'`.execute(db)
  return rows[0] === undefined ? undefined : await domain.accessibleTo(rows[0].key, type)
}
