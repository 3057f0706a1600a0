/** Checks that the rules about users share: whether the user exists, and whether the caller may change them. */
import type { Queryable } from '#core/database/index.ts'
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import type { AccessPolicy, UserPrincipal } from '../access/index.ts'
import type { UserRecord } from './repository.ts'
import { findUser } from './repository.ts'

export const NOT_FOUND = 'entity not found'

/** Throws `not_found`, also for an invalid id and for a deleted user. */
export async function getUser(db: Queryable, id: string): Promise<UserRecord> {
  const user = isId(id) ? await findUser(db, id) : undefined
  if (user === undefined) throw new ServiceError('not_found', NOT_FOUND)
  return user
}

/** True for a platform administrator whose token is not bound to a domain (decision 40). */
export function isUnscopedAdmin(caller: UserPrincipal): boolean {
  return caller.isPlatformAdmin && caller.boundDomainKey === undefined
}

/**
 * Throws `forbidden` for a token that is bound to a domain: its holder must not be able to take over the account by
 * changing its email (decision 40).
 */
export function requireUnscopedToken(caller: UserPrincipal): void {
  if (caller.boundDomainKey !== undefined)
    throw new ServiceError(
      'forbidden',
      'failed to perform authorization: a token that is bound to a domain cannot change accounts',
    )
}

/**
 * Throws `forbidden` unless the caller is the user or a platform administrator. The owner of a user can only enable and
 * disable them (decision 51).
 */
export function requireSelfOrAdmin(access: AccessPolicy, caller: UserPrincipal, user: UserRecord): void {
  if (caller.id === user.id) requireUnscopedToken(caller)
  else access.requirePlatformAdmin(caller)
}

/** Throws `malformed`. */
export function requirePassword(pattern: RegExp, password: string, path: string): void {
  if (pattern.test(password)) return
  throw refusedField(path, 'is too weak: use at least 8 characters, or a password that matches SKEIN_PASSWORD_PATTERN')
}
