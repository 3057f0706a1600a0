/** What every rule about users asks first: whether there is such a user, and whether the caller may change him. */
import type { Queryable } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { AccessPolicy, UserPrincipal } from '../access/index.ts'
import type { UserRecord } from './repository.ts'
import { findUser } from './repository.ts'

export const NOT_FOUND = 'entity not found'

/** Throws `not_found`, also for what is no id and for a deleted user. */
export async function getUser(db: Queryable, id: string): Promise<UserRecord> {
  const user = isId(id) ? await findUser(db, id) : undefined
  if (user === undefined) throw new ServiceError('not_found', NOT_FOUND)
  return user
}

/** Administers the platform, and calls with a token that is good for all of it (decision 40). */
export function isWholeAdmin(caller: UserPrincipal): boolean {
  return caller.isPlatformAdmin && caller.boundDomainKey === undefined
}

/**
 * Throws `forbidden` for a token that is bound to a domain: whoever holds one must not get hold of the account by way of
 * its email (decision 40).
 */
export function requireWholeToken(caller: UserPrincipal): void {
  if (caller.boundDomainKey !== undefined)
    throw new ServiceError(
      'forbidden',
      'failed to perform authorization: a token that is bound to a domain changes no account',
    )
}

/** Throws `forbidden`. The owner of a user is neither: he enables and disables, no more (decision 51). */
export function requireSelfOrAdmin(access: AccessPolicy, caller: UserPrincipal, user: UserRecord): void {
  if (caller.id === user.id) requireWholeToken(caller)
  else access.requirePlatformAdmin(caller)
}

/** Throws `malformed`. */
export function requirePassword(pattern: RegExp, password: string, path: string): void {
  if (pattern.test(password)) return
  throw refusedField(path, 'is too weak: at least 8 characters, or what SKEIN_PASSWORD_PATTERN asks for')
}
