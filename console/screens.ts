/** The screens by address, without their code: a screen is loaded when it is opened. */
import type { ComponentType } from 'react'
import { matchOf } from './match.ts'
import type { Match } from './match.ts'
import { firstReadings } from './rooms/messages/charts/first-readings.ts'

/** `$name` in the path is any one part of an address. */
export type Screen = {
  readonly path: string
  readonly load: () => Promise<ComponentType>
  readonly first?: First | undefined
}

/** What the first picture of a screen needs, if it is the first screen. */
type First = {
  /** Code that the screen itself asks for. */
  readonly code: () => Promise<unknown>
  /** Paths of the API below its base. */
  readonly asks: (parts: { domain: string; id: string }, search: URLSearchParams) => readonly string[]
}

/** The parts of a file, by their names. */
type Parts<K extends string> = { [name in K]: ComponentType }

const screen = <K extends string>(path: string, load: () => Promise<Parts<K>>, name: K, first?: First): Screen => ({
  path,
  load: async () => (await load())[name],
  first,
})

export const SCREENS: readonly Screen[] = [
  screen('/', () => import('./rooms/identity/domains.tsx'), 'Domains'),
  screen('/account', () => import('./rooms/identity/account.tsx'), 'Account'),
  screen('/account/notifications', () => import('./rooms/provisioning/notifications.tsx'), 'Notifications'),
  screen('/account/notifications/$id', () => import('./rooms/provisioning/notifications.tsx'), 'Notification'),
  screen('/platform', () => import('./rooms/manager/platform.tsx'), 'Platform'),
  screen('/platform/users', () => import('./rooms/identity/users.tsx'), 'Users'),
  screen('/platform/workers/$id', () => import('./rooms/manager/worker.tsx'), 'WorkerScreen'),
  screen('/platform/workers/$id/$tab', () => import('./rooms/manager/worker.tsx'), 'WorkerScreen'),
  screen('/guides', () => import('./rooms/guides/guide.tsx'), 'Guide'),
  screen('/guides/$guide', () => import('./rooms/guides/guide.tsx'), 'Guide'),
  screen('/d/$domain/guides', () => import('./rooms/guides/guide.tsx'), 'Guide'),
  screen('/d/$domain/guides/$guide', () => import('./rooms/guides/guide.tsx'), 'Guide'),
  screen('/d/$domain', () => import('./rooms/overview/overview.tsx'), 'Overview'),
  screen('/d/$domain/connect', () => import('./rooms/devices/first-device.tsx'), 'FirstDevice'),
  screen('/d/$domain/clients', () => import('./rooms/devices/clients.tsx'), 'Clients'),
  screen('/d/$domain/clients/$id', () => import('./rooms/devices/client.tsx'), 'Client'),
  screen('/d/$domain/clients/$id/$tab', () => import('./rooms/devices/client.tsx'), 'Client'),
  screen('/d/$domain/channels', () => import('./rooms/devices/channels.tsx'), 'Channels'),
  screen('/d/$domain/channels/$id', () => import('./rooms/messages/channel.tsx'), 'Channel', {
    code: () => import('./charts/plot.tsx'),
    asks: firstReadings,
  }),
  screen('/d/$domain/channels/$id/$tab', () => import('./rooms/messages/channel.tsx'), 'Channel'),
  screen('/d/$domain/alarms', () => import('./rooms/messages/alarms/alarms.tsx'), 'Alarms'),
  screen('/d/$domain/alarms/$id', () => import('./rooms/messages/alarms/alarm.tsx'), 'AlarmScreen'),
  screen('/d/$domain/alarms/maintenance', () => import('./rooms/messages/maintenance/maintenance.tsx'), 'Maintenance'),
  screen('/d/$domain/rules', () => import('./rooms/messages/rules/rules.tsx'), 'Rules'),
  screen('/d/$domain/rules/$id', () => import('./rooms/messages/rules/rule.tsx'), 'RuleScreen'),
  screen('/d/$domain/consumers', () => import('./rooms/messages/consumers/consumers.tsx'), 'Consumers'),
  screen('/d/$domain/consumers/$id', () => import('./rooms/messages/consumers/consumer.tsx'), 'ConsumerScreen'),
  screen('/d/$domain/consumers/$id/$tab', () => import('./rooms/messages/consumers/consumer.tsx'), 'ConsumerScreen'),
  screen('/d/$domain/boards', () => import('./rooms/messages/boards/boards.tsx'), 'Boards'),
  screen('/d/$domain/boards/$id', () => import('./rooms/messages/boards/board.tsx'), 'BoardScreen'),
  screen('/d/$domain/groups', () => import('./rooms/devices/groups.tsx'), 'Groups'),
  screen('/d/$domain/groups/$id', () => import('./rooms/devices/groups.tsx'), 'Group'),
  screen('/d/$domain/groups/$id/$tab', () => import('./rooms/devices/groups.tsx'), 'Group'),
  screen('/d/$domain/connections', () => import('./rooms/devices/connections.tsx'), 'Connections'),
  screen('/d/$domain/import', () => import('./rooms/provisioning/import.tsx'), 'Import'),
  screen('/d/$domain/tasks', () => import('./rooms/manager/tasks.tsx'), 'Tasks'),
  screen('/d/$domain/tasks/$id', () => import('./rooms/manager/task.tsx'), 'Task'),
  screen('/d/$domain/tasks/$id/$tab', () => import('./rooms/manager/task.tsx'), 'Task'),
  screen('/d/$domain/tasks/$id/runs/$run', () => import('./rooms/manager/run.tsx'), 'RunScreen'),
  screen('/d/$domain/runs', () => import('./rooms/manager/runs.tsx'), 'Runs'),
  screen('/d/$domain/workflows', () => import('./rooms/manager/workflows.tsx'), 'Workflows'),
  screen('/d/$domain/workflows/$id', () => import('./rooms/manager/workflows.tsx'), 'WorkflowScreen'),
  screen('/d/$domain/modules', () => import('./rooms/manager/modules.tsx'), 'Modules'),
  screen('/d/$domain/try', () => import('./rooms/manager/try.tsx'), 'TryModule'),
  screen('/d/$domain/provisioning', () => import('./rooms/provisioning/provisioning.tsx'), 'Provisioning'),
  screen('/d/$domain/profiles', () => import('./rooms/provisioning/profiles.tsx'), 'Profiles'),
  screen('/d/$domain/certificates', () => import('./rooms/certificates/certificates.tsx'), 'Certificates'),
  screen('/d/$domain/workers', () => import('./rooms/manager/workers.tsx'), 'Workers'),
  screen('/d/$domain/workers/$id', () => import('./rooms/manager/worker.tsx'), 'WorkerScreen'),
  screen('/d/$domain/workers/$id/$tab', () => import('./rooms/manager/worker.tsx'), 'WorkerScreen'),
  screen('/d/$domain/members', () => import('./rooms/identity/members.tsx'), 'Members'),
  screen('/d/$domain/access', () => import('./rooms/identity/access.tsx'), 'Access'),
  screen('/d/$domain/journal', () => import('./rooms/identity/journal.tsx'), 'JournalPage'),
  screen('/d/$domain/settings', () => import('./rooms/identity/settings.tsx'), 'Settings'),
]

export const screenAt = (path: string): Match<Screen> | undefined => matchOf(SCREENS, path)
