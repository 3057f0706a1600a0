/** Authorization of creating a client or channel (contract 2.4, decision 31). */
import type { DomainAccess } from '#api/identity/index.ts'
import type { ConnectableType } from './record.ts'

/**
 * Throws `forbidden` without the action in the domain, unless every input names a parent group: a role on the group can
 * grant it too.
 */
export function requireCreation(
  domain: DomainAccess,
  type: ConnectableType,
  inputs: readonly { parent_group_id?: string }[],
): void {
  if (inputs.some((input) => input.parent_group_id === undefined)) domain.require(`${type}_create`)
}
