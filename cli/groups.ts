/** The command groups by name; each is loaded when it is needed, so that `skein --help` loads none. */
import type { GroupEntry } from './shared/command.ts'

export const GROUPS: readonly GroupEntry[] = [
  {
    name: 'login',
    summary: 'log in and keep the tokens',
    section: 'Start',
    load: async () => (await import('./commands/login.ts')).login,
  },
  {
    name: 'logout',
    summary: 'end the session and forget its tokens',
    section: 'Start',
    load: async () => (await import('./commands/login.ts')).logout,
  },
  {
    name: 'context',
    summary: 'installations to work with, and the domain in use',
    section: 'Start',
    load: async () => (await import('./commands/context.ts')).context,
  },
  {
    name: 'up',
    summary: 'start everything on this machine, as npm start does',
    section: 'Start',
    load: async () => (await import('./commands/up.ts')).up,
  },
  {
    name: 'doctor',
    summary: 'check an installation and say what is wrong',
    section: 'Start',
    load: async () => (await import('./commands/doctor.ts')).doctor,
  },
  {
    name: 'users',
    summary: 'accounts, passwords and tokens',
    section: 'Platform',
    load: async () => (await import('./commands/users.ts')).users,
  },
  {
    name: 'domains',
    summary: 'tenants and their members',
    section: 'Platform',
    load: async () => (await import('./commands/domains.ts')).domains,
  },
  {
    name: 'clients',
    aliases: ['things'],
    summary: 'devices and applications',
    section: 'Platform',
    load: async () => (await import('./commands/clients.ts')).clients,
  },
  {
    name: 'channels',
    summary: 'where messages go',
    section: 'Platform',
    load: async () => (await import('./commands/channels.ts')).channels,
  },
  {
    name: 'groups',
    summary: 'hierarchy of clients and channels',
    section: 'Platform',
    load: async () => (await import('./commands/groups.ts')).groups,
  },
  {
    name: 'invitations',
    summary: 'invite users to a domain',
    section: 'Platform',
    load: async () => (await import('./commands/invitations.ts')).invitations,
  },
  {
    name: 'messages',
    summary: 'send, read and follow measurements',
    section: 'Platform',
    load: async () => (await import('./commands/messages.ts')).messages,
  },
  {
    name: 'provision',
    summary: 'many entities from files, or one device in one call',
    section: 'Platform',
    load: async () => (await import('./commands/provision.ts')).provision,
  },
  {
    name: 'bootstrap',
    summary: 'configurations that devices fetch',
    section: 'Platform',
    load: async () => (await import('./commands/bootstrap.ts')).bootstrap,
  },
  {
    name: 'profiles',
    summary: 'templates of what devices fetch',
    section: 'Platform',
    load: async () => (await import('./commands/profiles.ts')).profiles,
  },
  {
    name: 'certs',
    summary: 'certificates of clients',
    section: 'Platform',
    load: async () => (await import('./commands/certs.ts')).certs,
  },
  {
    name: 'subscription',
    aliases: ['subscriptions'],
    summary: 'notifications about messages',
    section: 'Platform',
    load: async () => (await import('./commands/subscription.ts')).subscription,
  },
  {
    name: 'journal',
    summary: 'who changed what and when',
    section: 'Platform',
    load: async () => (await import('./commands/journal.ts')).journal,
  },
  {
    name: 'events',
    summary: 'follow changes as they happen',
    section: 'Platform',
    load: async () => (await import('./commands/events.ts')).events,
  },
  {
    name: 'keys',
    summary: 'API keys',
    section: 'Platform',
    load: async () => (await import('./commands/keys.ts')).keys,
  },
  {
    name: 'pats',
    summary: 'personal access tokens and their scopes',
    section: 'Platform',
    load: async () => (await import('./commands/pats.ts')).pats,
  },
  {
    name: 'tasks',
    summary: 'WebAssembly tasks',
    section: 'Tasks',
    load: async () => (await import('./commands/tasks.ts')).tasks,
  },
  {
    name: 'runs',
    summary: 'each time a task ran',
    section: 'Tasks',
    load: async () => (await import('./commands/runs.ts')).runs,
  },
  {
    name: 'workers',
    summary: 'nodes that run tasks',
    section: 'Tasks',
    load: async () => (await import('./commands/workers.ts')).workers,
  },
  {
    name: 'workflows',
    summary: 'tasks that depend on each other',
    section: 'Tasks',
    load: async () => (await import('./commands/workflows.ts')).workflows,
  },
  {
    name: 'modules',
    summary: 'modules in registries and caches',
    section: 'Tasks',
    load: async () => (await import('./commands/modules.ts')).modules,
  },
  {
    name: 'health',
    summary: 'health record of a service',
    section: 'This program',
    load: async () => (await import('./commands/health.ts')).health,
  },
  {
    name: 'config',
    summary: 'keep a setting in the configuration file',
    section: 'This program',
    load: async () => (await import('./commands/config.ts')).config,
  },
  {
    name: 'token',
    summary: 'print the access token of the login',
    section: 'This program',
    load: async () => (await import('./commands/login.ts')).token,
  },
  {
    name: 'api',
    summary: 'any other request',
    section: 'This program',
    load: async () => (await import('./commands/api.ts')).api,
  },
  {
    name: 'completion',
    summary: 'completion for bash, zsh or fish',
    section: 'This program',
    load: async () => (await import('./commands/completion.ts')).completionOf(GROUPS),
  },
]

export function findGroup(name: string): GroupEntry | undefined {
  return GROUPS.find((group) => group.name === name || group.aliases?.includes(name))
}
