/** Finds the group of a path for a caller. */
import type { Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { findProvidedAccess } from '../access/index.ts'
import type { AccessPolicy, DomainAccess, EffectiveAccess, UserPrincipal } from '../access/index.ts'
import type { GroupRecord } from './repository.ts'
import { findGroup, findGroupByKey } from './repository.ts'

/** Address of a group: its id, in one domain or in every domain that the caller has access to (decision 31b). */
export type Address = { domainId: string | undefined; id: string }

/** Throws `forbidden` for a domain without access and `not_found` for a group without `read` (decision 45). */
export async function findReadable(
  db: Queryable,
  access: AccessPolicy,
  caller: UserPrincipal,
  at: Address,
): Promise<{ domain: DomainAccess; group: GroupRecord }> {
  if (at.domainId === undefined) {
    const { domain, entity } = await access.locate(caller, undefined, 'group', at.id)
    const group = await findGroupByKey(db, entity.key)
    if (group === undefined) throw new ServiceError('not_found', 'entity not found')
    return { domain, group }
  }
  const domain = await access.enter(caller, at.domainId)
  const group = isId(at.id) ? await findGroup(db, domain.domainKey, at.id) : undefined
  return { domain, group: await domain.requireOn(group, 'read') }
}

/**
 * A record with the role by which the caller has access to it. Undefined for a platform administrator without a role.
 */
export type WithAccess<G> = G & { access: EffectiveAccess | undefined }

export async function withAccess<G extends GroupRecord>(
  db: Queryable,
  domains: readonly DomainAccess[],
  groups: readonly G[],
): Promise<WithAccess<G>[]> {
  const access = await findProvidedAccess(db, domains, 'group', groups)
  return groups.map((group) => ({ ...group, access: access.get(group.key) }))
}
