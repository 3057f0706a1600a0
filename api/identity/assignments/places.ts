/** What users are assigned to, and its paths with the domain and without it (contract 4.3, decision 31b). */
import type { EntityType } from '../access/index.ts'
import type { RoleTarget } from '../roles/index.ts'

export type Place = {
  type: EntityType
  /** The path of the entity itself. */
  path: string
  params: readonly string[]
  /** Clients are shared, everything else has users assigned; the path after the entity's own. */
  assign: string
  unassign: string
}

const ASSIGNED = { assign: 'users/assign', unassign: 'users/unassign' } as const
const SHARED = { assign: 'share', unassign: 'unshare' } as const
const ENTITIES = [
  { type: 'group', ...ASSIGNED },
  { type: 'channel', ...ASSIGNED },
  { type: 'client', ...SHARED },
] as const

export const DOMAIN_PLACE: Place = { type: 'domain', path: '/domains/:domain_id', params: ['domain_id'], ...ASSIGNED }

export const PLACES: readonly Place[] = [
  DOMAIN_PLACE,
  ...ENTITIES.flatMap(({ type, ...words }) =>
    ['/:domain_id', ''].map((prefix) => ({
      type,
      path: `${prefix}/${type}s/:${type}_id`,
      params: [...(prefix === '' ? [] : ['domain_id']), `${type}_id`],
      ...words,
    })),
  ),
]

/** The entity that the path of a request names. */
export function targetOf({ type }: Pick<Place, 'type'>, params: Readonly<Record<string, string>>): RoleTarget {
  const id = params[`${type}_id`] ?? ''
  return { type, id, domainId: type === 'domain' ? id : params['domain_id'] }
}
