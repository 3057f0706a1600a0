/** Finds the guide that explains a screen. */

/** The guides by the section of an address, behind `/d/<domain>/`. */
const OF_SECTIONS: Readonly<Record<string, string>> = {
  '': 'console',
  connect: 'devices',
  clients: 'devices',
  channels: 'publish-and-read',
  boards: 'console',
  alarms: 'rules',
  rules: 'rules',
  groups: 'groups',
  connections: 'devices',
  consumers: 'consumers',
  import: 'bulk-files',
  tasks: 'tasks',
  runs: 'tasks',
  workflows: 'tasks',
  modules: 'modules',
  try: 'write-a-module',
  workers: 'join-a-worker',
  provisioning: 'provisioning',
  profiles: 'bootstrap',
  certificates: 'certificates',
  members: 'roles-and-access',
  access: 'roles-and-access',
  journal: 'journal-and-events',
  settings: 'tenants',
}
/** The guides of tabs, by the section and the name of the tab. */
const OF_TABS: Readonly<Record<string, string>> = {
  'clients/state': 'device-state',
  'clients/commands': 'commands',
}
/** The guides of screens outside of a domain. */
const OF_OTHERS: Readonly<Record<string, string>> = {
  '': 'tenants',
  account: 'accounts-and-mail',
  'account/notifications': 'notifications',
  platform: 'monitor',
  'platform/users': 'accounts-and-mail',
}

export const GUIDES: readonly string[] = [
  ...new Set([OF_SECTIONS, OF_TABS, OF_OTHERS].flatMap((guides) => Object.values(guides))),
]

/** Returns the guide of a screen; a screen without one of its own has that of the console. `path`: below the base of the console. */
export function guideOf(path: string): string {
  const parts = path.split('/').filter((part) => part !== '')
  // /d/<domain>/<section>/<id>/<tab>
  if (parts[0] === 'd') return OF_TABS[`${parts[2]}/${parts[4]}`] ?? OF_SECTIONS[parts[2] ?? ''] ?? 'console'
  return OF_OTHERS[parts.slice(0, 2).join('/')] ?? OF_OTHERS[parts[0] ?? ''] ?? 'console'
}
