/** Where and by whom a client or channel may be created (contract 2.4, decision 31). */
import type { AccessPolicy, DomainAccess, UserPrincipal } from '#api/identity/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { ConnectableType } from './record.ts'

/**
 * The domain of the path; without one that of the token, else the only domain that the caller reaches. Throws `malformed`
 * naming the scoped path when there is no such one, `forbidden` when it is not open to him.
 */
export async function enterForCreation(
  access: AccessPolicy,
  caller: UserPrincipal,
  domainId: string | undefined,
  path: 'clients' | 'channels' | 'mapping',
): Promise<DomainAccess> {
  if (domainId !== undefined) return await access.enter(caller, domainId)
  const [only, ...more] = await access.enterAll(caller).catch((error: unknown) => {
    // More domains than one listing spans are several as well.
    if (kindOf(error) === 'unprocessable') return []
    throw error
  })
  if (only !== undefined && more.length === 0) return only
  if (caller.boundDomainKey !== undefined)
    throw new ServiceError('forbidden', 'failed to perform authorization: not permitted in this domain')
  throw new ServiceError('malformed', `which domain is not clear: name it in the path, POST /<domain_id>/${path}`)
}

/** Throws `forbidden` without the action in the domain, unless every input names a parent, which may give it too. */
export function requireCreation(
  domain: DomainAccess,
  type: ConnectableType,
  inputs: readonly { parent_group_id?: string }[],
): void {
  if (inputs.some((input) => parentIdOf(input) === null)) domain.require(`${type}_create`)
}

/** Older clients send every field, empty where there is nothing. */
export function parentIdOf(input: { parent_group_id?: string }): string | null {
  return input.parent_group_id === undefined || input.parent_group_id === '' ? null : input.parent_group_id
}
