/** The entities that users are assigned to, and their paths with a domain and without (contract 4.3, decision 31b). */
import type { EntityType } from '../access/index.ts'
import type { RoleTarget } from '../roles/index.ts'

export type AssignableEntity = {
  type: EntityType
  /** The path of the entity itself. */
  path: string
  params: readonly string[]
  /** Path segments after the path of the entity. Clients are shared, users are assigned to all other entities. */
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

export const ASSIGNABLE_DOMAIN: AssignableEntity = {
  type: 'domain',
  path: '/domains/:domain_id',
  params: ['domain_id'],
  ...ASSIGNED,
}

export const ASSIGNABLE_ENTITIES: readonly AssignableEntity[] = [
  ASSIGNABLE_DOMAIN,
  ...ENTITIES.flatMap(({ type, ...words }) =>
    ['/:domain_id', ''].map((prefix) => ({
      type,
      path: `${prefix}/${type}s/:${type}_id`,
      params: [...(prefix === '' ? [] : ['domain_id']), `${type}_id`],
      ...words,
    })),
  ),
]

/** Returns the entity in the path of a request. */
export function targetOf(
  { type }: Pick<AssignableEntity, 'type'>,
  params: Readonly<Record<string, string>>,
): RoleTarget {
  const id = params[`${type}_id`] ?? ''
  return { type, id, domainId: type === 'domain' ? id : params['domain_id'] }
}
