/** The navigation of a domain. `g` and the key of a link lead there. */
import type { IconName } from '../design/icon.tsx'
import { paths } from '../paths.ts'

export type NavigationLink = {
  readonly name: string
  readonly icon: IconName
  readonly key: string
  readonly to: (domain: string) => string
  readonly isExact?: boolean
  /** It shows the number of open alarms. */
  readonly hasOpenAlarms?: boolean
}

export const SECTIONS: readonly { readonly name: string; readonly links: readonly NavigationLink[] }[] = [
  { name: '', links: [{ name: 'Overview', icon: 'overview', key: 'o', to: paths.overview, isExact: true }] },
  {
    name: 'Messaging',
    links: [
      { name: 'Channels', icon: 'channel', key: 'h', to: paths.channels },
      { name: 'Consumers', icon: 'consumer', key: 'q', to: paths.consumers },
      { name: 'Alarms', icon: 'alarm', key: 'l', to: (domain) => paths.alarms(domain), hasOpenAlarms: true },
      { name: 'Rules', icon: 'rule', key: 'y', to: paths.rules },
      { name: 'Boards', icon: 'dashboard', key: 'b', to: paths.boards },
      { name: 'Clients', icon: 'client', key: 'c', to: paths.clients },
      { name: 'Connections', icon: 'connection', key: 'n', to: paths.connections },
      { name: 'Groups', icon: 'group', key: 'g', to: paths.groups },
    ],
  },
  {
    name: 'Compute',
    links: [
      { name: 'Tasks', icon: 'task', key: 't', to: paths.tasks },
      { name: 'Runs', icon: 'run', key: 'r', to: (domain) => paths.runs(domain) },
      { name: 'Workflows', icon: 'workflow', key: 'f', to: paths.workflows },
      { name: 'Modules', icon: 'module', key: 'u', to: paths.modules },
      { name: 'Workers', icon: 'worker', key: 'w', to: paths.workers },
    ],
  },
  {
    name: 'Fleet',
    links: [
      { name: 'Provisioning', icon: 'provisioning', key: 'p', to: paths.provisioning },
      { name: 'Profiles', icon: 'file', key: 'i', to: paths.profiles },
      { name: 'Certificates', icon: 'certificate', key: 'e', to: (domain) => paths.certificates(domain) },
    ],
  },
  {
    name: 'Governance',
    links: [
      { name: 'Members and roles', icon: 'members', key: 'm', to: paths.members },
      { name: 'Access', icon: 'access', key: 'a', to: (domain) => paths.access(domain) },
      { name: 'Journal', icon: 'journal', key: 'j', to: paths.journal },
      { name: 'Settings', icon: 'settings', key: 's', to: paths.settings },
    ],
  },
]
