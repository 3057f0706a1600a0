/** The granting rule: nobody gives what he does not hold himself (contract 2.4). */
import { ServiceError } from '#core/errors/index.ts'
import type { DomainAccess, LocatedEntity } from '../access/index.ts'
import type { RoleEntity } from './role.ts'

/** The entity as its roles see it; without one the domain itself. */
export function roleEntityOf(domain: DomainAccess, entity?: LocatedEntity): RoleEntity {
  const { domainKey, domainId } = domain
  return entity === undefined
    ? { type: 'domain', key: domainKey, id: domainId, domainKey, domainId }
    : { type: entity.type, key: entity.key, id: entity.id, domainKey, domainId }
}

/**
 * Whether the caller holds the action on the entity, or on the domain when there is none. Read once, so that it can be
 * asked inside a transaction about roles that are only known there.
 */
export async function heldBy(domain: DomainAccess, entity?: LocatedEntity): Promise<(action: string) => boolean> {
  if (entity === undefined) return (action) => domain.can(action as Parameters<DomainAccess['can']>[0])
  const actions = await domain.actionsOn(entity)
  return (action) => actions.has(action)
}

/** Throws `forbidden` naming the first action that the caller would give without holding it. */
export function requireMayGive(holds: (action: string) => boolean, actions: readonly string[]): void {
  const missing = actions.find((action) => !holds(action))
  if (missing !== undefined)
    throw new ServiceError(
      'forbidden',
      `failed to perform authorization: you can give only what you hold yourself, and ${missing} you do not`,
    )
}
