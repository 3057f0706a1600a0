/**
 * Which scope of a personal access token a call needs: the mapping from actions (contract 2.3) to operations on entity
 * types (contract section 6), in one place. What is not in it, no such token may do.
 */
import type { ChannelAction, ClientAction, EntityType, OWN_ACTIONS, PROFILE_ACTIONS, TASK_ACTIONS } from './actions.ts'
import type { ScopeEntityType, ScopeOperation } from './scopes.ts'

export type Requirement = { readonly type: ScopeEntityType; readonly operation: ScopeOperation }

type OwnAction = ClientAction | ChannelAction | (typeof OWN_ACTIONS)['group'][number] | 'enable' | 'disable'

/** What an action on one entity asks of a scope on it. Whoever manages roles decides who else gets in: that is sharing. */
export const OPERATION_OF_ACTION = {
  read: 'read',
  update: 'update',
  enable: 'update',
  disable: 'update',
  delete: 'delete',
  membership: 'read',
  set_parent_group: 'update',
  set_parent: 'update',
  set_child: 'update',
  connect_to_channel: 'update',
  connect_to_client: 'update',
  view_role_users: 'read',
  manage_role: 'share',
  add_role_users: 'share',
  remove_role_users: 'unshare',
  // On a channel, these two are asked of the type `messages`.
  publish: 'publish',
  subscribe: 'subscribe',
} as const satisfies Record<OwnAction, ScopeOperation>

const TYPE_OF_ENTITY = {
  client: 'clients',
  channel: 'channels',
  group: 'groups',
  domain: 'domains',
} as const satisfies Record<EntityType, ScopeEntityType>

/** Actions of a domain or group about what is in it: prefix and the entity that is meant, the longest prefix first. */
const PREFIXES = [
  ['subgroup_client_', 'client'],
  ['subgroup_channel_', 'channel'],
  ['subgroup_', 'group'],
  ['client_', 'client'],
  ['channel_', 'channel'],
  ['group_', 'group'],
] as const satisfies readonly (readonly [string, EntityType])[]

/** Actions of a domain about what is neither a client, a channel nor a group. */
const DOMAIN_REQUIREMENTS = new Map<string, Requirement>(
  Object.entries({
    task_create: { type: 'tasks', operation: 'create' },
    task_read: { type: 'tasks', operation: 'read' },
    task_update: { type: 'tasks', operation: 'update' },
    task_start: { type: 'tasks', operation: 'update' },
    task_delete: { type: 'tasks', operation: 'delete' },
    worker_read: { type: 'workers', operation: 'read' },
    worker_manage: { type: 'workers', operation: 'update' },
    // A profile decides what clients are given: it is asked of the scopes on all of them.
    profile_create: { type: 'clients', operation: 'create' },
    profile_read: { type: 'clients', operation: 'read' },
    profile_update: { type: 'clients', operation: 'update' },
    profile_delete: { type: 'clients', operation: 'delete' },
  } satisfies Record<(typeof TASK_ACTIONS)[number] | (typeof PROFILE_ACTIONS)[number], Requirement>),
)
const OPERATIONS = new Map<string, ScopeOperation>(Object.entries(OPERATION_OF_ACTION))

function requirementOfOwn(entity: EntityType, action: string): Requirement | undefined {
  const operation = OPERATIONS.get(action)
  if (operation === undefined) return undefined
  const isMessage = operation === 'publish' || operation === 'subscribe'
  return { type: isMessage ? 'messages' : TYPE_OF_ENTITY[entity], operation }
}

/** What the action, asked of an entity of this type, needs; undefined: nothing gives it. */
export function requirementOf(entity: EntityType, action: string): Requirement | undefined {
  const ofDomain = entity === 'domain' ? DOMAIN_REQUIREMENTS.get(action) : undefined
  if (ofDomain !== undefined) return ofDomain
  if (entity === 'domain' || entity === 'group') {
    for (const [prefix, meant] of PREFIXES) {
      if (!action.startsWith(prefix)) continue
      const rest = action.slice(prefix.length)
      return rest === 'create' ? { type: TYPE_OF_ENTITY[meant], operation: 'create' } : requirementOfOwn(meant, rest)
    }
  }
  return requirementOfOwn(entity, action)
}

/** The type of scope that is about entities of this type themselves. */
export function scopeTypeOf(entity: EntityType): ScopeEntityType {
  return TYPE_OF_ENTITY[entity]
}

/** What a call asks of a credential when no role grants it: it is about the caller, or about everything. */
export type OutsideRule = {
  /** What a personal access token needs; 'never': none may. */
  readonly pat: Requirement | 'never'
  /** Only while nothing is changed; the other methods of the same action are for no such token. */
  readonly readingOnly?: true
  /** The scope must be for any entity: what is answered is not narrowed to some. */
  readonly forAll?: true
  /** Neither an API key may do it: it makes or ends credentials. */
  readonly loginOnly?: true
  /** A token that is bound to a domain works in that domain alone (decision 40). */
  readonly bound: 'allowed' | 'refused'
}

/** Every action that no role grants, by the name that routes give. */
export const OUTSIDE_ACTIONS: Readonly<Record<string, OutsideRule>> = {
  'user.self': { pat: { type: 'users', operation: 'read' }, readingOnly: true, bound: 'allowed' },
  'user.view': { pat: { type: 'users', operation: 'read' }, bound: 'allowed' },
  'user.list': { pat: { type: 'users', operation: 'list' }, bound: 'allowed' },
  'user.search': { pat: { type: 'users', operation: 'list' }, forAll: true, bound: 'allowed' },
  'user.create': { pat: { type: 'users', operation: 'create' }, bound: 'allowed' },
  'user.delete': { pat: { type: 'users', operation: 'delete' }, bound: 'allowed' },
  // Whoever has the mailbox has the account, and whoever administers the platform has everything.
  'user.update_login': { pat: 'never', bound: 'allowed' },
  'user.update_role': { pat: 'never', bound: 'allowed' },
  // What is told here goes through all domains and is narrowed to no scope.
  'user.memberships': { pat: 'never', bound: 'allowed' },
  'user.journal': { pat: 'never', bound: 'allowed' },
  'user.domains': { pat: { type: 'users', operation: 'read' }, bound: 'allowed' },
  'user.update': { pat: { type: 'users', operation: 'update' }, bound: 'allowed' },
  'domain.create': { pat: { type: 'domains', operation: 'create' }, bound: 'refused' },
  'domain.list': { pat: { type: 'domains', operation: 'list' }, bound: 'allowed' },
  'domain.freeze': { pat: 'never', bound: 'refused' },
  // Invitations decide who belongs to a domain, one's own answer included: that is for logins.
  'invitation.list': { pat: 'never', bound: 'allowed' },
  'invitation.view': { pat: 'never', bound: 'allowed' },
  'invitation.answer': { pat: 'never', bound: 'refused' },
  'invitation.delete': { pat: 'never', bound: 'allowed' },
  // Whoever may make credentials may do everything that they may: no token that is less than a login.
  'session.manage': { pat: 'never', loginOnly: true, bound: 'refused' },
  // What is subscribed goes on without the credential that subscribed it.
  'subscription.manage': { pat: 'never', bound: 'allowed' },
  'key.manage': { pat: 'never', loginOnly: true, bound: 'allowed' },
  'pat.manage': { pat: 'never', loginOnly: true, bound: 'refused' },
  'signing_key.rotate': { pat: 'never', loginOnly: true, bound: 'refused' },
}
