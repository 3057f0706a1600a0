/**
 * `npm run console:pictures`: pictures of every screen of the console in `docs/console/`, from an installation of its own with the
 * data of a small plant. It needs Chromium. Each screen is shown on a desktop in the light theme and on a phone in the dark one;
 * `-- --all` adds the other two, and `-- NAME` makes only the pictures whose names contain NAME.
 */
import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { connectAsync } from 'mqtt'
import type { MqttClient } from 'mqtt'
import type { Browser } from 'playwright-core'
import { freePort } from '../harness/ports.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Whole } from '../harness/whole.ts'
import { launchBrowser, signIn, visit } from './browser.ts'
import type { Kind } from './browser.ts'

const OUTPUT = 'docs/console'
/** Time of charts and live figures to settle. */
const SETTLE_MS = 900
const PASSWORD = 'the-first-admin'
/** Clients that are connected while the pictures are taken. */
const ONLINE = 31
/** Clients of a channel that publish. */
const PUBLISHING = 4

type Api = <T>(method: string, path: string, body?: unknown) => Promise<T>
type Plant = {
  domain: string
  client: string
  channel: string
  group: string
  task: string
  run: string
  workflow: string
  board: string
  consumer: string
  rule: string
  alarm: string
  user: string
  worker: string
  /** Of clients that stay online. */
  sessions: readonly MqttClient[]
}

function createApi(whole: Whole, token: () => string): Api {
  return async <T>(method: string, path: string, body?: unknown) => {
    const { status, text, json } = await whole.call(method, path, {
      ...(token() === '' ? {} : { authorization: `Bearer ${token()}` }),
      ...(body === undefined ? {} : { body }),
    })
    if (status >= 300) throw new Error(`${method} ${path}: ${status} ${text}`)
    return (text === '' ? undefined : json()) as T
  }
}

const CHANNELS = ['Boiler house', 'Cooling water', 'Hall climate', 'Press line', 'Compressed air', 'Alarms'] as const
const KINDS = ['thermometer', 'pump', 'valve', 'flow meter', 'press', 'gateway'] as const
const moduleOf = (name: string) => readFileSync(`examples/${name}/${name}.wasm`).toString('base64')

/** An hour of readings that look like those of a machine. */
function readings(seed: number): object[] {
  const endSeconds = Date.now() / 1_000
  const records: object[] = []
  for (let at = 0; at < 180; at++) {
    const time = endSeconds - (180 - at) * 20
    const wave = Math.sin((at + seed * 17) / 14)
    const noise = Math.sin(at * 12.9898 + seed * 78.233) * 0.5
    records.push({ n: 'temperature', u: 'Cel', t: time, v: Number((62 + 6 * wave + noise).toFixed(2)) })
    records.push({ n: 'pressure', u: 'bar', t: time, v: Number((4.2 - 0.5 * wave + noise / 8).toFixed(3)) })
  }
  return records
}

/** Tiles of each kind, of the channel's first device. */
async function newBoard(api: Api, domain: string, channel: string): Promise<string> {
  type Latest = { messages: { publisher: string; name: string; unit: string }[] }
  const { messages } = await api<Latest>('GET', `/${domain}/channels/${channel}/messages/latest?limit=100`)
  const all = messages.map(({ publisher, name, unit }) => ({ publisher, subtopic: '', name, unit }))
  const temperatures = all.filter(({ name }) => name === 'temperature')
  const pressures = all.filter(({ name }) => name === 'pressure')
  const tiles = [
    { kind: 'chart', title: 'Temperatures', width: 2, channel, series: temperatures },
    { kind: 'chart', title: 'Pressures', width: 2, channel, series: pressures },
    { kind: 'value', title: 'Flow temperature', width: 1, channel, series: temperatures.slice(0, 1) },
    { kind: 'gauge', title: 'Load', width: 1, channel, series: temperatures.slice(0, 1), min: 40, max: 80 },
    { kind: 'state', title: 'Pressure', width: 1, channel, series: pressures.slice(0, 1), min: 3, max: 5 },
    { kind: 'text', title: 'On call', width: 1, text: 'Ann Operator\nextension 4711' },
  ]
  const body = { name: 'Wall of hall 1', shared: true, content: { version: 1, range: '1h', tiles } }
  return (await api<{ id: string }>('POST', `/${domain}/dashboards`, body)).id
}

