/** The permissions of a caller in a domain. */
import type { Sql } from '#core/sql.ts'
import type { Accessible } from './accessible.ts'
import type { DomainAction } from './actions.ts'
import type { EntityFacts } from './effective-actions.ts'
import type { UserPrincipal } from './principal.ts'
import type { GrantsPlan } from './reachable.ts'

/** A caller in a domain that they may enter. */
export type DomainAccess = {
  readonly principal: UserPrincipal
  readonly domainKey: number
  readonly domainId: string
  /** The caller has the built-in role `admin` of the domain, or is a platform administrator. */
  readonly isAdmin: boolean
  /** The caller has a role on a group of the domain. */
  readonly hasGroupRoles: boolean
  can(action: DomainAction): boolean
  /** Throws `forbidden`. */
  require(action: DomainAction): void
  /** Returns every action that the caller may perform on the entity, from any role. */
  actionsOn(entity: EntityFacts): Promise<ReadonlySet<string>>
  /** True when the token of the caller permits the action on the entity. The roles of the caller are not checked. */
  permits(entity: EntityFacts, action: string): boolean
  /**
   * Returns the entity when the caller may perform the action. Throws `not_found` when the entity is undefined or the
   * caller has no `read` on it, `forbidden` when the caller has `read` but not the action.
   */
  requireOn<E extends EntityFacts>(entity: E | undefined, action: string): Promise<E>
  /**
   * Condition: the caller may perform `action` on a row of the table `alias`. The plan `row` is better for statements
   * that select rows by their keys or ids.
   */
  reachable(type: EntityFacts['type'], action: string, alias: string, plan?: GrantsPlan): Sql<boolean>
  /** Returns the entities of the type on which the caller may perform `action`. */
  accessible(type: EntityFacts['type'], action: string): Accessible
  /**
   * Returns the entities that another user may read, independent of the caller. Undefined for a user who is not a
   * member.
   */
  accessibleTo(userKey: number, type: EntityFacts['type']): Promise<Accessible | undefined>
}
