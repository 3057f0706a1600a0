/**
 * The scopes of a personal access token that a route needs, from the action and the path of the route. A route from which none follows, and
 * which names none, refuses every token with scopes. The access policy checks which entities the scopes cover.
 */
import { DOMAIN_ACTIONS, OWN_ACTIONS } from './actions.ts'
import type { EntityType } from './actions.ts'
import { requirementOf } from './scope-requirements.ts'
import type { Requirement } from './scope-requirements.ts'

/** `filtered`: the answer contains only what the scopes of the token list, and the policy decides about each part. */
export type RouteScope = Requirement | 'filtered'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The scope that a personal access token needs, if it does not follow from the action and the path. */
    scope?: RouteScope
  }
}

export type ScopedRoute = { url: string; action: string; scope?: RouteScope | undefined }

type Own = Exclude<EntityType, 'domain'>

const OWN_TYPES = ['channel', 'client', 'group'] as const satisfies readonly Own[]
const TYPE_OF_PARAMETER: Readonly<Record<string, Own>> = {
  ':client_id': 'client',
  ':channel_id': 'channel',
  ':group_id': 'group',
}
const DOMAIN_PATH = /^\/domains\/:domain_id(?:\/|$)/

/** Domain actions of listings. A single entity requires `read`. */
const LISTINGS: ReadonlySet<string> = new Set(['client_read', 'channel_read', 'group_read'])

const isAction = (actions: readonly string[], action: string) => actions.includes(action)

/** One of these is needed; undefined refuses every token with scopes. */
export function requiredScopes({ url, action, scope }: ScopedRoute): readonly Requirement[] | 'filtered' | undefined {
  if (scope !== undefined) return scope === 'filtered' ? scope : [scope]
  const entity = entityOf(url, action)
  const needed = entity === undefined ? undefined : requirementOf(entity, action)
  if (needed === undefined) return undefined
  const listing: Requirement = { type: needed.type, operation: 'list' }
  // Without this scope a listing would be empty, which looks as if there were no entities.
  if (LISTINGS.has(action)) return [listing]
  // A scope to list shows the entity anyway; see `scoped-access.ts`.
  return needed.operation === 'read' && entity !== 'domain' ? [needed, listing] : [needed]
}

/** The type of the entity on which the action of the route is. */
function entityOf(url: string, action: string): EntityType | undefined {
  const inPath = url.split('/').flatMap((segment) => TYPE_OF_PARAMETER[segment] ?? [])
  const own = inPath.toReversed().find((type) => isAction(OWN_ACTIONS[type], action))
  if (own !== undefined) return own
  if (isAction(DOMAIN_ACTIONS, action)) {
    // Every member may read the domain, so reading it says nothing about what else a path below it answers.
    return action === 'read' && !DOMAIN_PATH.test(url) ? undefined : 'domain'
  }
  return OWN_TYPES.find((type) => isAction(OWN_ACTIONS[type], action))
}