/** One that is behind, with messages in flight and a dead letter, and one for which nothing waits. */
async function newConsumer(api: Api, domain: string, channels: string[]): Promise<string> {
  const path = `/${domain}/consumers`
  await api('POST', path, { name: 'archive', channels, from: 'latest', order: 'none' })
  const made = { name: 'erp', channels, from: 'earliest', max_deliver: 1, filter: { subtopic: '#', protocol: 'http' } }
  const { id } = await api<{ id: string }>('POST', path, made)
  const { messages } = await api<{ messages: { position: string }[] }>('GET', `${path}/${id}/messages?limit=1`)
  await api('POST', `${path}/${id}/nack`, {
    positions: messages.map(({ position }) => position),
    reason: 'no material with this number',
  })
  await api('GET', `${path}/${id}/messages?limit=1`)
  return id
}

/** Returns the rule that raises alarms. */
async function newRules(api: Api, domain: string, boiler: string, climate: string): Promise<string> {
  const path = `/${domain}/rules`
  const { id } = await api<{ id: string }>('POST', path, {
    name: 'Boiler too hot',
    description: 'Feed water of the boilers',
    source: { type: 'messages', channels: [boiler], names: ['temperature'] },
    condition: 'value > 66.0',
    clear_when: 'value < 40.0',
    severity: 'critical',
    actions: [{ type: 'alarm', text: '{{ client.name }} is too hot' }],
  })
  await api('POST', path, {
    name: 'Stuffy hall',
    source: { type: 'messages', channels: [climate], names: ['humidity'] },
    condition: 'value > 30.0',
    actions: [{ type: 'alarm', text: 'The air at {{ client.name }} is stuffy' }],
  })
  await api('POST', path, {
    name: 'Night shift',
    status: 'disabled',
    source: { type: 'messages', channels: [climate] },
    condition: 'delta("1h") > 5.0',
    severity: 'info',
  })
  return id
}

/** The newest alarm of the rule, acknowledged and with a comment. */
async function caredAlarm(api: Api, domain: string, rule: string): Promise<string> {
  const list = async () =>
    (await api<{ alarms: { id: string }[] }>('GET', `/${domain}/alarms?rule=${rule}&limit=100`)).alarms
  let alarms = await list()
  while (alarms.length === 0) {
    await sleep(SETTLE_MS)
    alarms = await list()
  }
  const id = alarms[0]?.id ?? ''
  const comment = 'The valve of the feed water was closed.'
  await api('PATCH', `/${domain}/alarms/${id}`, { status: 'acknowledged', comment })
  return id
}

/** Documents of which one differs, and commands with different ends. */
async function desire(whole: Whole, api: Api, domain: string, device: { id: string; credentials: { secret: string } }) {
  const path = `/${domain}/clients/${device.id}`
  const asDevice = async (method: string, to: string, body: object) => {
    const sent = await whole.call(method, to, { authorization: `Client ${device.credentials.secret}`, body })
    if (sent.status >= 300) throw new Error(`${method} ${to}: ${sent.status} ${sent.text}`)
  }
  const desired = { firmware: '1.4', interval: 60, led: { on: true, level: 3 }, site: 'Hall 1' }
  await api('PATCH', `${path}/desired-state`, desired)
  await api('PATCH', `${path}/desired-state/config`, { locale: 'de' })
  const reported = { ...desired, firmware: '1.3', led: { on: true, level: 1 }, battery: 87, uptime: 86_412 }
  await asDevice('PATCH', `/c/${domain}/state`, reported)
  await asDevice('PATCH', `/c/${domain}/state/config`, { locale: 'de' })
  for (const [name, answer] of [
    ['calibrate', { status: 'succeeded', result: { offset: 0.03 } }],
    ['open-valve', { status: 'rejected', reason: 'the pressure is above 6 bar' }],
    ['upgrade', { status: 'failed', reason: 'the battery is low' }],
  ] as const) {
    const { id } = await api<{ id: string }>('POST', `${path}/commands`, { name, payload: { by: 'shift 2' } })
    await asDevice('POST', `/c/${domain}/commands/${id}/result`, answer)
  }
  await api('POST', `${path}/commands`, { name: 'reboot', payload: { delay: 5 } })
}

