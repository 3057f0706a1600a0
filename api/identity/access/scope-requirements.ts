/**
 * Maps actions (contract 2.3) to the required scope of a personal access token: an operation on an entity type
 * (contract section 6). Personal access tokens cannot perform actions that are not in the mapping.
 */
import type {
  CONSUMER_ACTIONS,
  ChannelAction,
  ClientAction,
  EntityType,
  OWN_ACTIONS,
  PROFILE_ACTIONS,
  TASK_ACTIONS,
} from './actions.ts'
import type { ScopeEntityType, ScopeOperation } from './scopes.ts'

export type Requirement = { readonly type: ScopeEntityType; readonly operation: ScopeOperation }

type OwnAction = ClientAction | ChannelAction | (typeof OWN_ACTIONS)['group'][number] | 'enable' | 'disable'

/**
 * Maps an action on an entity to the operation of the required scope. Managing roles grants access to others, so it is
 * sharing.
 */
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
  command: 'update',
  state_read: 'read',
  state_update: 'update',
  view_role_users: 'read',
  manage_role: 'share',
  add_role_users: 'share',
  remove_role_users: 'unshare',
  // On a channel, these two require a scope of the type `messages`.
  publish: 'publish',
  subscribe: 'subscribe',
} as const satisfies Record<OwnAction, ScopeOperation>

const TYPE_OF_ENTITY = {
  client: 'clients',
  channel: 'channels',
  group: 'groups',
  domain: 'domains',
} as const satisfies Record<EntityType, ScopeEntityType>

/** Prefixes of domain and group actions, with the entity type that they refer to; the longest prefix first. */
const PREFIXES = [
  ['subgroup_client_', 'client'],
  ['subgroup_channel_', 'channel'],
  ['subgroup_', 'group'],
  ['client_', 'client'],
  ['channel_', 'channel'],
  ['group_', 'group'],
] as const satisfies readonly (readonly [string, EntityType])[]

/** Domain actions that refer to neither clients, channels nor groups. */
const DOMAIN_REQUIREMENTS = new Map<string, Requirement>(
  Object.entries({
    task_create: { type: 'tasks', operation: 'create' },
    task_read: { type: 'tasks', operation: 'read' },
    task_update: { type: 'tasks', operation: 'update' },
    task_start: { type: 'tasks', operation: 'update' },
    task_secrets: { type: 'tasks', operation: 'update' },
    task_delete: { type: 'tasks', operation: 'delete' },
    worker_read: { type: 'workers', operation: 'read' },
    worker_manage: { type: 'workers', operation: 'update' },
    // A profile determines the configuration of clients, so it requires a scope on all clients.
    profile_create: { type: 'clients', operation: 'create' },
    profile_read: { type: 'clients', operation: 'read' },
    profile_update: { type: 'clients', operation: 'update' },
    profile_delete: { type: 'clients', operation: 'delete' },
    consumer_create: { type: 'consumers', operation: 'create' },
    consumer_read: { type: 'consumers', operation: 'read' },
    consumer_update: { type: 'consumers', operation: 'update' },
    consumer_delete: { type: 'consumers', operation: 'delete' },
  } satisfies Record<
    (typeof TASK_ACTIONS)[number] | (typeof PROFILE_ACTIONS)[number] | (typeof CONSUMER_ACTIONS)[number],
    Requirement
  >),
)
const OPERATIONS = new Map<string, ScopeOperation>(Object.entries(OPERATION_OF_ACTION))

function requirementOfOwn(entity: EntityType, action: string): Requirement | undefined {
  const operation = OPERATIONS.get(action)
  if (operation === undefined) return undefined
  const isMessage = operation === 'publish' || operation === 'subscribe'
  return { type: isMessage ? 'messages' : TYPE_OF_ENTITY[entity], operation }
}

/** Returns the scope that the action on an entity of this type requires. Undefined when no scope permits it. */
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

/** Returns the scope type of an entity type. */
export function scopeTypeOf(entity: EntityType): ScopeEntityType {
  return TYPE_OF_ENTITY[entity]
}

/** Requirements of an action that no role grants: it concerns the caller or the whole platform. */
export type OutsideRule = {
  /** The required scope of a personal access token. 'never' accepts none. */
  readonly pat: Requirement | 'never'
  /** Personal access tokens are accepted only for methods that change nothing. */
  readonly readingOnly?: true
  /** The scope must cover all entities, because the response is not restricted to some. */
  readonly forAll?: true
  /** API keys are rejected too: the action creates or revokes credentials. */
  readonly loginOnly?: true
  /** Whether a token that is bound to a domain is accepted (decision 40). */
  readonly bound: 'allowed' | 'refused'
}

/** Every action that no role grants, by the action name of its routes. */
export const OUTSIDE_ACTIONS: Readonly<Record<string, OutsideRule>> = {
  'user.self': { pat: { type: 'users', operation: 'read' }, readingOnly: true, bound: 'allowed' },
  'user.view': { pat: { type: 'users', operation: 'read' }, bound: 'allowed' },
  'user.list': { pat: { type: 'users', operation: 'list' }, bound: 'allowed' },
  'user.search': { pat: { type: 'users', operation: 'list' }, forAll: true, bound: 'allowed' },
  'user.create': { pat: { type: 'users', operation: 'create' }, bound: 'allowed' },
  'user.delete': { pat: { type: 'users', operation: 'delete' }, bound: 'allowed' },
  // Access to the mailbox is access to the account, and a platform administrator has every permission.
  'user.update_login': { pat: 'never', bound: 'allowed' },
  'user.update_role': { pat: 'never', bound: 'allowed' },
  // These responses span all domains and cannot be restricted to scopes.
  'user.memberships': { pat: 'never', bound: 'allowed' },
  'user.journal': { pat: 'never', bound: 'allowed' },
  'user.domains': { pat: { type: 'users', operation: 'read' }, bound: 'allowed' },
  'user.update': { pat: { type: 'users', operation: 'update' }, bound: 'allowed' },
  'platform.diagnose': { pat: 'never', bound: 'refused' },
  'platform.overview': { pat: 'never', bound: 'refused' },
  'platform.journal': { pat: 'never', bound: 'refused' },
  'domain.create': { pat: { type: 'domains', operation: 'create' }, bound: 'refused' },
  'domain.list': { pat: { type: 'domains', operation: 'list' }, bound: 'allowed' },
  'domain.freeze': { pat: 'never', bound: 'refused' },
  'quota.manage': { pat: 'never', bound: 'refused' },
  // Invitations, including the user's own answers, determine the members of a domain. They require a login.
  'invitation.list': { pat: 'never', bound: 'allowed' },
  'invitation.view': { pat: 'never', bound: 'allowed' },
  'invitation.answer': { pat: 'never', bound: 'refused' },
  'invitation.delete': { pat: 'never', bound: 'allowed' },
  // A token that may create credentials has all of their permissions, so a token with fewer permissions than a login is
  // rejected.
  'session.manage': { pat: 'never', loginOnly: true, bound: 'refused' },
  // A subscription remains active without the credential that created it.
  'subscription.manage': { pat: 'never', bound: 'allowed' },
  'key.manage': { pat: 'never', loginOnly: true, bound: 'allowed' },
  'pat.manage': { pat: 'never', loginOnly: true, bound: 'refused' },
  'signing_key.rotate': { pat: 'never', loginOnly: true, bound: 'refused' },
}
