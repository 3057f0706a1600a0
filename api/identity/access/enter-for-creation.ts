/** The domain in which an entity is created when the path names none (contract 2.4, decision 31). */
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { DomainAccess } from './domain-access.ts'
import type { AccessPolicy } from './policy.ts'
import type { UserPrincipal } from './principal.ts'

/**
 * Returns the domain of the path. Without one it returns the domain of the token, or the only domain that the caller
 * has access to. Throws `malformed` with the scoped path when the caller has access to none or several, `forbidden`
 * when the caller may not enter the domain of the path or of the token.
 */
export async function enterForCreation(
  access: AccessPolicy,
  caller: UserPrincipal,
  domainId: string | undefined,
  path: 'clients' | 'channels' | 'groups' | 'mapping',
): Promise<DomainAccess> {
  if (domainId !== undefined) return await access.enter(caller, domainId)
  const [only, ...more] = await access.enterAll(caller).catch((error: unknown) => {
    // The caller has access to more domains than one listing spans, so the domain is ambiguous.
    if (kindOf(error) === 'unprocessable') return []
    throw error
  })
  if (only !== undefined && more.length === 0) return only
  if (caller.boundDomainKey !== undefined)
    throw new ServiceError(
      'forbidden',
      'failed to perform authorization: the domain of the token is disabled or deleted, or you are not a member',
    )
  throw new ServiceError('malformed', `the request requires a domain: use POST /<domain_id>/${path}`)
}
