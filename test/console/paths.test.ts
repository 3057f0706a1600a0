// console/paths.ts: a link that was sent to another user keeps its meaning
import { expect, test } from 'vitest'
import { paths } from '../../console/paths.ts'

test('the addresses of the console are these', () => {
  const given = ['D', 'E', 'F'] as const
  const all = Object.entries(paths).map(([name, path]) => {
    const call = path as (...parts: string[]) => string
    return `${name}: ${name === 'access' ? paths.access('D', { entity: 'client:E', action: 'read' }) : call(...given)}`
  })
  expect(all).toMatchInlineSnapshot(`
    [
      "home: /",
      "signIn: /sign-in",
      "signUp: /sign-up",
      "recovery: /recovery",
      "account: /account",
      "notifications: /account/notifications",
      "notification: /account/notifications/D",
      "platform: /platform",
      "users: /platform/users",
      "platformWorker: /platform/workers/D/E",
      "guide: /d/D/guides/E",
      "overview: /d/D",
      "connectDevice: /d/D/connect",
      "clients: /d/D/clients",
      "client: /d/D/clients/E/F",
      "command: /d/D/clients/E/commands?command=F",
      "channels: /d/D/channels",
      "channel: /d/D/channels/E/F",
      "charts: /d/D/channels/E?series=F",
      "messages: /d/D/channels/E/messages?0=F",
      "alarms: /d/D/alarms?0=E",
      "alarm: /d/D/alarms/E",
      "maintenance: /d/D/alarms/maintenance",
      "rules: /d/D/rules",
      "rule: /d/D/rules/E",
      "consumers: /d/D/consumers",
      "consumer: /d/D/consumers/E/F",
      "boards: /d/D/boards",
      "board: /d/D/boards/E",
      "groups: /d/D/groups",
      "group: /d/D/groups/E/F",
      "connections: /d/D/connections",
      "tasks: /d/D/tasks",
      "task: /d/D/tasks/E/F",
      "run: /d/D/tasks/E/runs/F",
      "runs: /d/D/runs?0=E",
      "workflows: /d/D/workflows",
      "workflow: /d/D/workflows/E",
      "modules: /d/D/modules",
      "tryModule: /d/D/try?0=E",
      "workers: /d/D/workers",
      "worker: /d/D/workers/E/F",
      "provisioning: /d/D/provisioning",
      "profiles: /d/D/profiles",
      "certificates: /d/D/certificates?0=E",
      "imports: /d/D/import",
      "members: /d/D/members",
      "access: /d/D/access?entity=client%3AE&action=read",
      "journal: /d/D/journal",
      "settings: /d/D/settings",
    ]
  `)
})

test('an id cannot escape its segment of an address', () => {
  expect(paths.client('D', '../x?y#z')).toBe('/d/D/clients/..%2Fx%3Fy%23z')
})
