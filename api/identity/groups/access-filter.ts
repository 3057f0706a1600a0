/**
 * The filters of a listing that ask by which role the caller, or another user, has access (contract 2.4, section 3). They say
 * the same as the access fields of the items: a role on the group itself comes before one of a group above, that before one of
 * the domain.
 */
import { sql } from 'kysely'
import type { RawBuilder, SqlBool } from 'kysely'
import type { Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { DomainAccess, DomainAction } from '../access/index.ts'
import { ACTIONS, ADMIN_ROLE_KEY, ADMIN_ROLE_NAME, adminRoleId } from '../access/index.ts'
import { INHERITED } from '../access/inheritance.ts'
import { reachable, resolveReach } from '../access/reach.ts'

export type AccessQuery = {
  role_id?: string
  role_name?: string
  access_type?: 'direct' | 'direct_group' | 'indirect_group' | 'domain'
  user?: string
}

type Condition = RawBuilder<SqlBool>
const NEVER = sql<SqlBool>`false`

/** The conditions for one domain, on the table `g`. Throws `forbidden` for the reach of somebody else. */
export async function accessConditions(
  db: Queryable,
  domain: DomainAccess,
  actions: readonly string[],
  query: AccessQuery,
): Promise<Condition[]> {
  const conditions = actions.map((action) => mayDo(domain, action))
  if (query.role_id !== undefined) conditions.push(await holdsRole(db, domain, query.role_id))
  if (query.role_name !== undefined) conditions.push(holdsRoleNamed(domain, query.role_name))
  if (query.access_type !== undefined) conditions.push(isReachedBy(domain, query.access_type))
  if (query.user !== undefined) conditions.push(await isReachedByUser(db, domain, query.user))
  return conditions
}

/** A comma-separated list of actions of groups. Throws `malformed`. */
export function parseActions(list: string | undefined): string[] {
  const actions = (list ?? '').split(',').filter((action) => action !== '')
  const known = new Set<string>(ACTIONS.group)
  const unknown = actions.find((action) => !known.has(action))
  if (unknown === undefined) return actions
  const message = `must name actions of groups, which ${unknown} is not`
  throw new ServiceError('malformed', `actions ${message}`, { details: [{ path: 'actions', message }] })
}

function mayDo(domain: DomainAccess, action: string): Condition {
  const needed = INHERITED.domain.group.get(action)
  return needed !== undefined && domain.can(needed as DomainAction)
    ? sql<SqlBool>`true`
    : domain.reachable('group', action, 'g')
}

/** Roles of the caller on the group itself, joined to the table `r` of made roles. */
function direct(domain: DomainAccess, condition: Condition): Condition {
  return sql<SqlBool>`EXISTS (SELECT 1 FROM grants held LEFT JOIN roles r ON r.key = held.role_key
    WHERE held.user_key = ${domain.principal.key} AND held.domain_key = ${domain.domainKey} AND held.entity_type = 'group'
      AND held.entity_key = g.key AND ${condition})`
}

async function holdsRole(db: Queryable, domain: DomainAccess, roleId: string): Promise<Condition> {
  // The built-in role is no row: its id derives from the group's key, so it is looked for among the groups that he administers.
  const { rows } = await sql<{
    entity_key: number
  }>`SELECT entity_key FROM grants WHERE user_key = ${domain.principal.key}
    AND domain_key = ${domain.domainKey} AND entity_type = 'group' AND role_key = ${ADMIN_ROLE_KEY}`.execute(db)
  const administered = rows.find((row) => adminRoleId('group', row.entity_key) === roleId)
  return administered === undefined
    ? direct(domain, sql<SqlBool>`r.id = ${roleId}`)
    : sql<SqlBool>`g.key = ${administered.entity_key}`
}

function holdsRoleNamed(domain: DomainAccess, name: string): Condition {
  return direct(
    domain,
    name === ADMIN_ROLE_NAME ? sql<SqlBool>`held.role_key = ${ADMIN_ROLE_KEY}` : sql<SqlBool>`r.name = ${name}`,
  )
}

function isReachedBy(domain: DomainAccess, type: NonNullable<AccessQuery['access_type']>): Condition {
  const givesAny = (needed: Iterable<string>) =>
    sql<SqlBool>`(held.role_key = ${ADMIN_ROLE_KEY} OR r.actions && ${[...needed]}::text[])`
  const isDirect = direct(domain, givesAny(ACTIONS.group))
  const isIndirect = sql<SqlBool>`EXISTS (
    SELECT 1 FROM group_closure up JOIN grants held ON held.entity_key = up.ancestor_key AND held.entity_type = 'group'
        LEFT JOIN roles r ON r.key = held.role_key
     WHERE up.descendant_key = g.key AND up.depth > 0 AND held.user_key = ${domain.principal.key}
       AND held.domain_key = ${domain.domainKey} AND ${givesAny(INHERITED.ancestor.group.values())})`
  const isOfDomain = sql<SqlBool>`EXISTS (
    SELECT 1 FROM grants held LEFT JOIN roles r ON r.key = held.role_key
     WHERE held.user_key = ${domain.principal.key} AND held.domain_key = ${domain.domainKey} AND held.entity_type = 'domain'
       AND ${givesAny(INHERITED.domain.group.values())})`
  switch (type) {
    case 'direct':
      return isDirect
    case 'direct_group':
      // What comes to a group from a group is always inherited by `subgroup_`.
      return NEVER
    case 'indirect_group':
      return sql<SqlBool>`NOT ${isDirect} AND ${isIndirect}`
    case 'domain':
      return sql<SqlBool>`NOT ${isDirect} AND NOT ${isIndirect} AND ${isOfDomain}`
  }
}

/** What another user reaches is shown to him and to who administers the domain (contract 4.3). */
async function isReachedByUser(db: Queryable, domain: DomainAccess, userId: string): Promise<Condition> {
  if (userId !== domain.principal.id && !domain.isAdmin)
    throw new ServiceError('forbidden', 'failed to perform authorization: only an administrator lists for another user')
  const { rows } = isId(userId)
    ? await sql<{ key: number }>`SELECT key FROM users WHERE id = ${userId} AND status <> 'deleted'`.execute(db)
    : { rows: [] }
  const reach = rows[0] === undefined ? undefined : await resolveReach(db, rows[0].key, domain.domainKey)
  return reach?.isMember === true ? reachable(reach, false, 'group', 'read', 'g') : NEVER
}
