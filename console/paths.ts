/** Every address of the console, below its base. Rooms meet through this file alone. */

const inDomain = (domain: string, rest = '') => `/d/${encodeURIComponent(domain)}${rest}`
const tabOf = (tab?: string) => (tab === undefined || tab === '' ? '' : `/${tab}`)
const one = (domain: string, section: string, id: string, tab?: string) =>
  inDomain(domain, `/${section}/${encodeURIComponent(id)}${tabOf(tab)}`)

function queryOf(values: Record<string, string>): string {
  const search = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== ''))
  return search.size === 0 ? '' : `?${search.toString()}`
}

export const paths = {
  home: () => '/',
  signIn: () => '/sign-in',
  signUp: () => '/sign-up',
  recovery: () => '/recovery',
  account: () => '/account',
  notifications: () => '/account/notifications',
  notification: (id: string) => `/account/notifications/${encodeURIComponent(id)}`,
  platform: () => '/platform',
  users: () => '/platform/users',
  platformWorker: (id: string, tab?: string) => `/platform/workers/${encodeURIComponent(id)}${tabOf(tab)}`,
  /** Without a name, it leads to all guides. Without a domain, it leads outside of one. */
  guide: (domain: string, name = '') => `${domain === '' ? '' : inDomain(domain)}/guides${tabOf(name)}`,
  overview: (domain: string) => inDomain(domain),
  connectDevice: (domain: string) => inDomain(domain, '/connect'),
  clients: (domain: string) => inDomain(domain, '/clients'),
  client: (domain: string, id: string, tab?: string) => one(domain, 'clients', id, tab),
  command: (domain: string, client: string, id: string) =>
    `${one(domain, 'clients', client, 'commands')}${queryOf({ command: id })}`,
  channels: (domain: string) => inDomain(domain, '/channels'),
  channel: (domain: string, id: string, tab?: string) => one(domain, 'channels', id, tab),
  /** `series`: those that its charts show, as `formatChoice` writes them. */
  charts: (domain: string, channel: string, series: string) =>
    `${one(domain, 'channels', channel)}${queryOf({ series })}`,
  messages: (domain: string, channel: string, filters: Record<string, string> = {}) =>
    `${one(domain, 'channels', channel, 'messages')}${queryOf(filters)}`,
  alarms: (domain: string, filters: Record<string, string> = {}) => inDomain(domain, `/alarms${queryOf(filters)}`),
  alarm: (domain: string, id: string) => one(domain, 'alarms', id),
  maintenance: (domain: string) => inDomain(domain, '/alarms/maintenance'),
  rules: (domain: string) => inDomain(domain, '/rules'),
  rule: (domain: string, id: string) => one(domain, 'rules', id),
  consumers: (domain: string) => inDomain(domain, '/consumers'),
  consumer: (domain: string, id: string, tab?: string) => one(domain, 'consumers', id, tab),
  boards: (domain: string) => inDomain(domain, '/boards'),
  board: (domain: string, id: string) => one(domain, 'boards', id),
  groups: (domain: string) => inDomain(domain, '/groups'),
  group: (domain: string, id: string, tab?: string) => one(domain, 'groups', id, tab),
  connections: (domain: string) => inDomain(domain, '/connections'),
  tasks: (domain: string) => inDomain(domain, '/tasks'),
  task: (domain: string, id: string, tab?: string) => one(domain, 'tasks', id, tab),
  run: (domain: string, task: string, run: string) => one(domain, 'tasks', task, `runs/${encodeURIComponent(run)}`),
  runs: (domain: string, filters: Record<string, string> = {}) => inDomain(domain, `/runs${queryOf(filters)}`),
  workflows: (domain: string) => inDomain(domain, '/workflows'),
  workflow: (domain: string, id: string) => one(domain, 'workflows', id),
  modules: (domain: string) => inDomain(domain, '/modules'),
  /** With a task, it leads to its module, on the inputs of one of its runs. */
  tryModule: (domain: string, given: { task?: string; run?: string } = {}) => inDomain(domain, `/try${queryOf(given)}`),
  workers: (domain: string) => inDomain(domain, '/workers'),
  worker: (domain: string, id: string, tab?: string) => one(domain, 'workers', id, tab),
  provisioning: (domain: string) => inDomain(domain, '/provisioning'),
  profiles: (domain: string) => inDomain(domain, '/profiles'),
  certificates: (domain: string, filters: Record<string, string> = {}) =>
    inDomain(domain, `/certificates${queryOf(filters)}`),
  imports: (domain: string) => inDomain(domain, '/import'),
  members: (domain: string) => inDomain(domain, '/members'),
  access: (domain: string, question: { entity?: string; action?: string; subject?: string } = {}) =>
    inDomain(domain, `/access${queryOf(question)}`),
  journal: (domain: string) => inDomain(domain, '/journal'),
  settings: (domain: string) => inDomain(domain, '/settings'),
} as const
