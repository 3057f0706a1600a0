/** Listings of the entities of one client, channel, group or user (contract 4.3). */
import type { AccessPolicy, UserPrincipal } from '#api/identity/index.ts'
import type { ConnectableType } from './record.ts'
import type { Address } from './service.ts'

export type Within<T extends ConnectableType | 'group' | 'user'> = Address & { type: T }

/**
 * Returns the domain to list in and the filter that selects the entities. A listing of a user without a domain in the
 * path spans every domain. Throws `not_found` without `read` on the entity, `conflict` for an id that exists in several
 * domains.
 */
export async function enterWithin<T extends ConnectableType | 'group' | 'user'>(
  access: AccessPolicy,
  caller: UserPrincipal,
  { type, domainId, id }: Within<T>,
): Promise<{ domainId: string | undefined; filter: { [K in T]?: string } }> {
  const filter = { [type]: id } as { [K in T]?: string }
  if (type === 'user') return { domainId, filter }
  const { domain } = await access.locate(caller, domainId, type, id)
  return { domainId: domain.domainId, filter }
}
