/**
 * Restrictions of credentials on routes, independent of the roles of their user. The hook runs after validation of the
 * request, since 400 has precedence over 403 (decision 45), and before the handler. The access policy checks
 * permissions inside a domain.
 */
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { ACTIONS } from './actions.ts'
import type { UserPrincipal } from './principal.ts'
import { requiredScopes } from './route-scopes.ts'
import type { ScopedRoute } from './route-scopes.ts'
import { OUTSIDE_ACTIONS } from './scope-requirements.ts'
import type { OutsideRule, Requirement } from './scope-requirements.ts'
import { lacksScope } from './scoped-access.ts'
import type { ScopeSet } from './scopes.ts'

const GRANTED_ACTIONS = new Set<string>(Object.values(ACTIONS).flat())

function refuse(reason: string): ServiceError {
  return new ServiceError('forbidden', `failed to perform authorization: ${reason}`)
}

/** A request with its route. */
export type RouteCall = {
  principal: UserPrincipal
  route: ScopedRoute
  /** The user id of the path. */
  userId: string | undefined
}

/** Throws `forbidden`. A route with an unknown action accepts only logins that are not bound to a domain. */
export function requireRouteAllowed(call: RouteCall): void {
  const { principal, route } = call
  const { action } = route
  const isPlainLogin = principal.credential === 'login' && principal.boundDomainKey === undefined
  if (isPlainLogin) return
  const rule = Object.hasOwn(OUTSIDE_ACTIONS, action) ? OUTSIDE_ACTIONS[action] : undefined
  const isGranted = GRANTED_ACTIONS.has(action)
  if (rule === undefined && !isGranted) throw refuse('requires a login that is not bound to a domain')
  if (rule !== undefined) requireOutside(call, rule)
  else if (principal.scope !== undefined) requireScope(principal.scope, route)
}

function requireOutside({ principal, userId }: RouteCall, rule: OutsideRule): void {
  if (principal.boundDomainKey !== undefined && rule.bound === 'refused')
    throw refuse('this token is valid only in its domain')
  if (rule.loginOnly === true && principal.credential !== 'login') throw refuse('requires a login, not a key or token')
  const { scope } = principal
  if (scope === undefined) return
  const { pat } = rule
  if (pat === 'never' || (rule.readingOnly === true && principal.origin?.isReading === false))
    throw refuse('requires a login, not a personal access token')
  if (!coversOutside(scope, pat, rule.forAll === true, userId ?? principal.id)) throw lacksScope(pat)
}

/**
 * A scope on one user covers the routes of that user. A list is restricted to the scopes, so one scope is sufficient.
 */
function coversOutside(scope: ScopeSet, { type, operation }: Requirement, isForAll: boolean, userId: string): boolean {
  if (operation === 'list' && !isForAll) return scope.coversSome(type, operation)
  if (type !== 'users' || isForAll || operation === 'create') return scope.coversAll(type, operation, undefined)
  return isId(userId) && scope.coversUser(operation, userId)
}

/** Throws `forbidden` unless the token has a scope that the route needs, in whatever domain. */
function requireScope(scope: ScopeSet, route: ScopedRoute): void {
  const needed = requiredScopes(route)
  if (needed === 'filtered') return
  const [first] = needed ?? []
  if (needed === undefined || first === undefined)
    throw refuse('no scope of a personal access token covers this call: requires a login or an API key')
  if (!needed.some(({ type, operation }) => scope.coversSome(type, operation))) throw lacksScope(first)
}

/**
 * Condition of a listing outside a domain: the users or domains that a personal access token may list. `column`
 * contains their keys. Empty for other credentials.
 */
export function listedBy(principal: UserPrincipal, type: 'users' | 'domains', column: string): Sql<boolean>[] {
  const keys = principal.scope === undefined ? 'all' : principal.scope.keysFor(type, 'list', undefined)
  return keys === 'all' ? [] : [sql<boolean>`${sql.ref(column)} = ANY (${keys}::bigint[])`]
}
