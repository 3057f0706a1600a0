/**
 * What the credential itself forbids on a route, whoever its user is: a hook after the request is known to be well formed
 * (decision 45: 400 comes before 403) and before its handler. Rights inside a domain are asked of the policy.
 */
import { ServiceError } from '#core/errors/index.ts'
import { isId } from '#core/ids.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { ACTIONS, TASK_ACTIONS } from './actions.ts'
import type { UserPrincipal } from './principal.ts'
import { OUTSIDE_ACTIONS, requirementOf } from './scope-requirements.ts'
import type { OutsideRule, Requirement } from './scope-requirements.ts'
import { lacksScope } from './scoped-access.ts'
import type { ScopeSet } from './scopes.ts'

const GRANTED_ACTIONS = new Set<string>(Object.values(ACTIONS).flat())
/** Domain actions by which listings are asked for; a single entity is asked for with `read`. */
const LISTINGS = new Set(['client_read', 'channel_read', 'group_read'])
/** Calls that go through every domain where none is named, and would answer as if there were nothing. */
const OVER_DOMAINS = new Set<string>([...LISTINGS, ...TASK_ACTIONS])

function refuse(reason: string): ServiceError {
  return new ServiceError('forbidden', `failed to perform authorization: ${reason}`)
}

/** A call as its route names it. */
export type RouteCall = {
  principal: UserPrincipal
  action: string
  /** The user whom the path names. */
  userId: string | undefined
}

/** Throws `forbidden`. A route whose action is unknown here is for plain logins alone. */
export function requireRouteAllowed(call: RouteCall): void {
  const { principal, action } = call
  const isPlainLogin = principal.credential === 'login' && principal.boundDomainKey === undefined
  if (isPlainLogin) return
  const rule = Object.hasOwn(OUTSIDE_ACTIONS, action) ? OUTSIDE_ACTIONS[action] : undefined
  const isGranted = GRANTED_ACTIONS.has(action)
  if (rule === undefined && !isGranted) throw refuse('log in without a domain to do this')
  if (rule !== undefined) requireOutside(call, rule)
  else if (principal.scope !== undefined && OVER_DOMAINS.has(action)) requireSomewhere(principal.scope, action)
}

function requireOutside({ principal, userId }: RouteCall, rule: OutsideRule): void {
  if (principal.boundDomainKey !== undefined && rule.bound === 'refused')
    throw refuse('this token works in its domain alone')
  if (rule.loginOnly === true && principal.credential !== 'login')
    throw refuse('this needs a login, not a key or token')
  const { scope } = principal
  if (scope === undefined) return
  const { pat } = rule
  if (pat === 'never' || (rule.readingOnly === true && principal.origin?.isReading === false))
    throw refuse('this needs a login, not a personal access token')
  if (!coversOutside(scope, pat, rule.forAll === true, userId ?? principal.id)) throw lacksScope(pat)
}

/** A scope on one user is for the routes of that user; a list shows what the scopes name, so one is enough. */
function coversOutside(scope: ScopeSet, { type, operation }: Requirement, isForAll: boolean, userId: string): boolean {
  if (operation === 'list' && !isForAll) return scope.coversSome(type, operation)
  if (type !== 'users' || isForAll || operation === 'create') return scope.coversAll(type, operation, undefined)
  return isId(userId) && scope.coversUser(operation, userId)
}

function requireSomewhere(scope: ScopeSet, action: string): void {
  const asked = requirementOf('domain', action)
  if (asked === undefined) return
  const needed: Requirement = LISTINGS.has(action) ? { type: asked.type, operation: 'list' } : asked
  if (!scope.coversSome(needed.type, needed.operation)) throw lacksScope(needed)
}

/**
 * The condition of a listing outside a domain: the users or domains that a personal access token may list; `column` holds
 * their keys. Nothing for any other credential.
 */
export function listedBy(principal: UserPrincipal, type: 'users' | 'domains', column: string): Sql<boolean>[] {
  const keys = principal.scope === undefined ? 'all' : principal.scope.keysFor(type, 'list', undefined)
  return keys === 'all' ? [] : [sql<boolean>`${sql.ref(column)} = ANY (${keys}::bigint[])`]
}
