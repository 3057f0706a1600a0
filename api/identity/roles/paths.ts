/** Where roles live: each entity type, its paths with and without the domain, and both spellings (contract 2.1, decision 4). */
import type { ErrorKind } from '#core/errors/index.ts'
import { DEFAULT_LIMIT } from '#core/page.ts'
import type { EntityType } from '../access/index.ts'
import type { Paging, RoleTarget } from './place.ts'

export type RoleBase = {
  type: EntityType
  /** Up to and with `/roles` or `/role`. */
  path: string
  /** The domain stands before the entity: the answers of the newer clients (decisions 6 to 8). */
  isPrefixed: boolean
  params: readonly string[]
}

export type PathParams = Readonly<Record<string, string>>

const WORDS = ['roles', 'role'] as const
const COLLECTIONS = { client: 'clients', channel: 'channels', group: 'groups' } as const
const ENTITIES = ['client', 'channel', 'group'] as const
const PREFIXES = ['/:domain_id', ''] as const

/** Below each of them all endpoints of contract 2.2 are served. */
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

/** The same for every entity of a type, so these paths name none. */
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

/** The entity that a request's path names. */
export function targetOf(base: RoleBase, params: PathParams): RoleTarget {
  return {
    type: base.type,
    domainId: base.isPrefixed ? params['domain_id'] : undefined,
    id: params[`${base.type}_id`] ?? '',
  }
}

/** Where the roles of a base are found, for the document. */
export const locationForm = (base: RoleBase): string => `${base.path.replaceAll(/:([a-z_]+)/g, '{$1}')}/{role_id}`

/** Where a role of the entity that the path names is found. */
export function locationOf(base: RoleBase, params: PathParams, roleId: string): string {
  const path = base.path.replaceAll(/:([a-z_]+)/g, (_, name: string) => encodeURIComponent(params[name] ?? ''))
  return `${path}/${roleId}`
}

export const paramsIn = ({ params }: { params: unknown }): PathParams => params as PathParams
export const roleIdIn = (request: { params: unknown }): string => paramsIn(request)['role_id'] ?? ''

/** A page where the path always gives one or the query asks for one; else everything (decision 6). */
export function pagingOf(base: RoleBase, { offset, limit }: { offset?: number; limit?: number }): Paging {
  if (!base.isPrefixed && offset === undefined && limit === undefined) return undefined
  return { offset: offset ?? 0, limit: limit ?? DEFAULT_LIMIT }
}

/** Any of these routes: no such domain or not open (403), no such entity or role (404), an id that several domains know (409). */
export const REFUSALS: readonly ErrorKind[] = ['unauthenticated', 'forbidden', 'not_found', 'conflict', 'unprocessable']
export const WRITING: readonly ErrorKind[] = [...REFUSALS, 'invalid_state', 'unsupported_media_type', 'too_large']
