/**
 * The paths of roles: for each entity type with the domain in the path and without, in both spellings (contract 2.1,
 * decision 4).
 */
import type { RouteRefusal } from '#http/index.ts'
import { DEFAULT_LIMIT } from '#core/page.ts'
import type { Place } from '#core/cursor.ts'
import type { EntityType } from '../access/index.ts'
import type { Paging, RoleTarget } from './entity-access.ts'

export type RoleBase = {
  type: EntityType
  /** The path up to and including `/roles` or `/role`. */
  path: string
  /** The path begins with the domain, which selects the response format of current clients (decisions 6 to 8). */
  isPrefixed: boolean
  params: readonly string[]
}

export type PathParams = Readonly<Record<string, string>>

const WORDS = ['roles', 'role'] as const
const COLLECTIONS = { client: 'clients', channel: 'channels', group: 'groups' } as const
const ENTITIES = ['client', 'channel', 'group'] as const
const PREFIXES = ['/:domain_id', ''] as const

/** All endpoints of contract 2.2 exist below each of these paths. */
export const ROLE_BASES: readonly RoleBase[] = WORDS.flatMap((word) => [
  { type: 'domain', path: `/domains/:domain_id/${word}`, isPrefixed: false, params: ['domain_id'] },
  ...ENTITIES.flatMap((type) =>
    PREFIXES.map((prefix) => ({
      type,
      path: `${prefix}/${COLLECTIONS[type]}/:${type}_id/${word}`,
      isPrefixed: prefix !== '',
      params: [...(prefix === '' ? [] : ['domain_id']), `${type}_id`],
    })),
  ),
])

/** The response is the same for every entity of a type, so these paths contain no entity. */
export const AVAILABLE_ACTIONS_PATHS: readonly Pick<RoleBase, 'type' | 'path' | 'params'>[] = WORDS.flatMap((word) => [
  { type: 'domain', path: `/domains/${word}/available-actions`, params: [] },
  ...ENTITIES.flatMap((type) =>
    PREFIXES.map((prefix) => ({
      type,
      path: `${prefix}/${COLLECTIONS[type]}/${word}/available-actions`,
      params: prefix === '' ? [] : ['domain_id'],
    })),
  ),
])

/** Returns the entity in the path of a request. */
export function roleTargetOf(base: RoleBase, params: PathParams): RoleTarget {
  return {
    type: base.type,
    domainId: base.isPrefixed ? params['domain_id'] : undefined,
    id: params[`${base.type}_id`] ?? '',
  }
}

/** Returns the template of the Location header, for the OpenAPI document. */
export const locationTemplate = (base: RoleBase): string => `${base.path.replaceAll(/:([a-z_]+)/g, '{$1}')}/{role_id}`

/** Returns the Location header of a role of the entity in the path. */
export function locationOf(base: RoleBase, params: PathParams, roleId: string): string {
  const path = base.path.replaceAll(/:([a-z_]+)/g, (_, name: string) => encodeURIComponent(params[name] ?? ''))
  return `${path}/${roleId}`
}

export const paramsIn = ({ params }: { params: unknown }): PathParams => params as PathParams
export const roleIdIn = (request: { params: unknown }): string => paramsIn(request)['role_id'] ?? ''

type PageParameters = { offset?: number; limit?: number; cursor?: Place; with_metadata?: boolean }

/**
 * Returns the page of a request. Undefined means all rows: legacy paths without paging parameters (decision 6). Go clients send
 * `with_metadata` with every list, and read a page (decision 82).
 */
export function pagingOf(base: RoleBase, { offset, limit, cursor, with_metadata: marker }: PageParameters): Paging {
  const isPage = offset !== undefined || limit !== undefined || cursor !== undefined || marker !== undefined
  if (!base.isPrefixed && !isPage) return undefined
  return { offset: offset ?? 0, limit: limit ?? DEFAULT_LIMIT, cursor }
}

/**
 * Errors of all of these routes: an unknown domain or one without access (403), an unknown entity or role (404), an id
 * that exists in several domains (409).
 */
export const ROLE_ERRORS: readonly RouteRefusal[] = ['not_found', 'conflict', 'unprocessable']
export const ROLE_WRITE_ERRORS: readonly RouteRefusal[] = [...ROLE_ERRORS, 'invalid_state']
