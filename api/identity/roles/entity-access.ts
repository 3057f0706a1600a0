/** The entity of a role request: found by path, readable, and with the required permission. */
import type { Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { AccessPolicy, DomainAccess, EntityType, LocatedEntity, UserPrincipal } from '../access/index.ts'
import type { PageRange } from '#core/page.ts'
import { adminRoleId } from '../access/index.ts'
import { roleEntityOf } from './granting.ts'
import { findAdminRole, findRole } from './repository.ts'
import type { RoleEntity, RoleRecord } from './role.ts'

/**
 * An entity in a path. Without a domain it is searched in all domains (decision 31b). For a domain only `id` is used.
 */
export type RoleTarget = { type: EntityType; domainId: string | undefined; id: string }

export type RoleRight = 'manage_role' | 'add_role_users' | 'remove_role_users' | 'view_role_users'

export type EntityAccess = {
  domain: DomainAccess
  /** Undefined for the domain itself. */
  located: LocatedEntity | undefined
  entity: RoleEntity
}

/** Throws `forbidden` and `not_found` in the order of decision 45. */
export async function enterEntity(
  access: AccessPolicy,
  caller: UserPrincipal,
  target: RoleTarget,
  ...rights: RoleRight[]
): Promise<EntityAccess> {
  if (target.type === 'domain') {
    const domain = await access.enter(caller, target.id)
    for (const right of rights) domain.require(right)
    return { domain, located: undefined, entity: roleEntityOf(domain) }
  }
  const { domain, entity } = await access.locate(caller, target.domainId, target.type, target.id)
  for (const right of rights) await domain.requireOn(entity, right)
  return { domain, located: entity, entity: roleEntityOf(domain, entity) }
}

/** Returns the role of the entity, including the built-in one. */
export async function requireRole(db: Queryable, entity: RoleEntity, roleId: string): Promise<RoleRecord> {
  const role =
    roleId === adminRoleId(entity.type, entity.key)
      ? await findAdminRole(db, entity)
      : await findRole(db, entity.key, roleId)
  if (role === undefined) throw new ServiceError('not_found', 'role not found')
  return role
}

/**
 * Returns the keys to invalidate when roles on the entity change: cached decisions depend on users and roles. The key
 * of a domain is omitted, since it would invalidate all cache entries of its channels and devices.
 */
export function keysOf(entity: RoleEntity, others: readonly number[]): number[] {
  return entity.type === 'domain' ? [...others] : [entity.key, ...others]
}

/** Undefined means all rows, for lists without paging (decision 6). */
export type Paging = PageRange | undefined

/** Maximum number of rows in a list without paging. */
export const MAX_UNPAGED = 10_000