async function fill(whole: Whole, mqttPort: string): Promise<Plant> {
  let token = ''
  const api = createApi(whole, () => token)
  const login = async (identity: string, secret: string) =>
    (await api<{ access_token: string }>('POST', '/users/tokens/issue', { identity, secret })).access_token
  token = await login('admin', PASSWORD)
  const { id: domain } = await api<{ id: string }>('POST', '/domains', { name: 'North plant', tags: ['production'] })
  await api('POST', '/domains', { name: 'Test bench' })
  const { id: group } = await api<{ id: string }>('POST', `/${domain}/groups`, {
    name: 'Hall 1',
    description: 'Boilers and cooling',
  })
  await api('POST', `/${domain}/groups`, { name: 'Mezzanine', parent_id: group })
  await api('POST', `/${domain}/groups`, { name: 'Hall 2', description: 'Presses' })

  const channels: string[] = []
  for (const name of CHANNELS)
    channels.push(
      (
        await api<{ id: string }>('POST', `/${domain}/channels`, {
          name,
          route: name.toLowerCase().replace(' ', '-'),
          tags: [name === 'Alarms' ? 'alarm' : 'process'],
        })
      ).id,
    )
  const [boiler = '', , climate = '', , , alarms = ''] = channels
  type Made = { id: string; name: string; credentials: { secret: string } }
  const made = await api<{ clients: Made[] } | Made[]>(
    'POST',
    `/${domain}/clients/bulk`,
    Array.from({ length: 48 }, (_none, index) => ({
      name: `${KINDS[index % KINDS.length]} ${String(Math.floor(index / KINDS.length) + 1).padStart(2, '0')}`,
      tags: [index % 2 === 0 ? 'hall-1' : 'hall-2', ...(index % 6 === 5 ? ['edge'] : [])],
    })),
  )
  const all = Array.isArray(made) ? made : made.clients
  const clients = all.map(({ id }) => id)
  const sessions: MqttClient[] = []
  for (const { id, name, credentials } of all.slice(0, ONLINE)) {
    const options = { clientId: name, username: id, password: credentials.secret }
    sessions.push(await connectAsync(`mqtt://127.0.0.1:${mqttPort}`, options))
  }
  const [client = ''] = clients
  for (const [index, channel] of channels.entries())
    await api('POST', `/${domain}/channels/connect`, {
      client_ids: clients.filter((_id, at) => at % 3 === index % 3).slice(0, 12),
      channel_ids: [channel],
      types: index % 2 === 0 ? ['publish', 'subscribe'] : ['publish'],
    })
  for (const one of clients.slice(0, 6))
    await api('POST', `/${domain}/clients/${one}/parent`, { parent_group_id: group })
  for (const one of channels.slice(0, 2))
    await api('POST', `/${domain}/channels/${one}/parent`, { parent_group_id: group })
  for (const one of clients.slice(40, 43)) await api('POST', `/${domain}/clients/${one}/disable`)

  await api('POST', '/tasks', {
    name: 'boiler alarm',
    domain_id: domain,
    trigger: { channel_id: boiler },
    grants: [
      { kind: 'publish', name: 'alarms', channel_id: alarms },
      { kind: 'read', name: 'readings', channel_id: boiler },
    ],
    env: { LIMIT: '66' },
    file: moduleOf('threshold-alarm'),
  })
  const add = await api<{ id: string }>('POST', '/tasks', { name: 'add', domain_id: domain, file: moduleOf('add') })
  await api('POST', '/tasks', {
    name: 'hourly average',
    domain_id: domain,
    schedule: '0 * * * *',
    timezone: 'Europe/Berlin',
    grants: [{ kind: 'read', name: 'readings', channel_id: climate }],
    file: moduleOf('moving-average'),
  })
  const ran = await api<{ run_id: string }>('POST', `/tasks/${add.id}/invoke`, { inputs: [20, 22], wait: '10s' })
  await api('POST', `/tasks/${add.id}/invoke`, { inputs: [1], wait: '10s' }).catch(() => undefined)
  const endless = { name: 'calibration', domain_id: domain, timeout: '1s', file: moduleOf('endless') }
  const { id: calibration } = await api<{ id: string }>('POST', '/tasks', endless)
  await api('POST', `/tasks/${calibration}/invoke`, { wait: '10s' }).catch(() => undefined)
  const workflow = await api<{ id: string; tasks: { id: string }[] }>('POST', '/workflows', {
    name: 'shift report',
    domain_id: domain,
    tasks: [
      { name: 'collect', inputs: [1, 2] },
      { name: 'sum', inputs: [{ from: 'collect', result: 0 }, 10], depends_on: ['collect'] },
      { name: 'compare', inputs: [{ from: 'collect', result: 0 }, 5], depends_on: ['collect'] },
      { name: 'publish', inputs: [1, 1], depends_on: ['sum', 'compare'] },
      { name: 'repair', inputs: [0, 0], depends_on: ['collect'], run_if: 'failure' },
    ].map((one) => ({ ...one, function: 'add', file: moduleOf('add') })),
  })
  await api('POST', `/workflows/${workflow.id}/start`)
  const rule = await newRules(api, domain, boiler, climate)
  // As the devices that are connected to the channel, so that lists have their newest values.
  for (const [index, channel] of channels.slice(0, 5).entries())
    for (const [at, device] of all
      .filter((_one, place) => place % 3 === index % 3)
      .slice(0, PUBLISHING)
      .entries()) {
      const body = readings(index + at * 5)
      const sent = await whole.call('POST', `/m/${domain}/c/${channel}`, {
        authorization: `Client ${device.credentials.secret}`,
        body,
      })
      if (sent.status >= 300) throw new Error(`publish: ${sent.status} ${sent.text}`)
    }

  if (all[0] !== undefined) await desire(whole, api, domain, all[0])
  await api('POST', `/${domain}/certs/issue/${client}`, { ttl: '720h' }).catch(() => undefined)
  const role = await api<{ role_id: string }>('POST', `/domains/${domain}/roles`, {
    role_name: 'operator',
    optional_actions: ['read', 'client_read', 'channel_read'],
  })
  let user = ''
  for (const [first, last] of [
    ['Grace', 'Hopper'],
    ['Edsger', 'Dijkstra'],
    ['Barbara', 'Liskov'],
  ] as const) {
    const username = first.toLowerCase()
    const created = await createApi(whole, () => '')<{ id: string }>('POST', '/users', {
      first_name: first,
      last_name: last,
      email: `${username}@example.com`,
      credentials: { username, secret: 'correct horse' },
    })
    if (first === 'Grace') user = created.id
    await api('POST', `/domains/${domain}/invitations`, { invitee_user_id: created.id, role_id: role.role_id })
    if (first === 'Barbara') continue
    const theirs = await login(username, 'correct horse')
    await createApi(whole, () => theirs)('POST', '/invitations/accept', { domain_id: domain })
  }
  await api('POST', `/${domain}/clients/bootstrap/profiles`, {
    name: 'gateway',
    description: 'Gateways of the halls',
    content_format: 'json',
    content_template: '{"broker": "{{.Vars.broker}}", "password": "{{.Bindings.device.Secret.secret}}"}',
    defaults: { broker: 'mqtts://broker.example.com:8883' },
    binding_slots: [
      { name: 'device', type: 'client', required: true },
      { name: 'telemetry', type: 'channel', required: true },
    ],
  })
  const consumer = await newConsumer(api, domain, [boiler, climate])
  const alarm = await caredAlarm(api, domain, rule)
  const board = await newBoard(api, domain, boiler)
  const { workers } = await api<{ workers: { id: string }[] }>('GET', '/workers')
  return {
    domain,
    client,
    channel: boiler,
    group,
    task: add.id,
    run: ran.run_id,
    workflow: workflow.id,
    board,
    consumer,
    rule,
    alarm,
    user,
    worker: workers[0]?.id ?? '',
    sessions,
  }
}

