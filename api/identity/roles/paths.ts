/** Where roles live: each entity type, its paths with and without the domain, and both spellings (contract 2.1, decision 4). */
import type { EntityType } from '../access/index.ts'
import type { RoleTarget } from './service.ts'

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
