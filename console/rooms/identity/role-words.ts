/** Roles and actions in words. */

/** The relations of the API. A role is made when a relation is given for the first time. */
export type Relation = 'administrator' | 'editor' | 'contributor' | 'viewer'

export type RoleRecord = { id: string; name: string; actions: string[]; members: string[] }

type ReadyRole = {
  readonly relation: Relation
  /** The name of its role in the API. */
  readonly role: string
  readonly title: string
  readonly what: string
}

export const READY_ROLES: readonly ReadyRole[] = [
  {
    relation: 'viewer',
    role: 'viewer',
    title: 'Viewer',
    what: 'Sees everything in the domain and its messages, and changes nothing.',
  },
  {
    relation: 'contributor',
    role: 'contributor',
    title: 'Operator',
    what: 'Sees, creates, changes and connects clients, channels and groups, and sends messages.',
  },
  {
    relation: 'editor',
    role: 'editor',
    title: 'Developer',
    what: 'Can do what an operator can, runs tasks, manages workers and changes the domain. Cannot delete or manage members.',
  },
  {
    relation: 'administrator',
    role: 'admin',
    title: 'Admin',
    what: 'Can do everything, including members, roles and deletion.',
  },
]

export const ADMIN_ROLE = 'admin'

export const titleOf = (role: string) => READY_ROLES.find((one) => one.role === role)?.title ?? role

/** A role that exists, or one that is made on first use. */
export type RoleChoice = { readonly relation: Relation } | { readonly role: RoleRecord }

export type RoleOption = {
  readonly key: string
  readonly title: string
  readonly what: string
  readonly choice: RoleChoice
}

export function roleOptions(roles: readonly RoleRecord[]): RoleOption[] {
  const ready = READY_ROLES.map(({ relation, role, title, what }): RoleOption => {
    const known = roles.find(({ name }) => name === role)
    return { key: known?.id ?? relation, title, what, choice: known === undefined ? { relation } : { role: known } }
  })
  const own = roles
    .filter(({ name }) => !READY_ROLES.some(({ role }) => role === name))
    .map((role): RoleOption => ({ key: role.id, title: role.name, what: 'A role of this domain.', choice: { role } }))
  return [...ready, ...own]
}

type Subject = { readonly prefix: string; readonly title: string; readonly noun: string }

/** The domain itself has no prefix, so it is the last. */
const SUBJECTS: readonly Subject[] = [
  { prefix: 'client_', title: 'Clients', noun: 'clients' },
  { prefix: 'channel_', title: 'Channels', noun: 'channels' },
  { prefix: 'group_', title: 'Groups', noun: 'groups' },
  { prefix: 'task_', title: 'Tasks', noun: 'tasks' },
  { prefix: 'worker_', title: 'Workers', noun: 'workers' },
  { prefix: 'profile_', title: 'Profiles', noun: 'profiles' },
  { prefix: 'consumer_', title: 'Consumers', noun: 'consumers' },
  { prefix: 'rule_', title: 'Rules', noun: 'rules' },
  { prefix: 'alarm_', title: 'Alarms', noun: 'alarms' },
  { prefix: '', title: 'The domain', noun: 'the domain' },
]

const SENTENCES: Readonly<Record<string, (noun: string) => string>> = {
  create: (noun) => `Create ${noun}`,
  read: (noun) => `See ${noun}`,
  update: (noun) => `Change ${noun}`,
  delete: (noun) => `Delete ${noun}`,
  enable: (noun) => `Enable ${noun}`,
  disable: (noun) => `Disable ${noun}`,
  manage: (noun) => `Add, drain and remove ${noun}`,
  start: (noun) => `Start and stop ${noun}`,
  secrets: (noun) => `Set the secrets of ${noun}`,
  command: (noun) => `Give commands to ${noun}`,
  state_read: (noun) => `See what ${noun} should be, and what they report`,
  state_update: (noun) => `Change what ${noun} should be`,
  set_parent_group: (noun) => `Put ${noun} into groups`,
  set_child: (noun) => `Put entities into ${noun}`,
  set_parent: (noun) => `Move ${noun} below other groups`,
  membership: (noun) => `List what belongs to ${noun}`,
  connect_to_channel: (noun) => `Connect ${noun} to channels`,
  connect_to_client: (noun) => `Connect ${noun} to clients`,
  publish: (noun) => `Send messages to ${noun}`,
  subscribe: (noun) => `Receive and read messages of ${noun}`,
  manage_role: (noun) => `Create, change and delete roles of ${noun}`,
  add_role_users: (noun) => `Give users a role of ${noun}`,
  remove_role_users: (noun) => `Take roles of ${noun} from users`,
  view_role_users: (noun) => `See who has roles of ${noun}`,
}

/** Actions of a group on the groups inside it. */
const BELOW = 'subgroup_'

const subjectOf = (action: string) => SUBJECTS.find(({ prefix }) => action.startsWith(prefix))

/** The sentence of an action; an unknown one is its own. */
export function sentenceOf(action: string): string {
  const subject = subjectOf(action)
  return SENTENCES[action.slice(subject?.prefix.length ?? 0)]?.(subject?.noun ?? '') ?? action
}

/** The sentence of an action on one entity, where an action without a prefix is about the entity itself. */
export function sentenceOn(type: 'domain' | 'group' | 'channel' | 'client', action: string): string {
  if (action.startsWith(BELOW)) {
    const below = action.slice(BELOW.length)
    return SENTENCES[below]?.('groups below it') ?? `${sentenceOf(below)} in groups below it`
  }
  const isOwn = SUBJECTS.every(({ prefix }) => prefix === '' || !action.startsWith(prefix))
  return (isOwn ? SENTENCES[action]?.(`the ${type}`) : undefined) ?? sentenceOf(action)
}

export function actionGroups(actions: readonly string[]): { title: string; actions: string[] }[] {
  return SUBJECTS.map((subject) => ({
    title: subject.title,
    actions: actions.filter((action) => subjectOf(action) === subject),
  })).filter((group) => group.actions.length > 0)
}
