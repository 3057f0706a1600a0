/**
 * A caller in a domain who came with a personal access token: all that its owner may do, of that what its scopes say. Every
 * question of the policy passes here, so no service has to think of tokens. The type names each member, so that a new one
 * cannot pass unasked.
 */
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import type { EntityType } from './actions.ts'
import type { DomainAccess } from './domain-access.ts'
import type { EntityFacts } from './holdings.ts'
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

/** The domain as the principal may use it; undefined where its token reaches nothing in it. */
export function withinScope(principal: UserPrincipal, domain: DomainAccess): DomainAccess | undefined {
  const { scope } = principal
  if (scope === undefined) return domain
  return scope.reaches(domain.domainKey) ? scoped(domain, scope, principal.origin?.isReading !== false) : undefined
}

function scoped(domain: DomainAccess, scope: ScopeSet, isReading: boolean): DomainAccess {
  const { domainKey } = domain

  /** The operation on the entity itself, or on all of what the requirement is about when that is something else. */
  function allows(entity: EntityFacts, action: string): boolean {
    const needed = requirementOf(entity.type, action)
    if (needed === undefined) return false
    const isAboutIt = needed.type === scopeTypeOf(entity.type) || needed.type === 'messages'
    return isAboutIt
      ? scope.covers(needed.type, needed.operation, domainKey, entity.key)
      : scope.coversAll(needed.type, needed.operation, domainKey)
  }

  /**
   * Whether the token may know that the entity is there, which every other action asks first. A call that changes something
   * needs no scope to read beside the one to change; one that reads needs it, or a list that shows the entity anyway.
   */
  function mayKnow({ type, key }: EntityFacts): boolean {
    const scopeType = scopeTypeOf(type)
    if (!isReading)
      return scope.knows(scopeType, domainKey, key) || (type === 'channel' && scope.knows('messages', domainKey, key))
    return scope.covers(scopeType, 'read', domainKey, key) || scope.covers(scopeType, 'list', domainKey, key)
  }

  /** In the domain: the domain itself, or everything of a type in it. */
  function allowsInDomain(action: string): boolean {
    const needed = requirementOf('domain', action)
    if (needed === undefined) return false
    if (needed.type === 'domains') return scope.covers('domains', needed.operation, domainKey, domainKey)
    if (!scope.coversAll(needed.type, needed.operation, domainKey)) return false
    // "May read all of them" lets a listing show all of them.
    return needed.operation !== 'read' || UNLISTED.has(needed.type) || scope.coversAll(needed.type, 'list', domainKey)
  }

  return {
    principal: domain.principal,
    domainKey,
    domainId: domain.domainId,
    // What is for administrators alone is asked by no action, so no scope can say it.
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
        // Whoever may send to a channel or receive from it need not be able to look at it.
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
    // Beside what the caller is shown, which is within the scopes.
    accessibleTo: (userKey, type) => domain.accessibleTo(userKey, type),
  }

  /** Rows to read are listed. A call that changes something finds what its owner may read, and asks for more than that. */
  function keysInScope(type: EntityFacts['type'], needed: Requirement): 'all' | readonly number[] {
    const isLooking = needed.operation === 'read' && needed.type === scopeTypeOf(type)
    if (isLooking && !isReading) return 'all'
    return scope.keysFor(needed.type, isLooking ? 'list' : needed.operation, domainKey)
  }
}

/** Types whose listings ask for `read`. */
const UNLISTED = new Set<string>(['tasks', 'workers'])

const NONE = sql<boolean>`false`
const NOTHING: Requirement = { type: 'domains', operation: 'read' }

function readingOf(type: EntityType): Requirement {
  return { type: scopeTypeOf(type), operation: 'read' }
}
