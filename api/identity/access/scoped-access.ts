/**
 * Restricts a caller in a domain to the scopes of their personal access token. Every check of the policy passes through
 * it, so services do not handle scopes. The type `DomainAccess` lists each member, so that a new member cannot bypass
 * it.
 */
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { EntityType } from './actions.ts'
import type { DomainAccess } from './domain-access.ts'
import type { EntityFacts } from './effective-actions.ts'
import type { UserPrincipal } from './principal.ts'
import type { Requirement } from './scope-requirements.ts'
import { requirementOf, scopeTypeOf } from './scope-requirements.ts'
import type { ScopeSet } from './scopes.ts'

export function lacksScope({ type, operation }: Requirement): ServiceError {
  return new ServiceError(
    'forbidden',
    `failed to perform authorization: the personal access token lacks the scope ${type}:${operation}`,
  )
}

/** Returns the access of the principal to the domain. Undefined when no scope of the token covers anything in it. */
export function withinScope(principal: UserPrincipal, domain: DomainAccess): DomainAccess | undefined {
  const { scope } = principal
  if (scope === undefined) return domain
  return scope.reaches(domain.domainKey) ? scoped(domain, scope, principal.origin?.isReading !== false) : undefined
}

function scoped(domain: DomainAccess, scope: ScopeSet, isReading: boolean): DomainAccess {
  const { domainKey } = domain

  /**
   * True when the scopes cover the action on the entity. A requirement of another type must be covered for all entities
   * of that type.
   */
  function allows(entity: EntityFacts, action: string): boolean {
    const needed = requirementOf(entity.type, action)
    if (needed === undefined) return false
    const isAboutIt = needed.type === scopeTypeOf(entity.type) || needed.type === 'messages'
    return isAboutIt
      ? scope.covers(needed.type, needed.operation, domainKey, entity.key)
      : scope.coversAll(needed.type, needed.operation, domainKey)
  }

  /**
   * True when the token may know that the entity exists, which every other action requires. A request that changes
   * something does not also require a scope to read. A request that reads requires one, or a scope to list, which shows
   * the entity anyway.
   */
  function mayKnow({ type, key }: EntityFacts): boolean {
    const scopeType = scopeTypeOf(type)
    if (!isReading)
      return scope.knows(scopeType, domainKey, key) || (type === 'channel' && scope.knows('messages', domainKey, key))
    return scope.covers(scopeType, 'read', domainKey, key) || scope.covers(scopeType, 'list', domainKey, key)
  }

  /** True when the scopes cover the action in the domain: on the domain itself, or on all entities of a type in it. */
  function allowsInDomain(action: string): boolean {
    const needed = requirementOf('domain', action)
    if (needed === undefined) return false
    if (needed.type === 'domains') return scope.covers('domains', needed.operation, domainKey, domainKey)
    if (!scope.coversAll(needed.type, needed.operation, domainKey)) return false
    // This check decides whether a listing shows all entities, so it requires `list` too.
    return needed.operation !== 'read' || UNLISTED.has(needed.type) || scope.coversAll(needed.type, 'list', domainKey)
  }

  return {
    principal: domain.principal,
    domainKey,
    domainId: domain.domainId,
    // No action corresponds to the checks for administrators, so no scope can grant them.
    isAdmin: false,
    hasGroupRoles: domain.hasGroupRoles,
    can: (action) => domain.can(action) && allowsInDomain(action),
    require(action) {
      domain.require(action)
      if (!allowsInDomain(action)) throw lacksScope(requirementOf('domain', action) ?? NOTHING)
    },
    async actionsOn(entity) {
      const held = await domain.actionsOn(entity)
      const allowed = new Set([...held].filter((action) => allows(entity, action)))
      if (held.has('read')) {
        if (mayKnow(entity)) allowed.add('read')
        // Publishing to and subscribing on a channel do not require `read` on it.
        else if (!allowed.has('subscribe') && !allowed.has('publish')) throw lacksScope(readingOf(entity.type))
      }
      return allowed
    },
    permits: (entity, action) => domain.permits(entity, action) && allows(entity, action),
    async requireOn(entity, action) {
      const found = await domain.requireOn(entity, action)
      const isAllowed =
        action === 'read' && !isReading ? mayKnow(found) || allows(found, action) : allows(found, action)
      if (!isAllowed) throw lacksScope(requirementOf(found.type, action) ?? NOTHING)
      return found
    },
    reachable(type, action, alias, plan) {
      const inner = domain.reachable(type, action, alias, plan)
      const needed = requirementOf(type, action)
      if (needed === undefined) return NONE
      const keys = keysInScope(type, needed)
      return keys === 'all' ? inner : sql<boolean>`(${inner} AND ${sql.ref(`${alias}.key`)} = ANY (${keys}::bigint[]))`
    },
    accessible(type, action) {
      const inner = domain.accessible(type, action)
      const needed = requirementOf(type, action)
      if (needed === undefined) return inner.only([])
      const keys = keysInScope(type, needed)
      return keys === 'all' ? inner : inner.only(keys)
    },
    // The result is intersected with the entities of the caller, which the scopes restrict.
    accessibleTo: (userKey, type) => domain.accessibleTo(userKey, type),
  }

  /**
   * Reading rows requires `list`. A request that changes something first finds the rows that the owner may read, and
   * then requires the scope of the change.
   */
  function keysInScope(type: EntityFacts['type'], needed: Requirement): 'all' | readonly number[] {
    const isLooking = needed.operation === 'read' && needed.type === scopeTypeOf(type)
    if (isLooking && !isReading) return 'all'
    return scope.keysFor(needed.type, isLooking ? 'list' : needed.operation, domainKey)
  }
}

/** Types whose listings require `read` instead of `list`. */
const UNLISTED = new Set<string>(['tasks', 'workers', 'consumers', 'rules', 'alarms'])

const NONE = sql<boolean>`false`
const NOTHING: Requirement = { type: 'domains', operation: 'read' }

function readingOf(type: EntityType): Requirement {
  return { type: scopeTypeOf(type), operation: 'read' }
}
