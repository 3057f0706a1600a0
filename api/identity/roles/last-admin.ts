/** Every entity keeps at least one member of its built-in role (contract 2.4 "Last admin", decision 33). */
import type { Transaction } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { lockForRoles } from './locks.ts'
import { hasAdmin } from './repository.ts'
import type { RoleEntity } from './role.ts'

/**
 * Throws `invalid_state` when the entity has no other administrators than these users. Locks the roles of the entity.
 */
export async function requireNotLastAdmin(
  tx: Transaction,
  entity: RoleEntity,
  leavingUserKeys: readonly number[],
): Promise<void> {
  await lockForRoles(tx, entity)
  if (!(await hasAdmin(tx, entity, leavingUserKeys))) throw noAdminLeft(entity)
}

export function noAdminLeft({ type, id }: Pick<RoleEntity, 'type' | 'id'>): ServiceError {
  return new ServiceError(
    'invalid_state',
    `the ${type} ${id} would have no administrator: add another member to its role admin first`,
  )
}
