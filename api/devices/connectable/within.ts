/** Listings of what belongs to one client, channel, group or user (contract 4.3). */
import type { AccessPolicy, UserPrincipal } from '#api/identity/index.ts'
import type { ConnectableType } from './record.ts'
import type { Address } from './service.ts'

export type Within<T extends ConnectableType | 'group' | 'user'> = Address & { type: T }

/**
 * The domain to list in, and the filter that narrows the listing. What a user reaches spans every domain where the path
 * names none. Throws `not_found` for what the caller may not read, `conflict` for an id that exists in several domains.
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
