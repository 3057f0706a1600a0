/**
 * How much of a user somebody sees: one rule for a record and for every listing, and for what a listing is filtered by, so
 * that a filter tells nothing of a field that is not shown (contract section 5).
 */
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import type { UserPrincipal } from '../access/index.ts'
import type { UserRecord } from './repository.ts'
import { isWholeAdmin } from './rules.ts'
import { presentStranger, presentUser } from './schema.ts'
import type { User } from './schema.ts'

/** The whole record for the user, his owner and the platform administrator; id, names and username for anybody else. */
export function presentTo(caller: UserPrincipal, user: UserRecord): User {
  const seesAll = isWholeAdmin(caller) || caller.id === user.id || user.createdBy === caller.id
  return seesAll ? presentUser(user) : presentStranger(user)
}

/** The same as a condition on the table `u`. */
export function isSeenWhole(caller: UserPrincipal): Sql<boolean> {
  if (isWholeAdmin(caller)) return sql<boolean>`true`
  return sql<boolean>`(u.key = ${caller.key} OR u.created_by = ${caller.id})`
}
