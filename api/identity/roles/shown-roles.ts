/** The caller's own roles on an entity, for a view with `?roles=true` (contract 1.1, 3, 4.1). */
import type { Queryable } from '#core/database/index.ts'
import type { DomainAccess, LocatedEntity } from '../access/index.ts'
import { findRoleProviders, listRoleHolders } from '../access/index.ts'
import { presentPlacedRole } from './schema.ts'
import type { PresentedPlacedRole } from './schema.ts'

/** Fields to spread into the record; `ShownRolesFields` is their schema. */
export type ShownRoles = { member_id: string; roles: PresentedPlacedRole[] }

/** Returns the caller's roles on an entity, or in the domain without one, including inherited roles, nearest first. */
export async function shownTo(
  db: Queryable,
  { principal, domainKey }: Pick<DomainAccess, 'principal' | 'domainKey'>,
  entity?: LocatedEntity,
): Promise<ShownRoles> {
  const places = await findRoleProviders(db, domainKey, entity)
  const { roles } = await listRoleHolders(db, places, { userKey: principal.key }, { offset: 0, limit: 1 })
  return { member_id: principal.id, roles: roles.map(presentPlacedRole) }
}
