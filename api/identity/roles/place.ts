/** The entity whose roles are asked about, as the caller entered it: found by path, readable, with the right that he needs. */
import type { Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { AccessPolicy, DomainAccess, EntityType, LocatedEntity, UserPrincipal } from '../access/index.ts'
import { adminRoleId } from '../access/index.ts'
import { roleEntityOf } from './granting.ts'
import { findAdminRole, findRole } from './repository.ts'
import type { RoleEntity, RoleRecord } from './role.ts'

/** An entity as a path names it; without a domain it is found (decision 31b). Of a domain `id` alone counts. */
export type RoleTarget = { type: EntityType; domainId: string | undefined; id: string }

export type RoleRight = 'manage_role' | 'add_role_users' | 'remove_role_users' | 'view_role_users'

export type Place = {
  domain: DomainAccess
  /** Undefined: the domain itself. */
  located: LocatedEntity | undefined
  entity: RoleEntity
}

/** Throws `forbidden` and `not_found` in the order of decision 45. */
export async function enterPlace(
  access: AccessPolicy,
  caller: UserPrincipal,
  target: RoleTarget,
  ...rights: RoleRight[]
): Promise<Place> {
  if (target.type === 'domain') {
    const domain = await access.enter(caller, target.id)
    for (const right of rights) domain.require(right)
    return { domain, located: undefined, entity: roleEntityOf(domain) }
  }
  const { domain, entity } = await access.locate(caller, target.domainId, target.type, target.id)
  for (const right of rights) await domain.requireOn(entity, right)
  return { domain, located: entity, entity: roleEntityOf(domain, entity) }
}

/** The role of the entity, the built-in one included. */
export async function requireRole(db: Queryable, entity: RoleEntity, roleId: string): Promise<RoleRecord> {
  const role =
    roleId === adminRoleId(entity.type, entity.key)
      ? await findAdminRole(db, entity)
      : await findRole(db, entity.key, roleId)
  if (role === undefined) throw new ServiceError('not_found', 'role not found')
  return role
}

/**
 * What caches must forget when roles on the entity change: decisions depend on users and roles. A domain is not named:
 * everything known of its channels and devices would be forgotten with it.
 */
export function keysOf(entity: RoleEntity, others: readonly number[]): number[] {
  return entity.type === 'domain' ? [...others] : [entity.key, ...others]
}

/** Absent: everything, which a list without a page shows (decision 6). */
export type Paging = { offset: number; limit: number } | undefined

/** Rows of a list that was asked for without a page. */
export const MAX_UNPAGED = 10_000
