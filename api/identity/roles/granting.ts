/** The granting rule: a caller can only grant actions that they have themselves (contract 2.4). */
import { ServiceError } from '#core/errors/index.ts'
import type { DomainAccess, LocatedEntity } from '../access/index.ts'
import type { RoleEntity } from './role.ts'

/** Returns the entity that roles are defined on: `entity`, or the domain when `entity` is omitted. */
export function roleEntityOf(domain: DomainAccess, entity?: LocatedEntity): RoleEntity {
  const { domainKey, domainId } = domain
  return entity === undefined
    ? { type: 'domain', key: domainKey, id: domainId, domainKey, domainId }
    : { type: entity.type, key: entity.key, id: entity.id, domainKey, domainId }
}

/**
 * Reads the caller's actions on `entity`, or on the domain when `entity` is omitted. Returns a function that returns whether
 * the caller has an action. The function reads nothing more, so a transaction can call it for the roles that it loads.
 */
export async function readActionCheck(
  domain: DomainAccess,
  entity?: LocatedEntity,
): Promise<(action: string) => boolean> {
  if (entity === undefined) return (action) => domain.can(action as Parameters<DomainAccess['can']>[0])
  const actions = await domain.actionsOn(entity)
  return (action) => actions.has(action)
}

/** Throws `forbidden` if the caller lacks one of the actions. The error names the first missing action. */
export function requireGrantable(holds: (action: string) => boolean, actions: readonly string[]): void {
  const missing = actions.find((action) => !holds(action))
  if (missing !== undefined)
    throw new ServiceError(
      'forbidden',
      `failed to perform authorization: you cannot grant ${missing} because you do not have it`,
    )
}
