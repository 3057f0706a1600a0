/** What a caller may do and reach in a domain. */
import type { Sql } from '#core/sql.ts'
import type { Accessible } from './accessible.ts'
import type { DomainAction } from './actions.ts'
import type { EntityFacts } from './holdings.ts'
import type { UserPrincipal } from './principal.ts'
import type { ReachPlan } from './reachable.ts'

/** A caller inside a domain that it may enter. */
export type DomainAccess = {
  readonly principal: UserPrincipal
  readonly domainKey: number
  readonly domainId: string
  /** The caller holds the built-in role `admin` of the domain, or administers the platform. */
  readonly isAdmin: boolean
  /** The caller has a role on a group of the domain. */
  readonly hasGroupRoles: boolean
  can(action: DomainAction): boolean
  /** Throws `forbidden`. */
  require(action: DomainAction): void
  /** Everything that the caller may do on the entity, by whatever path. */
  actionsOn(entity: EntityFacts): Promise<ReadonlySet<string>>
  /** Whether the token that the caller came with is good for the action on the entity. Their roles are another question. */
  permits(entity: EntityFacts, action: string): boolean
  /**
   * Returns the entity when the caller may do it; throws `not_found` when there is none or the caller may not read it,
   * `forbidden` when they may read it but not do this.
   */
  requireOn<E extends EntityFacts>(entity: E | undefined, action: string): Promise<E>
  /**
   * The condition "the caller may do `action` on this row" of a statement. `alias` is the table in it; where the rows are named by their
   * keys or ids, `row` is the better plan.
   */
  reachable(type: EntityFacts['type'], action: string, alias: string, plan?: ReachPlan): Sql<boolean>
  /** All entities of the type on which the caller may do `action`. */
  accessible(type: EntityFacts['type'], action: string): Accessible
  /** All that another user may read, whatever the caller may; undefined for a user who is no member. */
  accessibleTo(userKey: number, type: EntityFacts['type']): Promise<Accessible | undefined>
}
