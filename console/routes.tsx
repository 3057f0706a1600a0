/** The screens by address. A screen is loaded when it is opened; its first request is sent while it loads. */
import {
  Link,
  Outlet,
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  redirect,
} from '@tanstack/react-router'
import { useEffect } from 'react'
import type { ComponentType } from 'react'
import { consoleBase } from './api/base.ts'
import { ApiError } from './api/errors.ts'
import { resumeSession, sessionState } from './api/session.ts'
import { Empty, Skeleton } from './design/display.tsx'
import { paths } from './paths.ts'
import { Frame } from './shell/frame.tsx'
import { ErrorState } from './shell/states.tsx'
import { parseSearch, stringifySearch } from './shell/url.ts'

const root = createRootRoute({
  component: Outlet,
  errorComponent: ({ error, reset }) => (
    <div className="entrance">
      <ErrorState error={asError(error)} onRetry={reset} />
    </div>
  ),
})

async function requireSession({ location }: { location: { href: string } }): Promise<void> {
  if (sessionState().kind === 'starting')
    await resumeSession().catch((error: unknown) => {
      if (!(error instanceof ApiError && error.status === 401)) throw error
    })
  if (sessionState().kind === 'signed-out') {
    const next = location.href === '/' ? {} : { next: location.href }
    redirect({ to: paths.signIn(), search: next, throw: true })
  }
}

const open = createRoute({ getParentRoute: () => root, id: 'open', component: Outlet })
const inside = createRoute({ getParentRoute: () => root, id: 'inside', beforeLoad: requireSession, component: Frame })

/** An address that no screen has: the navigation is there, so that the user goes on. */
function NoSuchPage() {
  useEffect(() => {
    document.title = 'No such page · Skein'
  }, [])
  return (
    <Empty
      icon="search"
      title="There is no such page"
      actions={
        <Link className="button primary" to={paths.home()}>
          Show your domains
        </Link>
      }
    >
      The address is misspelt, or of another version.
    </Empty>
  )
}

/** On a slow line, the frame does not wait for the screen in it. */
const PENDING_MS = 300
const Loading = () => <Skeleton />

/** The parts of a file, by their names. */
type Parts<K extends string> = { [name in K]: ComponentType }

const screen = <K extends string>(path: string, load: () => Promise<Parts<K>>, name: K) =>
  createRoute({
    getParentRoute: () => inside,
    path,
    component: lazyRouteComponent(load, name),
    pendingComponent: Loading,
    pendingMs: PENDING_MS,
    pendingMinMs: 0,
  })
const entrance = (path: string, name: 'SignIn' | 'SignUp' | 'Recovery') =>
  createRoute({
    getParentRoute: () => open,
    path,
    component: lazyRouteComponent(() => import('./rooms/identity/entrance.tsx'), name),
  })

const tree = root.addChildren([
  open.addChildren([entrance('/sign-in', 'SignIn'), entrance('/sign-up', 'SignUp'), entrance('/recovery', 'Recovery')]),
  inside.addChildren([
    createRoute({ getParentRoute: () => inside, path: '$', component: NoSuchPage }),
    screen('/', () => import('./rooms/identity/domains.tsx'), 'Domains'),
    screen('/account', () => import('./rooms/identity/account.tsx'), 'Account'),
    screen('/account/notifications', () => import('./rooms/provisioning/notifications.tsx'), 'Notifications'),
    screen('/account/notifications/$id', () => import('./rooms/provisioning/notifications.tsx'), 'Notification'),
    screen('/platform', () => import('./rooms/manager/platform.tsx'), 'Platform'),
    screen('/platform/users', () => import('./rooms/identity/users.tsx'), 'Users'),
    screen('/platform/workers/$id', () => import('./rooms/manager/worker.tsx'), 'WorkerScreen'),
    screen('/platform/workers/$id/$tab', () => import('./rooms/manager/worker.tsx'), 'WorkerScreen'),
    ...['/guides', '/guides/$guide', '/d/$domain/guides', '/d/$domain/guides/$guide'].map((path) =>
      screen(path, () => import('./rooms/guides/guide.tsx'), 'Guide'),
    ),
    screen('/d/$domain', () => import('./rooms/overview/overview.tsx'), 'Overview'),
    screen('/d/$domain/connect', () => import('./rooms/devices/first-device.tsx'), 'FirstDevice'),
    screen('/d/$domain/clients', () => import('./rooms/devices/clients.tsx'), 'Clients'),
    screen('/d/$domain/clients/$id', () => import('./rooms/devices/client.tsx'), 'Client'),
    screen('/d/$domain/clients/$id/$tab', () => import('./rooms/devices/client.tsx'), 'Client'),
    screen('/d/$domain/channels', () => import('./rooms/devices/channels.tsx'), 'Channels'),
    screen('/d/$domain/channels/$id', () => import('./rooms/messages/channel.tsx'), 'Channel'),
    screen('/d/$domain/channels/$id/$tab', () => import('./rooms/messages/channel.tsx'), 'Channel'),
    screen('/d/$domain/alarms', () => import('./rooms/messages/alarms/alarms.tsx'), 'Alarms'),
    screen('/d/$domain/alarms/$id', () => import('./rooms/messages/alarms/alarm.tsx'), 'AlarmScreen'),
    screen(
      '/d/$domain/alarms/maintenance',
      () => import('./rooms/messages/maintenance/maintenance.tsx'),
      'Maintenance',
    ),
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
  ]),
])

const asError = (error: unknown) => (error instanceof Error ? error : new Error(String(error)))

export function createConsoleRouter() {
  return createRouter({
    routeTree: tree,
    basepath: consoleBase.pathname.replace(/\/$/, ''),
    parseSearch,
    stringifySearch,
    defaultPreload: 'intent',
    defaultErrorComponent: ({ error, reset }) => <ErrorState error={asError(error)} onRetry={reset} />,
    scrollRestoration: true,
  })
}
