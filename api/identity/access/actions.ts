/** Every action by name (contract section 2.3). The lists are closed: a role cannot contain other actions. */
import { refusedField } from '#core/errors/index.ts'
import { newerWord, olderWord } from '#older/index.ts'

const ROLE_ACTIONS = ['manage_role', 'add_role_users', 'remove_role_users', 'view_role_users'] as const

export const CLIENT_ACTIONS = [
  'update',
  'read',
  'delete',
  'set_parent_group',
  'connect_to_channel',
  'command',
  'state_read',
  'state_update',
  ...ROLE_ACTIONS,
] as const

export const CHANNEL_ACTIONS = [
  'update',
  'read',
  'delete',
  'set_parent_group',
  'connect_to_client',
  'publish',
  'subscribe',
  ...ROLE_ACTIONS,
] as const

const GROUP_OWN_ACTIONS = [
  'update',
  'read',
  'membership',
  'delete',
  'set_child',
  'set_parent',
  ...ROLE_ACTIONS,
] as const

/** Actions on a domain for tasks and workers (task-manager section 1). */
export const TASK_ACTIONS = [
  'task_create',
  'task_read',
  'task_update',
  'task_delete',
  'task_start',
  'task_secrets',
  'worker_read',
  'worker_manage',
] as const

/** Actions on a domain for profiles of bootstrap configurations (decision 78). */
export const PROFILE_ACTIONS = ['profile_create', 'profile_read', 'profile_update', 'profile_delete'] as const

/** Actions on a domain for named consumers of messages (decision 100). */
export const CONSUMER_ACTIONS = ['consumer_create', 'consumer_read', 'consumer_update', 'consumer_delete'] as const

type Prefixed<P extends string, A extends readonly string[]> = { [K in keyof A]: `${P}_${A[K] & string}` }

function prefixed<const P extends string, const A extends readonly string[]>(prefix: P, actions: A): Prefixed<P, A> {
  return actions.map((action) => `${prefix}_${action}`) as unknown as Prefixed<P, A>
}

const GROUP_ACTIONS_ON_DOMAIN = prefixed('group', GROUP_OWN_ACTIONS)

export const DOMAIN_ACTIONS = [
  'update',
  'enable',
  'disable',
  'read',
  'delete',
  ...ROLE_ACTIONS,
  'client_create',
  'channel_create',
  'group_create',
  ...prefixed('client', CLIENT_ACTIONS),
  ...prefixed('channel', CHANNEL_ACTIONS),
  ...GROUP_ACTIONS_ON_DOMAIN,
  ...TASK_ACTIONS,
  ...PROFILE_ACTIONS,
  ...CONSUMER_ACTIONS,
] as const

export const GROUP_ACTIONS = [
  ...GROUP_OWN_ACTIONS,
  'client_create',
  'channel_create',
  'subgroup_create',
  'subgroup_client_create',
  'subgroup_channel_create',
  ...prefixed('client', CLIENT_ACTIONS),
  ...prefixed('channel', CHANNEL_ACTIONS),
  ...prefixed('subgroup', GROUP_OWN_ACTIONS),
  ...prefixed('subgroup_client', CLIENT_ACTIONS),
  ...prefixed('subgroup_channel', CHANNEL_ACTIONS),
] as const

export type DomainAction = (typeof DOMAIN_ACTIONS)[number]
export type ClientAction = (typeof CLIENT_ACTIONS)[number]
export type ChannelAction = (typeof CHANNEL_ACTIONS)[number]
export type GroupAction = (typeof GROUP_ACTIONS)[number]

export const ENTITY_TYPES = ['domain', 'group', 'channel', 'client'] as const
export type EntityType = (typeof ENTITY_TYPES)[number]

/** The actions of each entity type. The built-in role `admin` contains all of them. */
export const ACTIONS = {
  domain: DOMAIN_ACTIONS,
  group: GROUP_ACTIONS,
  channel: CHANNEL_ACTIONS,
  client: CLIENT_ACTIONS,
} as const satisfies Record<EntityType, readonly string[]>

/** The actions of each entity type that roles on its domain and its groups can also grant. */
export const OWN_ACTIONS = {
  group: GROUP_OWN_ACTIONS,
  channel: CHANNEL_ACTIONS,
  client: CLIENT_ACTIONS,
} as const satisfies Record<Exclude<EntityType, 'domain'>, readonly string[]>

/** Connection types with their wire names, and the bits that are stored. */
export const CONNECTION_BITS = { publish: 1, subscribe: 2 } as const
export type ConnectionType = keyof typeof CONNECTION_BITS
export const CONNECTION_TYPES = ['publish', 'subscribe'] as const satisfies readonly ConnectionType[]

const PLACE = 'api/identity/access/actions.ts'

/** Returns the newer name of an action for its newer or older name (decision 24). */
export const actionNamed = (name: string): string => newerWord(PLACE, name)

/** Parses a connection type in any case, by its newer or older name. Undefined for any other text (contract 4.2). */
export function parseConnectionType(text: string): ConnectionType | undefined {
  const named = actionNamed(text.toLowerCase())
  return CONNECTION_TYPES.find((type) => type === named)
}

/** Converts the stored bits to the older names of the types. */
export const presentConnectionActions = (bits: number): string[] =>
  CONNECTION_TYPES.filter((type) => (bits & CONNECTION_BITS[type]) !== 0).map((type) => olderWord(PLACE, type))

/** Parses a comma-separated list of actions of the type, as in listing queries. Throws `malformed`. */
export function parseActions(type: EntityType, list: string | undefined): string[] {
  const actions = (list ?? '')
    .split(',')
    .map((action) => actionNamed(action.trim()))
    .filter((action) => action !== '')
  const known = new Set<string>(ACTIONS[type])
  const unknown = actions.find((action) => !known.has(action))
  if (unknown === undefined) return actions
  throw refusedField('actions', `${unknown} is not an action of a ${type}: use ${ACTIONS[type].join(', ')}`)
}
