/**
 * Visible fields of a user. Records, listings and filters use the same rule, so that a filter does not reveal a hidden
 * field (contract section 5).
 */
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { UserPrincipal } from '../access/index.ts'
import type { UserRecord } from './repository.ts'
import { isUnscopedAdmin } from './rules.ts'
import { presentOwned, presentPublic, presentUser } from './schema.ts'
import type { User } from './schema.ts'

/**
 * Presents the whole record to the user and platform administrators, the same without the private metadata to the owner of the user, and id,
 * names and username to other callers.
 */
export function presentTo(caller: UserPrincipal, user: UserRecord): User {
  if (isUnscopedAdmin(caller) || caller.id === user.id) return presentUser(user)
  return user.createdBy === caller.id ? presentOwned(user) : presentPublic(user)
}

/** Condition on the table `u`: the caller may see the whole record. */
export function isSeenWhole(caller: UserPrincipal): Sql<boolean> {
  if (isUnscopedAdmin(caller)) return sql<boolean>`true`
  return sql<boolean>`(u.key = ${caller.key} OR u.created_by = ${caller.id})`
}