type Screen = { name: string; path: string; heading: string; isOutside?: boolean }

function screensOf(plant: Plant): Screen[] {
  const { domain, client, channel, group, task, run, workflow, board, consumer, rule, alarm, user, worker } = plant
  const d = `/d/${domain}`
  return [
    { name: 'sign-in', path: '/sign-in', heading: 'Sign in', isOutside: true },
    { name: 'sign-up', path: '/sign-up', heading: 'Create an account', isOutside: true },
    { name: 'domains', path: '/', heading: 'Domains' },
    { name: 'account', path: '/account', heading: 'Your account' },
    { name: 'overview', path: d, heading: 'North plant' },
    { name: 'clients', path: `${d}/clients?order=name&dir=asc`, heading: 'Clients' },
    { name: 'client', path: `${d}/clients/${client}`, heading: 'thermometer 01' },
    { name: 'client-state', path: `${d}/clients/${client}/state`, heading: 'thermometer 01' },
    { name: 'client-commands', path: `${d}/clients/${client}/commands`, heading: 'thermometer 01' },
    { name: 'client-connections', path: `${d}/clients/${client}/connections`, heading: 'thermometer 01' },
    { name: 'client-snippets', path: `${d}/clients/${client}/snippets`, heading: 'thermometer 01' },
    { name: 'client-journal', path: `${d}/clients/${client}/journal`, heading: 'thermometer 01' },
    { name: 'channels', path: `${d}/channels?order=name&dir=asc`, heading: 'Channels' },
    { name: 'channel', path: `${d}/channels/${channel}`, heading: 'Boiler house' },
    { name: 'channel-live', path: `${d}/channels/${channel}/live`, heading: 'Boiler house' },
    { name: 'channel-messages', path: `${d}/channels/${channel}/messages`, heading: 'Boiler house' },
    { name: 'alarms', path: `${d}/alarms`, heading: 'Alarms' },
    { name: 'alarm', path: `${d}/alarms/${alarm}`, heading: 'is too hot' },
    { name: 'rules', path: `${d}/rules`, heading: 'Rules' },
    { name: 'rule', path: `${d}/rules/${rule}`, heading: 'Boiler too hot' },
    { name: 'rule-form', path: `${d}/rules?create=1`, heading: 'New rule' },
    { name: 'consumers', path: `${d}/consumers`, heading: 'Consumers' },
    { name: 'consumer', path: `${d}/consumers/${consumer}`, heading: 'erp' },
    { name: 'consumer-dead-letters', path: `${d}/consumers/${consumer}/dead-letters`, heading: 'erp' },
    { name: 'board', path: `${d}/boards/${board}`, heading: 'Wall of hall 1' },
    { name: 'connections', path: `${d}/connections`, heading: 'Connections' },
    { name: 'connections-graph', path: `${d}/connections?shape=graph`, heading: 'Connections' },
    { name: 'group', path: `${d}/groups/${group}`, heading: 'Hall 1' },
    { name: 'import', path: `${d}/import`, heading: 'Import' },
    { name: 'tasks', path: `${d}/tasks`, heading: 'Tasks' },
    { name: 'task', path: `${d}/tasks/${task}`, heading: 'add' },
    { name: 'task-module', path: `${d}/tasks/${task}/module`, heading: 'add' },
    { name: 'run', path: `${d}/tasks/${task}/runs/${run}`, heading: 'Run of add' },
    { name: 'runs', path: `${d}/runs`, heading: 'Runs' },
    { name: 'workflow', path: `${d}/workflows/${workflow}`, heading: 'shift report' },
    { name: 'modules', path: `${d}/modules`, heading: 'Modules' },
    { name: 'try', path: `${d}/try`, heading: 'Try a module' },
    { name: 'workers', path: `${d}/workers`, heading: 'Workers' },
    { name: 'worker', path: `/platform/workers/${worker}`, heading: 'rack-1' },
    { name: 'worker-journal', path: `/platform/workers/${worker}/journal`, heading: 'rack-1' },
    { name: 'provisioning', path: `${d}/provisioning`, heading: 'Provisioning' },
    { name: 'profiles', path: `${d}/profiles`, heading: 'Profiles' },
    { name: 'certificates', path: `${d}/certificates`, heading: 'Certificates' },
    { name: 'members', path: `${d}/members`, heading: 'Members and roles' },
    {
      name: 'access',
      path: `${d}/access?entity=client:${client}&action=delete&subject=${user}`,
      heading: 'Access',
    },
    { name: 'journal', path: `${d}/journal`, heading: 'Journal' },
    { name: 'settings', path: `${d}/settings`, heading: 'Settings' },
    { name: 'platform', path: '/platform', heading: 'Platform' },
  ]
}

type Look = Kind & { suffix: string }
const LOOKS: readonly Look[] = [
  { suffix: '', theme: 'light', isPhone: false },
  { suffix: '-phone-dark', theme: 'dark', isPhone: true },
]
const OTHER_LOOKS: readonly Look[] = [
  { suffix: '-dark', theme: 'dark', isPhone: false },
  { suffix: '-phone', theme: 'light', isPhone: true },
]

async function take(browser: Browser, base: string, screens: readonly Screen[], look: Look): Promise<void> {
  const kind: Kind = { height: 800, ...look }
  await using outside = await visit(browser, base, kind)
  await using inside = await visit(browser, base, kind)
  await signIn(inside.page, base, 'admin', PASSWORD)
  for (const { name, path, heading, isOutside } of screens) {
    const { page, go } = isOutside === true ? outside : inside
    await go(path)
    await page.getByRole('heading', { name: heading }).first().waitFor()
    if (name === 'try') {
      await page.getByLabel('Module file').setInputFiles('examples/add/add.wasm')
      await page.getByLabel('Parameter 1 (i32)').fill('20')
      await page.getByLabel('Parameter 2 (i32)').fill('22')
      await page.getByRole('button', { name: 'Run', exact: true }).click()
      await page.getByText('Completed').first().waitFor()
    }
    await page.locator('.skeleton').first().waitFor({ state: 'detached' })
    await sleep(SETTLE_MS)
    await page.screenshot({ path: join(OUTPUT, `${name}${look.suffix}.png`) })
  }
}

const given = process.argv.slice(2)
const wanted = given.find((one) => !one.startsWith('--'))
mkdirSync(OUTPUT, { recursive: true })
const mqttPort = String(await freePort())
using installation = await createInstallation({
  SKEIN_WORKER_NAME: 'rack-1',
  SKEIN_ADMIN_SECRET: PASSWORD,
  SKEIN_MQTT_PORT: mqttPort,
})
await using whole = await startWhole(installation)
const plant = await fill(whole, mqttPort)
const screens = screensOf(plant).filter(({ name }) => wanted === undefined || name.includes(wanted))
const browser = await launchBrowser()
try {
  for (const look of given.includes('--all') ? [...LOOKS, ...OTHER_LOOKS] : LOOKS)
    await take(browser, installation.base, screens, look)
} finally {
  await browser.close()
  for (const session of plant.sessions) session.end(true)
}
