// docs/guides/console.md: every control that changes something, pressed in a browser against the real platform
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Locator, Page, Request } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { hasNoBrowser, signIn, visit } from './browser.ts'
import type { Visitor } from './browser.ts'
import { controlsOfTheConsole, isOperation } from './control-sites.ts'
import type { Control } from './control-sites.ts'
import { startConsole, startVisitingWorker } from './running-console.ts'
import type { RunningConsole } from './running-console.ts'

const SECRET = 'correct horse'
const ADD = 'examples/add/add.wasm'
const ENDLESS = 'examples/endless/endless.wasm'

type Id = { id: string }

/** A contact of subscriptions. With status 410, a message is given up at once. */
async function startWebhook() {
  const contact = { status: 200, payloads: [] as string[] }
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => void chunks.push(chunk))
    request.on('end', () => {
      if (contact.status === 200)
        contact.payloads.push((JSON.parse(Buffer.concat(chunks).toString()) as { payload: string }).payload)
      response.writeHead(contact.status).end()
    })
  })
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  return {
    contact,
    host: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    [Symbol.asyncDispose]: () => new Promise<void>((resolve) => void server.close(() => resolve())),
  }
}

describe.skipIf(hasNoBrowser)('controls of the console (needs Chromium)', () => {
  let running: RunningConsole
  let webhook: Awaited<ReturnType<typeof startWebhook>>
  let visitor: Visitor
  let page: Page
  /** Controls that were pressed, and whose request succeeded. */
  const pressed: Control[] = []

  const api = <T>(method: string, path: string, body?: unknown, token?: string) =>
    running.api<T>(method, path, body, token)
  const login = (identity: string, secret: string) => running.login(identity, secret)
  const made = (path: string, body: object) => running.made(path, body)
  const newDomain = async (name: string) => await made('/domains', { name })
  const newUser = async (username: string) =>
    await made('/users', {
      first_name: username,
      last_name: 'Member',
      email: `${username}@example.com`,
      credentials: { username, secret: SECRET },
    })
  const fileOf = (path: string) => readFileSync(path).toString('base64')

  beforeAll(async () => {
    webhook = await startWebhook()
    running = await startConsole({
      SKEIN_WORKER_LEASE: '5s',
      SKEIN_WORKER_HEARTBEAT: '1s',
      SKEIN_WEBHOOK_HOSTS: webhook.host,
    })
    visitor = await running.asAdmin()
    page = visitor.page
  })
  afterAll(async () => {
    await visitor?.[Symbol.asyncDispose]()
    await running?.[Symbol.asyncDispose]()
    await webhook?.[Symbol.asyncDispose]()
  })

  /** Waits for the requests that the control sends; each must succeed. */
  async function press(controls: Control | readonly Control[], act: () => Promise<unknown>, on = page): Promise<void> {
    const awaited = (typeof controls === 'string' ? [controls] : controls).map(async (control) => {
      const operation = control.slice(control.indexOf(' ') + 1)
      const response = await on.waitForResponse((one) => isTheirs(operation, one.request()))
      expect(response.status(), `${control}: ${await response.text().catch(() => '')}`).toBeLessThan(300)
      pressed.push(control)
    })
    await Promise.all([...awaited, act()])
  }
  const isTheirs = (operation: string, request: Request) => {
    const { pathname, searchParams } = new URL(request.url())
    return searchParams.get('dry_run') !== 'true' && isOperation(operation, request.method(), pathname)
  }

  const button = (name: string | RegExp, place: Page | Locator = page) =>
    place.getByRole('button', { name, exact: typeof name === 'string' }).first()
  const dialog = () => page.getByRole('dialog')
  const menu = async (item: string, label = 'More actions') => {
    await button(label).click()
    await page.getByRole('menuitem', { name: item }).click()
  }
  /** A dialog closes when its action succeeded. */
  const confirm = async (name: string) => {
    await button(name, dialog()).click()
    await dialog().waitFor({ state: 'detached' })
  }
  const seen = async (text: string | RegExp) => await page.getByText(text).first().waitFor()
  const headed = async (name: string | RegExp) =>
    await page
      .getByRole('heading', { name, exact: typeof name === 'string' })
      .first()
      .waitFor()

  test('domains: one is created, changed, disabled, enabled and deleted', async () => {
    await visitor.go('/')
    await button('New domain').click()
    await dialog().getByLabel('Name').fill('Pressed')
    await press('rooms/identity/domains.tsx POST /domains', () => button('Create domain', dialog()).click())
    await headed('Pressed')
    const domain = /\/d\/([^/]+)/.exec(page.url())?.[1] ?? ''
    await visitor.go(`/d/${domain}/settings`)
    await page.getByLabel('Name').fill('Pressed again')
    await page.getByLabel('Alias').fill('pressed')
    await page.getByLabel('Messages are').selectOption({ label: 'Deleted after 30 days' })
    await press('rooms/identity/settings.tsx PATCH /domains/{domain_id}', () => button('Save').click())
    await until(
      async () => (await api<{ alias: string }>('GET', `/domains/${domain}`)).alias === 'pressed',
      'the new alias',
    )
    await button('Disable').click()
    await press('rooms/identity/settings.tsx POST /domains/{domain_id}/disable', () => confirm('Disable domain'))
    await press('rooms/identity/settings.tsx POST /domains/{domain_id}/enable', () => button('Enable').click())
    await button('Disable').waitFor()
    await button('Delete').click()
    await dialog().getByLabel('Type Pressed again').fill('Pressed again')
    await press('rooms/identity/settings.tsx DELETE /domains/{domain_id}', () =>
      button('Delete domain', dialog()).click(),
    )
    await headed('Domains')
  })

  test('boards: one is created, shared, renamed and deleted', async () => {
    const domain = await newDomain('Boards')
    await visitor.go(`/d/${domain}/boards`)
    await button('New board').click()
    await dialog().getByLabel('Name').fill('Wall')
    await press('rooms/messages/boards/store.ts POST /{domain_id}/dashboards', () => confirm('Create board'))
    await headed('Wall')
    const board = /\/boards\/([^/?]+)/.exec(page.url())?.[1] ?? ''
    const stored = async () =>
      await api<{ name: string; shared: boolean; content: { range: string } }>('GET', `/${domain}/dashboards/${board}`)
    const change = 'rooms/messages/boards/store.ts PATCH /{domain_id}/dashboards/{dashboard_id}'
    await press(change, () => menu('Share in the domain'))
    await until(async () => (await stored()).shared, 'a shared board')
    await press(change, () => menu('Stop sharing'))
    await until(async () => !(await stored()).shared, 'a board that is not shared')
    await menu('Settings')
    await dialog().getByLabel('Name').fill('Wall of hall 1')
    await dialog().getByLabel('Range').selectOption('6h')
    await press(change, () => confirm('Save'))
    await headed('Wall of hall 1')
    expect((await stored()).content.range).toBe('6h')
    await button('Add tile').click()
    await button('Text', dialog()).click()
    await dialog().getByLabel('Text', { exact: true }).fill('Hello')
    await press(change, () => confirm('Add'))
    await seen('Hello')
    await menu('Delete')
    await press('rooms/messages/boards/store.ts DELETE /{domain_id}/dashboards/{dashboard_id}', () =>
      confirm('Delete board'),
    )
    await headed('Boards')
    await seen('Create your first board')
  })

  test('members: one is invited and withdrawn, one is removed; a role is created, changed and deleted', async () => {
    const domain = await newDomain('Members')
    const [ruth, otto] = [await newUser('ruth'), await newUser('otto')]
    await api('POST', `/domains/${domain}/roles`, {
      role_name: 'viewer',
      optional_actions: ['read'],
      optional_members: [ruth],
    })
    await visitor.go(`/d/${domain}/members`)
    await button('Remove ruth Member').click()
    await press('rooms/identity/members.tsx DELETE /domains/{domain_id}/roles/members', () => confirm('Remove member'))
    await button('Remove ruth Member').waitFor({ state: 'detached' })
    const { users } = await api<{ users: Id[] }>('GET', `/domains/${domain}/users`)
    expect(users.map(({ id }) => id)).not.toContain(ruth)

    await button('Invite').click()
    await dialog().getByLabel('Username or email').fill('otto')
    await dialog().getByLabel('User', { exact: true }).selectOption({ label: 'otto' })
    await dialog().getByLabel('Role').selectOption({ label: 'Viewer' })
    await press('rooms/identity/invitations.tsx POST /domains/{domain_id}/invitations', () => confirm('Invite'))
    await press('rooms/identity/invitations.tsx DELETE /domains/{domain_id}/invitations', () =>
      button('Withdraw the invitation').click(),
    )
    await seen('No invitation waits')
    // A ready role is made with the first invitation to it.
    await button('Invite').click()
    await dialog().getByLabel('Username or email').fill('otto')
    await dialog().getByLabel('Role').selectOption({ label: 'Operator' })
    await press('rooms/identity/invitations.tsx POST /domains/{domain_id}/invitations', () => confirm('Invite'))
    await seen(/as Operator/)
    await api('POST', '/invitations/reject', { domain_id: domain }, await login('otto', SECRET))
    await page.reload()
    await press('rooms/identity/invitations.tsx POST /domains/{domain_id}/invitations', () =>
      button('Invite again').click(),
    )
    await api('POST', '/invitations/accept', { domain_id: domain }, await login('otto', SECRET))
    await page.reload()
    const rolesOfOtto = async () => {
      const { roles } = await api<{ roles: { name: string; members: string[] }[] }>(
        'GET',
        `/domains/${domain}/roles?limit=100`,
      )
      return roles.filter(({ members }) => members.includes(otto)).map(({ name }) => name)
    }
    const role = page.getByLabel('Role of otto Member')
    await press(
      [
        'rooms/identity/members.tsx POST /domains/{domain_id}/users/assign',
        'rooms/identity/members.tsx POST /domains/{domain_id}/roles/{role_id}/members/delete',
      ],
      () => role.selectOption({ label: 'Developer' }),
    )
    await seen('otto Member has the role Developer')
    expect(await rolesOfOtto()).toEqual(['editor'])
    await press('rooms/identity/members.tsx POST /domains/{domain_id}/roles/{role_id}/members', () =>
      role.selectOption({ label: 'Viewer' }),
    )
    await seen('otto Member has the role Viewer')
    expect(await rolesOfOtto()).toEqual(['viewer'])
    // The only administrator stays one.
    expect(await page.getByLabel('Role of admin').isDisabled()).toBe(true)

    await button('New role').click()
    await dialog().getByLabel('Name').fill('keeper')
    await dialog().getByLabel('See clients client_read').check()
    await dialog().getByLabel('Change clients client_update').check()
    await press('rooms/identity/roles.tsx POST /domains/{domain_id}/roles', () => confirm('Save'))
    const edit = () => menu('Edit actions', 'Actions for keeper')
    await edit()
    await dialog().getByLabel('Name').fill('warden')
    await dialog().getByLabel('Change clients client_update').uncheck()
    await dialog().getByLabel('See channels channel_read').check()
    await press(
      [
        'rooms/identity/roles.tsx PUT /domains/{domain_id}/roles/{role_id}',
        'rooms/identity/roles.tsx POST /domains/{domain_id}/roles/{role_id}/actions',
        'rooms/identity/roles.tsx POST /domains/{domain_id}/roles/{role_id}/actions/delete',
      ],
      () => confirm('Save'),
    )
    const { roles } = await api<{ roles: { name: string; actions: string[] }[] }>(
      'GET',
      `/domains/${domain}/roles?limit=10`,
    )
    expect(roles.find(({ name }) => name === 'warden')?.actions.toSorted()).toEqual(['channel_read', 'client_read'])
    await menu('Delete', 'Actions for warden')
    await press('rooms/identity/roles.tsx DELETE /domains/{domain_id}/roles/{role_id}', () => confirm('Delete role'))
  })

  test('invitations are accepted and rejected, and an account is created, changed and signed out elsewhere', async () => {
    const [first, second] = [await newDomain('Accepted'), await newDomain('Rejected')]
    await using other = await visit(running.browser, running.installation.base)
    const { page: mine } = other
    await other.go('/sign-up')
    for (const [label, value] of [
      ['First name', 'Lise'],
      ['Last name', 'Meitner'],
      ['Email', 'lise@example.com'],
      ['Username', 'lise'],
      ['Password', SECRET],
    ] as const)
      await mine.getByLabel(label).fill(value)
    await press('rooms/identity/entrance.tsx POST /users', () => button('Create account', mine).click(), mine)
    await mine.getByText('Create your first domain').waitFor()
    const lise = (await api<Id>('GET', '/users/profile', undefined, await login('lise', SECRET))).id
    for (const domain of [first, second]) {
      const { role_id: role } = await api<{ role_id: string }>('POST', `/domains/${domain}/roles`, {
        role_name: 'viewer',
        optional_actions: ['read'],
      })
      await api('POST', `/domains/${domain}/invitations`, { invitee_user_id: lise, role_id: role })
    }
    await mine.reload()
    const row = (name: string) => mine.locator('.list-row').filter({ hasText: name }).first()
    await press(
      'rooms/identity/domains.tsx POST /invitations/accept',
      () => button('Accept', row('Accepted')).click(),
      mine,
    )
    await press(
      'rooms/identity/domains.tsx POST /invitations/reject',
      () => button('Reject', row('Rejected')).click(),
      mine,
    )
    await other.go('/account')
    await mine.getByLabel('First name').fill('Elise')
    await press('rooms/identity/account.tsx PATCH /users/{user_id}', () => button('Save', mine).click(), mine)
    await using elsewhere = await visit(running.browser, running.installation.base)
    await signIn(elsewhere.page, running.installation.base, 'lise', SECRET)
    await mine.reload()
    await press(
      'rooms/identity/account.tsx DELETE /users/tokens/refresh-tokens/{session_id}',
      () => button('End this login', mine).click(),
      mine,
    )
    await mine.getByLabel('Current password').fill(SECRET)
    await mine.getByLabel('New password').fill('battery staple')
    await press('rooms/identity/account.tsx PATCH /users/secret', () => button('Change', mine).click(), mine)
    expect(await login('lise', 'battery staple')).not.toBe('')
    await using forgetful = await visit(running.browser, running.installation.base)
    await forgetful.go('/recovery')
    await forgetful.page.getByLabel('Email').fill('lise@example.com')
    await press(
      'rooms/identity/entrance.tsx POST /password/reset-request',
      () => button('Send the link', forgetful.page).click(),
      forgetful.page,
    )
  })

  test('access: a missing role is given on a domain, a client, a channel and a group', async () => {
    const domain = await newDomain('Given')
    const user = await newUser('emmy')
    await api('POST', `/domains/${domain}/roles`, {
      role_name: 'viewer',
      optional_actions: ['read'],
      optional_members: [user],
    })
    const give = async (control: Control, roles: string, entity: string) => {
      await api('POST', roles, { role_name: 'editor', optional_actions: ['read', 'update'] })
      await visitor.go(`/d/${domain}/access?entity=${entity}&action=update&subject=${user}`)
      await seen('Not allowed')
      await press(control, () => button('Give the role editor').click())
      await page.getByText('Allowed', { exact: true }).waitFor()
    }
    const client = await made(`/${domain}/clients`, { name: 'pump' })
    await give(
      'rooms/identity/access.tsx POST /{domain_id}/clients/{client_id}/roles/{role_id}/members',
      `/${domain}/clients/${client}/roles`,
      `client:${client}`,
    )
    const channel = await made(`/${domain}/channels`, { name: 'steam' })
    await give(
      'rooms/identity/access.tsx POST /{domain_id}/channels/{channel_id}/roles/{role_id}/members',
      `/${domain}/channels/${channel}/roles`,
      `channel:${channel}`,
    )
    const group = await made(`/${domain}/groups`, { name: 'hall' })
    await give(
      'rooms/identity/access.tsx POST /{domain_id}/groups/{group_id}/roles/{role_id}/members',
      `/${domain}/groups/${group}/roles`,
      `group:${group}`,
    )
    await give(
      'rooms/identity/access.tsx POST /domains/{domain_id}/roles/{role_id}/members',
      `/domains/${domain}/roles`,
      `domain:${domain}`,
    )
  })

  test('a first device: its channel, its client and their connection are created by one form', async () => {
    const domain = await newDomain('First device')
    await visitor.go(`/d/${domain}/connect`)
    await page.getByLabel('Name of the device').fill('pump')
    await page.getByLabel('Name of the channel').fill('steam')
    await press(
      [
        'rooms/devices/first-device.tsx POST /{domain_id}/channels',
        'rooms/devices/first-device.tsx POST /{domain_id}/clients',
        'rooms/devices/first-device.tsx POST /{domain_id}/channels/connect',
      ],
      () => button('Create device').click(),
    )
    await seen('Waiting for the first message…')
  })

  test('clients: created with a connection, changed, connected, disabled, enabled and deleted, alone and many', async () => {
    const domain = await newDomain('Clients')
    await made(`/${domain}/channels`, { name: 'steam' })
    await visitor.go(`/d/${domain}/clients`)
    await button('New client').click()
    await dialog().getByLabel('Name').fill('pump')
    await dialog().getByLabel('Connect to channel').selectOption({ label: 'steam' })
    await press(
      [
        'rooms/devices/clients.tsx POST /{domain_id}/clients',
        'rooms/devices/clients.tsx POST /{domain_id}/channels/connect',
      ],
      () => button('Create client', dialog()).click(),
    )
    await button('Open the client').click()
    await headed('pump')
    await button('Edit').click()
    await dialog().getByLabel('Tags').fill('hall, north')
    await dialog().getByLabel('Metadata').fill('{"floor": 2}')
    await press('rooms/devices/client.tsx PATCH /{domain_id}/clients/{client_id}', () => confirm('Save'))
    await press('rooms/devices/client.tsx POST /{domain_id}/clients/{client_id}/disable', () => menu('Disable'))
    await page.locator('.page-head').getByText('Disabled', { exact: true }).waitFor()
    await press('rooms/devices/client.tsx POST /{domain_id}/clients/{client_id}/enable', () => menu('Enable'))
    await page.locator('.page-head').getByText('Enabled', { exact: true }).waitFor()
    await button('Rotate').click()
    await press('rooms/devices/client.tsx PATCH /{domain_id}/clients/{client_id}/secret', () => confirm('Rotate'))
    await page.getByRole('link', { name: 'Connections' }).last().click()
    await press('rooms/devices/client.tsx POST /{domain_id}/channels/disconnect', () =>
      button('Disconnect steam').click(),
    )
    await seen('Not connected')
    await button('Connect').click()
    await dialog().getByLabel('Channel').selectOption({ label: 'steam' })
    await press('rooms/devices/client.tsx POST /{domain_id}/channels/connect', () => confirm('Connect'))
    await button('Disconnect steam').waitFor()
    await menu('Delete')
    await press('rooms/devices/client.tsx DELETE /{domain_id}/clients/{client_id}', () =>
      button('Delete client', dialog()).click(),
    )
    await headed('Clients')

    const valve = await made(`/${domain}/clients`, { name: 'valve', tags: ['hall'] })
    const group = await made(`/${domain}/groups`, { name: 'north' })
    await many('client', domain, [
      [
        'Connect',
        'rooms/devices/client-actions.tsx POST /{domain_id}/channels/connect',
        () => dialog().getByLabel('Channel').selectOption({ label: 'steam' }),
      ],
      [
        'Tag',
        'rooms/devices/client-actions.tsx PATCH /{domain_id}/clients/{client_id}/tags',
        () => dialog().getByLabel('Tags to add').fill('spare, wet'),
      ],
      [
        'Group',
        'rooms/devices/client-actions.tsx POST /{domain_id}/clients/{client_id}/parent',
        () => dialog().getByLabel('Group').selectOption({ label: 'north' }),
      ],
      ['Disable', 'rooms/devices/client-actions.tsx POST /{domain_id}/clients/{client_id}/disable'],
      ['Enable', 'rooms/devices/client-actions.tsx POST /{domain_id}/clients/{client_id}/enable'],
    ])
    expect(await api<object>('GET', `/${domain}/clients/${valve}`)).toMatchObject({
      tags: ['hall', 'spare', 'wet'],
      parent_group_id: group,
    })
    expect((await api<{ total: number }>('GET', `/${domain}/clients/${valve}/channels`)).total).toBe(1)
    await many('client', domain, [
      ['Delete', 'rooms/devices/client-actions.tsx DELETE /{domain_id}/clients/{client_id}'],
    ])
    expect((await api<{ total: number }>('GET', `/${domain}/clients?status=all`)).total).toBe(0)
  })

  /** The actions of a selection. */
  const many = async (
    noun: 'client' | 'channel',
    domain: string,
    controls: readonly [string, Control, (() => Promise<unknown>)?][],
  ) => {
    for (const [label, control, answer] of controls) {
      await visitor.go(`/d/${domain}/${noun}s`)
      await page.getByLabel('Select the visible rows').check()
      await button(label).click()
      await answer?.()
      await press(control, () => button(`${label} 1 ${noun}`, dialog()).click())
      await button('Close', dialog().locator('.dialog-foot')).click()
      // The selection ends with the action.
      await page.getByRole('toolbar', { name: 'Selection' }).waitFor({ state: 'detached' })
    }
  }

  test('state and commands: documents are replaced and deleted, commands given and cancelled, alone and many', async () => {
    const domain = await newDomain('Desired')
    const pump = await made(`/${domain}/clients`, { name: 'pump' })
    await visitor.go(`/d/${domain}/clients/${pump}/state`)
    const edit = async (control: Control, value: string) => {
      await button('Edit', page.locator('.card').last()).click()
      await dialog().getByLabel('Field 1', { exact: true }).fill('firmware')
      await dialog().getByLabel('Value of field 1').fill(value)
      await press(control, () => confirm('Save'))
      await page.getByRole('table', { name: 'Desired and reported' }).getByText(value).waitFor()
    }
    const remove = async (control: Control) => {
      await menu('Delete', 'Actions for the document')
      await press(control, () => confirm('Delete document'))
      await seen('Nothing is desired or reported yet')
    }
    await edit('rooms/devices/desired/store.ts PUT /{domain_id}/clients/{client_id}/desired-state', '1.4')
    await remove('rooms/devices/desired/store.ts DELETE /{domain_id}/clients/{client_id}/desired-state')
    await button('New document').click()
    await dialog().getByLabel('Name', { exact: true }).fill('config')
    await press('rooms/devices/desired/store.ts PUT /{domain_id}/clients/{client_id}/desired-state/{name}', () =>
      confirm('Create document'),
    )
    await edit('rooms/devices/desired/store.ts PUT /{domain_id}/clients/{client_id}/desired-state/{name}', '1.5')
    await remove('rooms/devices/desired/store.ts DELETE /{domain_id}/clients/{client_id}/desired-state/{name}')

    await visitor.go(`/d/${domain}/clients/${pump}/commands`)
    await button('Give a command').click()
    await dialog().getByLabel('Command', { exact: true }).fill('reboot')
    await press('rooms/devices/commands/history.tsx POST /{domain_id}/clients/{client_id}/commands', () =>
      confirm('Give command'),
    )
    await page.getByRole('link', { name: 'reboot' }).click()
    await press(
      'rooms/devices/commands/history.tsx POST /{domain_id}/clients/{client_id}/commands/{command_id}/cancel',
      () => button('Cancel command', dialog()).click(),
    )

    const change = async (document: string) => {
      await dialog().getByLabel('Document').fill(document)
      await dialog().getByLabel('Change').fill('{"firmware": "1.6"}')
    }
    await many('client', domain, [
      [
        'Desired state',
        'rooms/devices/desired/many.tsx PATCH /{domain_id}/clients/{client_id}/desired-state',
        () => change(''),
      ],
      [
        'Desired state',
        'rooms/devices/desired/many.tsx PATCH /{domain_id}/clients/{client_id}/desired-state/{name}',
        () => change('config'),
      ],
      [
        'Command',
        'rooms/devices/commands/many.tsx POST /{domain_id}/clients/{client_id}/commands',
        () => dialog().getByLabel('Command', { exact: true }).fill('blink'),
      ],
    ])
    const stored = async (document: string) =>
      (await api<{ desired: object }>('GET', `/${domain}/clients/${pump}/desired-state${document}`)).desired
    expect([await stored(''), await stored('/config')]).toEqual([{ firmware: '1.6' }, { firmware: '1.6' }])
  })

  test('channels: created, changed, sent to, connected, disabled, enabled and deleted, alone and many', async () => {
    const domain = await newDomain('Channels')
    await made(`/${domain}/clients`, { name: 'pump' })
    await visitor.go(`/d/${domain}/channels`)
    await button('New channel').click()
    await dialog().getByLabel('Name').fill('steam')
    await press('rooms/devices/channels.tsx POST /{domain_id}/channels', () =>
      button('Create channel', dialog()).click(),
    )
    await headed('steam')
    const channel = /\/channels\/([^/]+)/.exec(page.url())?.[1] ?? ''
    await button('Edit').click()
    await dialog().getByLabel('Description').fill('of the boiler')
    await press('rooms/messages/channel-forms.tsx PATCH /{domain_id}/channels/{channel_id}', () => confirm('Save'))
    await button('Send').click()
    await press('rooms/messages/channel-forms.tsx POST /m/{domain_id}/c/{channel_id}', () =>
      button('Send', dialog()).click(),
    )
    await dialog().getByText('1 message stored').waitFor()
    await dialog().getByLabel('Subtopic').fill('floor1/room2')
    await press('rooms/messages/channel-forms.tsx POST /m/{domain_id}/c/{channel_id}/{rest}', () =>
      button('Send', dialog()).click(),
    )
    await dialog().getByText('2 messages stored').waitFor()
    await button('Cancel', dialog()).click()
    const { messages } = await api<{ messages: { subtopic?: string }[] }>(
      'GET',
      `/${domain}/channels/${channel}/messages?subtopic=floor1.room2`,
    )
    expect(messages.length).toBe(1)
    await api('POST', `/m/${domain}/c/${channel}`, [{ n: 'old', t: 1_500_000_000, v: 1 }])
    await button('Edit').click()
    await dialog().getByLabel('Messages are').selectOption({ label: 'Deleted after 30 days' })
    await dialog()
      .getByLabel(/Delete it now/)
      .check()
    await press(
      [
        'rooms/messages/channel-forms.tsx PATCH /{domain_id}/channels/{channel_id}',
        'rooms/messages/channel-forms.tsx DELETE /{domain_id}/channels/{channel_id}/messages',
      ],
      () => confirm('Save'),
    )
    await press('rooms/messages/channel.tsx POST /{domain_id}/channels/{channel_id}/disable', () => menu('Disable'))
    await page.locator('.page-head').getByText('Disabled', { exact: true }).waitFor()
    await press('rooms/messages/channel.tsx POST /{domain_id}/channels/{channel_id}/enable', () => menu('Enable'))
    await page.locator('.page-head').getByText('Enabled', { exact: true }).waitFor()
    await visitor.go(`/d/${domain}/channels/${channel}/clients`)
    await button('Connect').click()
    await dialog().getByLabel('Client').selectOption({ label: 'pump' })
    await press('rooms/messages/channel-tabs.tsx POST /{domain_id}/channels/connect', () => confirm('Connect'))
    await press('rooms/messages/channel-tabs.tsx POST /{domain_id}/channels/disconnect', () =>
      button('Disconnect pump').click(),
    )
    await menu('Delete')
    await dialog().getByLabel('Type steam').fill('steam')
    await press('rooms/messages/channel.tsx DELETE /{domain_id}/channels/{channel_id}', () =>
      button('Delete channel', dialog()).click(),
    )
    await headed('Channels')

    await made(`/${domain}/channels`, { name: 'water' })
    await many('channel', domain, [
      ['Disable', 'rooms/devices/channels.tsx POST /{domain_id}/channels/{channel_id}/disable'],
      ['Enable', 'rooms/devices/channels.tsx POST /{domain_id}/channels/{channel_id}/enable'],
      ['Delete', 'rooms/devices/channels.tsx DELETE /{domain_id}/channels/{channel_id}'],
    ])
    expect((await api<{ total: number }>('GET', `/${domain}/channels?status=all`)).total).toBe(0)
  })

  test('connections: a click in the matrix connects and disconnects', async () => {
    const domain = await newDomain('Matrix')
    await made(`/${domain}/clients`, { name: 'pump' })
    await made(`/${domain}/channels`, { name: 'steam' })
    await visitor.go(`/d/${domain}/connections`)
    await press('rooms/devices/connections.tsx POST /{domain_id}/channels/connect', () =>
      button('pub pump, steam').click(),
    )
    await press('rooms/devices/connections.tsx POST /{domain_id}/channels/disconnect', () =>
      button('✓ pub pump, steam').click(),
    )
    await button('pub pump, steam').waitFor()
  })

  test('groups: created, changed, filled, emptied and deleted', async () => {
    const domain = await newDomain('Groups')
    await made(`/${domain}/clients`, { name: 'pump' })
    await made(`/${domain}/channels`, { name: 'steam' })
    await visitor.go(`/d/${domain}/groups`)
    await button('New group').click()
    await dialog().getByLabel('Name').fill('hall')
    await press('rooms/devices/groups.tsx POST /{domain_id}/groups', () => button('Create group', dialog()).click())
    await headed('hall')
    await button('Edit').click()
    await dialog().getByLabel('Description').fill('the northern one')
    await press('rooms/devices/groups.tsx PATCH /{domain_id}/groups/{group_id}', () => confirm('Save'))
    for (const [label, name, add, take] of [
      [
        'client',
        'pump',
        'rooms/devices/groups.tsx POST /{domain_id}/clients/{client_id}/parent',
        'rooms/devices/groups.tsx DELETE /{domain_id}/clients/{client_id}/parent',
      ],
      [
        'channel',
        'steam',
        'rooms/devices/groups.tsx POST /{domain_id}/channels/{channel_id}/parent',
        'rooms/devices/groups.tsx DELETE /{domain_id}/channels/{channel_id}/parent',
      ],
    ] as const) {
      await button(`Add a ${label}`).click()
      await dialog()
        .getByLabel(label === 'client' ? 'Client' : 'Channel')
        .selectOption({ label: name })
      await press(add, () => confirm('Add'))
      await press(take, () => button(`Take ${name} out of the group`).click())
      await button(`Take ${name} out of the group`).waitFor({ state: 'detached' })
    }
    await menu('Delete')
    await press('rooms/devices/groups.tsx DELETE /{domain_id}/groups/{group_id}', () =>
      button('Delete group', dialog()).click(),
    )
    await headed('Groups')
  })

  test('tasks: keys of the state are listed, looked at, set and deleted', async () => {
    const domain = await newDomain('State')
    const task = await made('/tasks', { name: 'sum', domain_id: domain })
    const path = `/tasks/${task}/state`
    const value = async (key: string) => (await api<{ value: string }>('GET', `${path}/${key}`)).value
    await api('PUT', `${path}/count`, { value: '41' })
    await api('PUT', `${path}/bytes?client=pump`, { value: 'AAH/', encoding: 'base64' })
    await visitor.go(`/d/${domain}/tasks/${task}/state`)
    await button('bytes').click()
    await until(async () => (await dialog().getByLabel('Value').inputValue()) === 'AAH/', 'the value of bytes')
    await button('Cancel', dialog()).click()

    await button('count').click()
    await dialog().getByLabel('Value').fill('42')
    await press('rooms/manager/state.tsx PUT /tasks/{task_id}/state/{key}', () => button('Set', dialog()).click())
    await until(async () => (await value('count')) === '42', 'the new value')

    await button('Set a key').click()
    await dialog().getByLabel('Key').fill('a/b')
    await dialog().getByLabel('Value').fill('new')
    await button('Set', dialog()).click()
    await button('a/b').waitFor()
    expect(await value('a%2Fb')).toBe('new')

    await button('Delete count').click()
    await press('rooms/manager/state.tsx DELETE /tasks/{task_id}/state/{key}', () => confirm('Delete key'))
    await button('count').waitFor({ state: 'detached' })
    expect((await api<{ total: number }>('GET', path)).total).toBe(2)
  })

  test('tasks: a paused one says whose rights it has lost, and a member takes it over', async () => {
    const domain = await newDomain('Grantors')
    const grantor = await newUser('gerda')
    const { role_id: role } = await api<{ role_id: string }>('POST', `/domains/${domain}/roles`, {
      role_name: 'driver',
      optional_actions: [
        'read',
        'task_read',
        'task_create',
        'task_update',
        'task_start',
        'channel_read',
        'channel_publish',
      ],
      optional_members: [grantor],
    })
    const channel = await made(`/${domain}/channels`, { name: 'results' })
    const { id: task } = await api<Id>(
      'POST',
      '/tasks',
      { name: 'sum', domain_id: domain, inputs: [1, 2], publish_result: { channel_id: channel }, file: fileOf(ADD) },
      await login('gerda', SECRET),
    )
    const activity = async () => (await api<{ activity?: string }>('GET', `/tasks/${task}`)).activity
    await visitor.go(`/d/${domain}/tasks/${task}/rules`)
    await page.getByText('Rights granted by').waitFor()
    await seen('gerda')
    await button('Take over').waitFor()

    await api('POST', `/domains/${domain}/roles/${role}/members/delete`, { members: [grantor] })
    await api('POST', `/tasks/${task}/start`, {})
    await until(async () => (await activity()) === 'paused', 'the pause')
    await visitor.go(`/d/${domain}/tasks/${task}`)
    await seen('Paused')
    await seen(/It continues where it was paused when gerda has the right again/)
    await button('Take over').click()
    await press('rooms/manager/task.tsx POST /tasks/{task_id}/take-over', () => confirm('Take over'))
    await page.getByText(/It continues where it was paused/).waitFor({ state: 'detached' })
    await until(async () => (await activity()) !== 'paused', 'the end of the pause')
    await visitor.go(`/d/${domain}/tasks/${task}/rules`)
    await page.getByText('Rights granted by').waitFor()
    // Nobody takes over what they grant.
    expect(await button('Take over').count()).toBe(0)
  })

  test('tasks: created from a file, run, changed by each dialog, started, stopped and deleted', async () => {
    const domain = await newDomain('Tasks')
    await made(`/${domain}/channels`, { name: 'steam' })
    await visitor.go(`/d/${domain}/tasks`)
    await button('New task').click()
    // A task whose module is refused is not left behind.
    await page.getByLabel('Module file').setInputFiles({
      name: 'text.wasm',
      mimeType: 'application/wasm',
      buffer: Buffer.from('this is no module'),
    })
    await press('rooms/manager/tasks.tsx DELETE /tasks/{task_id}', () => button('Create task', dialog()).click())
    await dialog().getByText('The task was not created').waitFor()
    await page.getByLabel('Module file').setInputFiles(ENDLESS)
    await press(['rooms/manager/tasks.tsx POST /tasks', 'rooms/manager/tasks.tsx PUT /tasks/{task_id}/upload'], () =>
      button('Create task', dialog()).click(),
    )
    await headed('text')
    expect((await api<{ total: number }>('GET', `/tasks?domain_id=${domain}`)).total).toBe(1)
    await press('rooms/manager/task.tsx POST /tasks/{task_id}/start', () => button('Start').click())
    await press('rooms/manager/task.tsx POST /tasks/{task_id}/stop', () => button('Stop').click())
    await button('Start').waitFor()
    const task = /\/tasks\/([^/]+)/.exec(page.url())?.[1] ?? ''
    await visitor.go(`/d/${domain}/tasks/${task}/module`)
    await page.getByLabel('Module file').setInputFiles(ADD)
    await seen('The task has a new module')
    await visitor.go(`/d/${domain}/tasks/${task}`)
    await page.getByLabel(/^Parameter 1/).fill('20')
    await page.getByLabel(/^Parameter 2/).fill('22')
    await press(
      ['rooms/manager/task.tsx PUT /tasks/{task_id}', 'rooms/manager/task.tsx POST /tasks/{task_id}/invoke'],
      () => button('Run').click(),
    )
    // The run shows what it was started with, and runs again with the same.
    await page.getByRole('link', { name: 'Open the run' }).click()
    await headed('Inputs')
    await press('rooms/manager/run-inputs.tsx POST /tasks/{task_id}/invoke', () =>
      button('Run again with these').click(),
    )
    await api('PUT', `/tasks/${task}`, { inputs: [1, 2] })
    const { run_id: started } = await api<{ run_id: string }>('POST', `/tasks/${task}/start`)
    await until(async () => (await api<{ state: number }>('GET', `/tasks/${task}`)).state === 3, 'the end of the run')
    await visitor.go(`/d/${domain}/tasks/${task}/runs/${started}`)
    await press('rooms/manager/run-inputs.tsx POST /tasks/{task_id}/start', () =>
      button('Run again with these').click(),
    )
    await visitor.go(`/d/${domain}/tasks/${task}/rules`)
    const change = async (name: string, fill: () => Promise<unknown>) => {
      await button(name).click()
      await fill()
      await press('rooms/manager/task.tsx PUT /tasks/{task_id}', () => confirm('Save'))
    }
    const schedule = async (starts: string) => {
      await button('Schedule').click()
      await dialog().getByLabel('Starts').selectOption({ label: starts })
      await press('rooms/manager/schedule-dialog.tsx PUT /tasks/{task_id}', () => confirm('Save'))
    }
    await schedule('From Monday to Friday')
    await schedule('No schedule')
    await change('Trigger', () => dialog().getByLabel('Start for each message of').selectOption({ label: 'steam' }))
    await change('Edit', () => dialog().getByLabel('Time limit').fill('20s'))
    const group = await made(`/${domain}/groups`, { name: 'boilers' })
    await button('Commands').click()
    await dialog().getByLabel('Answer commands named').fill('calibrate')
    await dialog().getByLabel('To clients in the group').selectOption('boilers')
    await button('Remove boilers', dialog()).waitFor()
    await dialog().getByLabel('To clients with the tag').fill('pump')
    await press('rooms/manager/answers.tsx PUT /tasks/{task_id}', () => confirm('Save'))
    await seen('to clients in boilers with the tag pump')
    const { answers } = await api<{ answers: object }>('GET', `/tasks/${task}`)
    expect(answers).toEqual({ command: 'calibrate', tag: 'pump', group })
    await button('HTTP requests').click()
    await dialog().getByLabel('Its runs can send requests to').fill('get,post https://api.example.com')
    await press('rooms/manager/http-grant.tsx PUT /tasks/{task_id}', () => confirm('Save'))
    await seen('https://api.example.com')
    const { http } = await api<{ http: object }>('GET', `/tasks/${task}`)
    expect(http).toMatchObject({ allow: [{ origin: 'https://api.example.com', methods: ['GET', 'POST'] }] })
    await menu('Delete')
    await press('rooms/manager/task.tsx DELETE /tasks/{task_id}', () => button('Delete task', dialog()).click())
    await headed('Tasks')
  })

  test('a task without a module gets one on its page, and a module is inspected', async () => {
    const domain = await newDomain('Uploads')
    const task = await made('/tasks', { name: 'sum', domain_id: domain })
    await visitor.go(`/d/${domain}/tasks/${task}`)
    await seen('This task has no module')
    await press('rooms/manager/tasks.tsx PUT /tasks/{task_id}/upload', () =>
      page.getByLabel('Module file').setInputFiles(ADD),
    )
    await page.getByLabel('Parameter 1 (i32)').waitFor()
    await visitor.go(`/d/${domain}/try`)
    await press('rooms/manager/try.tsx POST /modules/inspect', () => page.getByLabel('Module file').setInputFiles(ADD))
  })

  /** Stored messages of one record each, in order. */
  const publish = async (domain: string, channel: string, records: readonly object[]) => {
    for (const record of records) await api('POST', `/m/${domain}/c/${channel}`, [record])
  }
  const letterRows = () => page.getByRole('grid', { name: 'Dead letters' }).locator('[data-row]')
  const lettersLeft = async (count: number) =>
    await until(async () => (await letterRows().count()) === count, `${count} rows of dead letters`)

  test('dead letters of a task are counted, shown, tried again and discarded, one and all', async () => {
    const domain = await newDomain('Letters')
    const steam = await made(`/${domain}/channels`, { name: 'steam' })
    const task = await made('/tasks', { name: 'sum', domain_id: domain })
    const tab = (name: string | RegExp) =>
      page.locator('main').getByRole('link', { name, exact: typeof name === 'string' })
    await visitor.go(`/d/${domain}/tasks/${task}`)
    await tab('Journal').waitFor()
    expect(await tab(/Dead letters/).count(), 'a task without channels').toBe(0)
    await api('PUT', `/tasks/${task}`, { trigger: { channel_id: steam } })
    await publish(
      domain,
      steam,
      [1, 2, 3].map((v) => ({ n: 'a', v, t: 1_700_000_000 + v })),
    )
    await tab('Dead letters (3)').click()
    await lettersLeft(3)
    const row = letterRows().filter({ hasText: '"v":2' })
    for (const text of ['a message', 'steam', 'module']) await row.getByText(text).first().waitFor()
    await button('Show the dead letter', row).click()
    await dialog().getByLabel('message', { exact: true }).getByText('"v": 2').waitFor()
    await dialog().getByText('none was started').waitFor()
    await button('Close', dialog()).click()

    await api('PUT', `/tasks/${task}`, { file: fileOf(ADD) })
    await press('rooms/manager/dead-letters.tsx POST /tasks/{task_id}/dead-letters/retry', () =>
      button('Retry the dead letter', row).click(),
    )
    await seen('1 dead letter is tried again')
    await lettersLeft(2)
    await button('Retry all').click()
    await seen('No dead letters')
    const runs = async () => (await api<{ total: number }>('GET', `/tasks/${task}/runs`)).total
    await until(async () => (await runs()) === 3, 'a run for each message')

    await publish(
      domain,
      steam,
      ['a', 'b', 'c'].map((vs) => ({ n: 'a', vs })),
    )
    await tab('Dead letters (3)').waitFor()
    await button('Discard the dead letter', letterRows().filter({ hasText: '"vs":"b"' })).click()
    await press('rooms/manager/dead-letters.tsx POST /tasks/{task_id}/dead-letters/discard', () => confirm('Discard'))
    await lettersLeft(2)
    expect(await letterRows().filter({ hasText: '"vs":"b"' }).count()).toBe(0)
    await button('Discard all').click()
    await dialog().getByText('Discard all 2 dead letters').waitFor()
    await confirm('Discard')
    await seen('No dead letters')
    expect((await api<{ total: number }>('GET', `/tasks/${task}/dead-letters`)).total).toBe(0)
    expect(await runs()).toBe(3)

    // A result that its channel did not take leads to its run.
    const water = await made(`/${domain}/channels`, { name: 'water' })
    await api('PUT', `/tasks/${task}`, { publish_result: { channel_id: water } })
    await api('POST', `/${domain}/channels/${water}/disable`)
    await publish(domain, steam, [{ n: 'a', v: 4, t: 1_700_000_000 }])
    await letterRows().getByText('a publication').waitFor()
    await letterRows().getByRole('link', { name: 'water' }).waitFor()
    await button('Show the dead letter', letterRows().first()).click()
    await dialog().getByRole('link', { name: 'Open' }).click()
    await headed(/Run of sum/)
  })

  test('named consumers: created, changed, moved and deleted; dead letters are shown, tried again and discarded', async () => {
    const domain = await newDomain('Consumed')
    const steam = await made(`/${domain}/channels`, { name: 'steam' })
    await made(`/${domain}/channels`, { name: 'water' })
    await publish(
      domain,
      steam,
      [1, 2, 3, 4].map((v) => ({ n: 'a', v })),
    )
    // From its channel, which is chosen already.
    await visitor.go(`/d/${domain}/channels/${steam}/consumers`)
    await seen('No consumers yet')
    await button('New consumer').click()
    await dialog().getByLabel('Name', { exact: true }).fill('readings')
    await dialog().getByLabel('Begin').selectOption('earliest')
    await dialog().getByLabel('Deliveries at most').fill('1')
    await press('rooms/messages/consumers/consumers.tsx POST /{domain_id}/consumers', () => confirm('Create consumer'))
    await headed('readings')
    const consumer = /\/consumers\/([^/?]+)/.exec(page.url())?.[1] ?? ''
    const path = `/${domain}/consumers/${consumer}`
    const shown = async () =>
      await api<{ position: string; in_flight: number; dead_letters: number; filter: object; channels: string[] }>(
        'GET',
        path,
      )
    expect(await shown()).toMatchObject({ name: 'readings', channels: [steam], max_deliver: 1, filter: {} })

    // What a program does: the console takes no messages.
    const taken = await api<{ messages: { position: string; payload: [{ v: number }] }[] }>('GET', `${path}/messages`)
    const positions = taken.messages.map(({ position }) => position)
    expect(positions).toHaveLength(4)
    await seen('4 of at most 1,000')
    await api('POST', `${path}/ack`, { positions: positions.slice(3) })
    await api('POST', `${path}/nack`, { positions: positions.slice(0, 3), reason: 'no such pump' })
    await page.getByRole('link', { name: 'Dead letters (3)' }).click()
    await lettersLeft(3)
    const row = letterRows().first()
    for (const text of ['no such pump', 'steam']) await row.getByText(text).first().waitFor()
    await button('Show the dead letter', row).click()
    await dialog().getByLabel('message', { exact: true }).getByText('"payload"').waitFor()
    await dialog()
      .getByText(/^\d+-\d+-\d+$/)
      .waitFor()
    await button('Close', dialog()).click()
    await press('rooms/messages/consumers/consumer.tsx POST /{domain_id}/consumers/{consumer}/dead-letters/retry', () =>
      button('Retry the dead letter', row).click(),
    )
    await lettersLeft(2)
    const again = await api<{ messages: object[] }>('GET', `${path}/messages`)
    expect(again.messages).toHaveLength(1)
    await button('Discard the dead letter', letterRows().first()).click()
    await press(
      'rooms/messages/consumers/consumer.tsx POST /{domain_id}/consumers/{consumer}/dead-letters/discard',
      () => confirm('Discard'),
    )
    await lettersLeft(1)

    await button('Edit').click()
    await dialog().getByLabel('Add a channel').selectOption({ label: 'water' })
    await button('Remove steam', dialog().getByRole('group', { name: 'Channels' })).click()
    await dialog().getByLabel('Subtopic').fill('hall/#')
    await press('rooms/messages/consumers/consumer.tsx PATCH /{domain_id}/consumers/{consumer}', () => confirm('Save'))
    await page.getByRole('link', { name: 'Delivery' }).click()
    await page.getByRole('link', { name: 'water' }).waitFor()
    const changed = await shown()
    expect(changed.channels).not.toContain(steam)
    // A form that is saved without a change changes nothing, in the server's own words for the filter.
    await button('Edit').click()
    await confirm('Save')
    expect(await shown()).toMatchObject({ filter: changed.filter, channels: changed.channels })
    // What the server refuses is said at its field.
    await button('Edit').click()
    await dialog().getByLabel('Subtopic').fill('hall/#/x')
    await dialog().getByLabel('Deliver again after').fill('1ms')
    await button('Save', dialog()).click()
    await dialog().getByRole('alert').first().waitFor()
    expect(await dialog().locator('[aria-invalid=true]').count()).toBeGreaterThan(0)
    await button('Cancel', dialog()).click()

    await button('Move').click()
    await dialog()
      .getByText(/1 message in flight or held back is forgotten/)
      .waitFor()
    await dialog().getByLabel('Begin').selectOption('position')
    await dialog().getByLabel('Position').fill('1-1-0')
    await button('Move', dialog()).click()
    // It names the earliest position.
    await dialog()
      .getByText(/the earliest position is \d+-\d+-\d+/)
      .waitFor()
    await dialog().getByLabel('Begin').selectOption('earliest')
    await press('rooms/messages/consumers/consumer.tsx POST /{domain_id}/consumers/{consumer}/seek', () =>
      confirm('Move'),
    )
    await seen('0 of at most 1,000')

    await page.getByRole('link', { name: 'Receive' }).click()
    await page.getByLabel('commands').getByText(`skein consumers pull readings ${domain}`).waitFor()
    await visitor.go(`/d/${domain}/consumers?name=none`)
    await seen('No consumer matches')
    await visitor.go(`/d/${domain}/consumers`)
    await page.getByRole('grid', { name: 'Consumers' }).getByRole('link', { name: 'readings' }).click()
    await menu('Delete')
    await dialog().getByLabel('Type readings').fill('readings')
    await press('rooms/messages/consumers/consumer.tsx DELETE /{domain_id}/consumers/{consumer}', () =>
      confirm('Delete consumer'),
    )
    await headed('Consumers')
    await seen('No consumers yet')
  })

  test('alarms: acknowledged and taken back, assigned, commented, cleared and deleted', async () => {
    const domain = await newDomain('Alarmed')
    const steam = await made(`/${domain}/channels`, { name: 'steam' })
    await made(`/${domain}/rules`, {
      name: 'heat',
      source: { type: 'messages', channels: [steam] },
      condition: 'value > 30.0',
    })
    await publish(domain, steam, [{ n: 'a', v: 31 }])
    await visitor.go(`/d/${domain}/alarms`)
    await page.getByRole('grid', { name: 'Alarms' }).getByRole('link', { name: 'heat' }).click()
    await headed('heat')
    const alarm = /\/alarms\/([^/?]+)/.exec(page.url())?.[1] ?? ''
    type Alarm = { status: string; assignee_id?: string; comments: number }
    const shown = async () => await api<Alarm>('GET', `/${domain}/alarms/${alarm}`)
    const change = 'rooms/messages/alarms/change.ts PATCH /{domain_id}/alarms/{alarm_id}'
    const history = page.getByRole('list', { name: 'History' })
    await press(change, () => button('Acknowledge').click())
    await history.getByText('acknowledged it').waitFor()
    expect(await shown()).toMatchObject({ status: 'acknowledged' })
    await press(change, () => button('Take back').click())
    await history.getByText('took the acknowledgement back').waitFor()
    expect(await shown()).toMatchObject({ status: 'active' })

    // Who may not read alarms of the domain gets none, and the server says so at the field.
    const stranger = await newUser('stranger')
    await page.route(`**/domains/${domain}/users?*`, async (route) => {
      const response = await route.fetch()
      const json = (await response.json()) as { users: object[] }
      json.users.push({ id: stranger, credentials: { username: 'stranger' } })
      await route.fulfill({ response, json })
    })
    await button('Assign').click()
    await dialog().getByLabel('User').selectOption({ label: 'stranger' })
    await button('Assign', dialog()).click()
    await dialog()
      .getByText(/may read alarms of the domain/)
      .waitFor()
    await dialog().getByLabel('User').selectOption({ label: 'You' })
    await press(change, () => confirm('Assign'))
    await history.getByText('assigned it to admin').waitFor()
    await button('Assign').click()
    await dialog().getByLabel('User').selectOption({ label: 'Nobody' })
    await press(change, () => confirm('Assign'))
    await history.getByText('assigned it to nobody').waitFor()
    expect((await shown()).assignee_id).toBeUndefined()

    expect(await button('Add comment').getAttribute('title')).toBe('Write a comment first')
    await page.getByLabel('Comment').fill('the valve is open')
    await press(change, () => button('Add comment').click())
    await history.getByText('the valve is open').waitFor()
    expect(await page.getByLabel('Comment').inputValue()).toBe('')
    await button('Clear').click()
    await press(change, () => confirm('Clear alarm'))
    await history.getByText('cleared it').waitFor()
    expect(await shown()).toMatchObject({ status: 'cleared', comments: 1 })
    for (const name of ['Acknowledge', 'Assign', 'Clear']) expect(await button(name).count(), name).toBe(0)
    await page.getByLabel('Comment').fill('it is closed')
    await press(change, () => button('Add comment').click())
    await history.getByText('it is closed').waitFor()

    await menu('Delete')
    await press('rooms/messages/alarms/alarm.tsx DELETE /{domain_id}/alarms/{alarm_id}', () => confirm('Delete alarm'))
    await headed('Alarms')
    await seen('No open alarms')
    const { total } = await api<{ total: number }>('GET', `/${domain}/alarms`)
    expect(total).toBe(0)
  })

  test('rules: a rule about silence is created and changed, and one about messages becomes one', async () => {
    const domain = await newDomain('Silent')
    const steam = await made(`/${domain}/channels`, { name: 'steam' })
    const task = await made('/tasks', { name: 'judge', domain_id: domain, file: fileOf(ADD) })
    await visitor.go(`/d/${domain}/rules`)
    await button('New rule').click()
    await dialog().getByLabel('Name', { exact: true }).fill('gone')
    await dialog().getByLabel('Watches').selectOption('silence')
    expect(await dialog().getByLabel('Condition').count()).toBe(0)
    await dialog().getByLabel('Add a channel').selectOption({ label: 'steam' })
    await dialog().getByLabel('Silent after').fill('soon')
    await button('Create rule', dialog()).click()
    await dialog()
      .getByText(/^Silent after must be a duration/)
      .waitFor()
    await dialog().getByLabel('Silent after').fill('15m')
    await dialog().getByLabel('One alarm above').fill('200')
    await button('Create rule', dialog()).click()
    await dialog()
      .getByText(/^One alarm above /)
      .waitFor()
    await dialog().getByLabel('One alarm above').fill('25')
    await press('rooms/messages/rules/rules.tsx POST /{domain_id}/rules', () => confirm('Create rule'))
    await headed('gone')
    const rule = /\/rules\/([^/?]+)/.exec(page.url())?.[1] ?? ''
    const stored = async () => await api<{ source: object; condition: string }>('GET', `/${domain}/rules/${rule}`)
    const source = { type: 'silence', channels: [steam], after: '15m', share: 0.25 }
    expect(await stored()).toMatchObject({ source, condition: '' })
    await seen('for all, above 25 % of the clients within a minute')
    const change = 'rooms/messages/rules/rule.tsx PATCH /{domain_id}/rules/{rule_id}'
    await button('Edit').click()
    await dialog().getByLabel('Silent after').fill('1h')
    await dialog().getByLabel('One alarm above').fill('')
    await press(change, () => confirm('Save'))
    await until(async () => JSON.stringify(await stored()).includes('"after":"1h"'), 'the other time')
    expect((await stored()).source).toEqual({ type: 'silence', channels: [steam], after: '1h' })
    await visitor.go(`/d/${domain}/rules`)
    await seen('no message for 1h')
    await page.getByRole('grid', { name: 'Rules' }).getByRole('link', { name: 'gone' }).click()
    await button('Edit').click()
    await dialog().getByLabel('Watches').selectOption('messages')
    await dialog().getByLabel('Condition').fill('value > 30.0')
    await press(change, () => confirm('Save'))
    await until(async () => (await stored()).condition === 'value > 30.0', 'the condition')
    expect((await stored()).source).toEqual({ type: 'messages', channels: [steam] })
    // A task can decide instead of an expression.
    await button('Edit').click()
    await dialog().getByLabel('Decided by', { exact: true }).selectOption({ label: 'judge' })
    expect(await dialog().getByLabel('Condition').count()).toBe(0)
    await press(change, () => confirm('Save'))
    await until(async () => (await stored()).condition === '', 'the task that decides')
    expect(await stored()).toMatchObject({ condition_task: task })
    await page.getByRole('link', { name: 'judge' }).waitFor()
  })

  test('rules: a rule at certain times is created, and becomes a report without values', async () => {
    const domain = await newDomain('Timed')
    const steam = await made(`/${domain}/channels`, { name: 'steam' })
    const water = await made(`/${domain}/channels`, { name: 'water' })
    await visitor.go(`/d/${domain}/rules`)
    await button('New rule').click()
    await dialog().getByLabel('Name', { exact: true }).fill('mornings')
    await dialog().getByLabel('Watches').selectOption('schedule')
    await dialog().getByLabel('Starts', { exact: true }).selectOption({ label: 'Every week' })
    await dialog().getByLabel('Day').selectOption({ label: 'Wednesday' })
    await dialog().getByLabel('At', { exact: true }).fill('07:30')
    await dialog().getByLabel('Time zone').fill('Europe/Berlin')
    await dialog().getByLabel('Catch up once').check()
    await dialog().getByLabel('Add a channel').selectOption({ label: 'steam' })
    const submit = button('Create rule', dialog())
    expect(await submit.getAttribute('title')).toMatch(/^An alarm needs names and a condition/)
    await dialog().getByLabel('Names').fill('temperature')
    await dialog().getByLabel('Condition').fill('mean("24h") > 26.0')
    await press('rooms/messages/rules/rules.tsx POST /{domain_id}/rules', () => confirm('Create rule'))
    await headed('mornings')
    const rule = /\/rules\/([^/?]+)/.exec(page.url())?.[1] ?? ''
    const stored = async () => await api<{ source: object; condition: string }>('GET', `/${domain}/rules/${rule}`)
    const times = { type: 'schedule', channels: [steam], schedule: '30 7 * * 3', timezone: 'Europe/Berlin' }
    expect(await stored()).toMatchObject({
      source: { ...times, names: ['temperature'], catch_up: 'once' },
      condition: 'mean("24h") > 26.0',
    })
    await button('Edit').click()
    await dialog().getByLabel('Names').fill('')
    await dialog().getByLabel('Catch up once').uncheck()
    await dialog().getByLabel('What action 1 does').selectOption({ label: 'Publish a message' })
    await dialog().getByLabel('Publishes to').selectOption({ label: 'water' })
    await press('rooms/messages/rules/rule.tsx PATCH /{domain_id}/rules/{rule_id}', () => confirm('Save'))
    await until(async () => (await stored()).condition === '', 'the report')
    const report = await stored()
    expect(report.source).toEqual(times)
    expect(report).toMatchObject({ actions: [{ type: 'publish', channel: water, on: ['raise'] }] })
    await visitor.go(`/d/${domain}/rules`)
    await seen('at 30 7 * * 3')
  })

  test('rules: a rule about the state of clients is created and changed', async () => {
    const domain = await newDomain('Stated')
    const steam = await made(`/${domain}/channels`, { name: 'steam' })
    await visitor.go(`/d/${domain}/rules`)
    await button('New rule').click()
    await dialog().getByLabel('Name', { exact: true }).fill('outdated')
    await dialog().getByLabel('Watches').selectOption('state')
    for (const label of ['Names', 'Subtopic', 'Silent after', 'Windows are over'])
      expect(await dialog().getByLabel(label, { exact: true }).count(), label).toBe(0)
    await dialog().getByLabel('Document').fill('a b')
    await dialog().getByLabel('Condition').fill('has(delta.firmware)')
    await dialog().getByLabel('Must hold for', { exact: true }).fill('1h')
    await button('Create rule', dialog()).click()
    await dialog()
      .getByText(/^Document must have 1 to 64 letters/)
      .waitFor()
    await dialog().getByLabel('Document').fill('config')
    await press('rooms/messages/rules/rules.tsx POST /{domain_id}/rules', () => confirm('Create rule'))
    await headed('outdated')
    const rule = /\/rules\/([^/?]+)/.exec(page.url())?.[1] ?? ''
    const stored = async () => await api<{ source: object; condition: string }>('GET', `/${domain}/rules/${rule}`)
    expect(await stored()).toMatchObject({
      source: { type: 'state', document: 'config' },
      condition: 'has(delta.firmware)',
      for: '1h',
    })
    await seen('The state of clients: documents and connections')
    await button('Edit').click()
    await dialog().getByLabel('Document').fill('')
    await dialog().getByLabel('Condition').fill('!online')
    await dialog().getByLabel('Add a channel').selectOption({ label: 'steam' })
    await press('rooms/messages/rules/rule.tsx PATCH /{domain_id}/rules/{rule_id}', () => confirm('Save'))
    await until(async () => (await stored()).condition === '!online', 'the other condition')
    expect((await stored()).source).toEqual({ type: 'state', channels: [steam] })
    await seen('the one without a name')
  })

  test('maintenance: planned, changed and deleted', async () => {
    const domain = await newDomain('Maintained')
    await made(`/${domain}/clients`, { name: 'boiler' })
    await made(`/${domain}/groups`, { name: 'hall' })
    const { id: rule } = await api<{ id: string }>('POST', `/${domain}/rules`, {
      name: 'quiet',
      source: { type: 'silence', after: '1h' },
      actions: [{ type: 'alarm' }],
    })
    const stored = async () =>
      (await api<{ maintenance_windows: Record<string, unknown>[] }>('GET', `/${domain}/maintenance-windows`))
        .maintenance_windows
    await visitor.go(`/d/${domain}/alarms`)
    await page.getByRole('link', { name: 'Maintenance' }).click()
    await seen('No maintenance is planned')
    await button('Plan maintenance').click()
    await dialog().getByLabel('Name', { exact: true }).fill('updates')
    await dialog().getByLabel('From').fill('2020-01-01T00:00:00')
    await dialog().getByLabel('Until').fill('2019-01-01T00:00:00')
    await dialog().getByLabel('Add a rule').selectOption({ label: 'quiet' })
    await dialog().getByLabel('Add a client').selectOption({ label: 'boiler' })
    await button('Plan', dialog()).click()
    // It ends before it starts.
    await dialog()
      .getByText(/^Until /)
      .waitFor()
    await dialog().getByLabel('Until').fill('2040-01-01T00:00:00')
    await press('rooms/messages/maintenance/maintenance.tsx POST /{domain_id}/maintenance-windows', () =>
      confirm('Plan'),
    )
    const row = page.getByRole('grid', { name: 'Maintenance windows' }).locator('[data-row]')
    await row.getByText('In maintenance').waitFor()
    await row.getByText('rule quiet, client boiler').waitFor()
    await row.getByText(/^in \d+ y/).waitFor()
    expect(await stored()).toMatchObject([{ name: 'updates', rules: [rule] }])

    await button('Edit updates').click()
    await dialog().getByRole('button', { name: 'Remove boiler' }).click()
    await dialog().getByLabel('Add a group').selectOption({ label: 'hall' })
    await button('Repeated', dialog()).click()
    await dialog().getByLabel('Lasts').fill('10s')
    await button('Save', dialog()).click()
    await dialog()
      .getByText(/^Lasts /)
      .waitFor()
    await dialog().getByLabel('Lasts').fill('90m')
    await dialog().getByLabel('Time zone').fill('Europe/Berlin')
    await press('rooms/messages/maintenance/maintenance.tsx PATCH /{domain_id}/maintenance-windows/{window_id}', () =>
      confirm('Save'),
    )
    await row.getByText('rule quiet, group hall').waitFor()
    expect(await stored()).toMatchObject([
      { schedule: '0 2 * * 0', timezone: 'Europe/Berlin', duration: '1h30m', clients: [] },
    ])

    await button('Delete updates').click()
    await press('rooms/messages/maintenance/maintenance.tsx DELETE /{domain_id}/maintenance-windows/{window_id}', () =>
      confirm('Delete'),
    )
    await seen('No maintenance is planned')
    expect(await stored()).toEqual([])
  })

  test('rules: created, disabled, enabled, changed and deleted; a fault of an expression and a pause are explained', async () => {
    const domain = await newDomain('Ruled')
    const steam = await made(`/${domain}/channels`, { name: 'steam' })
    const water = await made(`/${domain}/channels`, { name: 'water' })
    await visitor.go(`/d/${domain}/rules`)
    await seen('No rules yet')
    await button('New rule').click()
    await dialog().getByLabel('Name', { exact: true }).fill('heat')
    await dialog().getByLabel('Add a channel').selectOption({ label: 'steam' })
    await dialog().getByLabel('Names').fill('a, b')
    await dialog().getByLabel('Condition').fill('value >\n  limit')
    await dialog().getByLabel('Severity').selectOption('major')
    await dialog().getByLabel('Text of the alarm').fill('{{ name }} is hot')
    await button('Add an action', dialog()).click()
    const submit = button('Create rule', dialog())
    expect(await submit.getAttribute('title')).toBe('Choose the channel first')
    await dialog().getByLabel('Publishes to').selectOption({ label: 'water' })
    await dialog().getByLabel('Subtopic of the message').fill('hot')
    await dialog().getByLabel('when it ends').check()
    // The place of the fault is at the field, and so is what is wrong with the others.
    await submit.click()
    await dialog()
      .getByText(/^Condition is invalid at line 2, column 3: /)
      .waitFor()
    expect(await dialog().getByLabel('Condition').getAttribute('aria-invalid')).toBe('true')
    await dialog().getByLabel('Condition').fill('value > 30.0')
    await dialog().getByLabel('Cooldown').fill('soon')
    await submit.click()
    await dialog()
      .getByText(/^Cooldown /)
      .waitFor()
    await dialog().getByLabel('Cooldown').fill('')
    await dialog().getByLabel('Text of the alarm').fill('{{ name ')
    await submit.click()
    await dialog()
      .getByText(/^Text of the alarm is invalid at line 1, column \d+: /)
      .waitFor()
    await dialog().getByLabel('Text of the alarm').fill('{{ name }} is hot')
    await press('rooms/messages/rules/rules.tsx POST /{domain_id}/rules', () => confirm('Create rule'))
    await headed('heat')
    await seen('it raises at once')
    const rule = /\/rules\/([^/?]+)/.exec(page.url())?.[1] ?? ''
    type Stored = { status: string; seen: number; actions: object[]; source: object; paused?: object }
    const stored = async () => await api<Stored>('GET', `/${domain}/rules/${rule}`)
    const created = await stored()
    expect(created).toMatchObject({
      name: 'heat',
      severity: 'major',
      source: { type: 'messages', channels: [steam], names: ['a', 'b'] },
      condition: 'value > 30.0',
      actions: [
        { type: 'alarm', text: '{{ name }} is hot' },
        { type: 'publish', channel: water, subtopic: 'hot', on: ['raise', 'clear'] },
      ],
    })
    await page.getByRole('link', { name: 'water' }).waitFor()
    await publish(domain, steam, [
      { n: 'a', v: 31 },
      { n: 'b', v: 20 },
      { n: 'c', v: 50 },
    ])
    await seen('2 records and JSON objects')
    const done = page.locator('.card').filter({ hasText: 'What it has done' })
    await done.getByRole('link', { name: '1', exact: true }).click()
    await page.getByRole('grid', { name: 'Alarms' }).getByRole('link', { name: 'a is hot' }).click()
    await page.getByRole('link', { name: 'heat' }).click()
    await headed('heat')

    const state = page.locator('.page-head .state')
    await press('rooms/messages/rules/rule.tsx POST /{domain_id}/rules/{rule_id}/disable', () =>
      button('Disable').click(),
    )
    await state.getByText('Disabled').waitFor()
    expect((await stored()).status).toBe('disabled')
    const row = page.getByRole('grid', { name: 'Rules' }).locator('[data-row]').filter({ hasText: 'heat' })
    await visitor.go(`/d/${domain}/rules`)
    await row.getByText('Disabled').waitFor()
    await row.getByRole('link', { name: 'heat' }).click()
    await press('rooms/messages/rules/rule.tsx POST /{domain_id}/rules/{rule_id}/enable', () =>
      button('Enable').click(),
    )
    await state.getByText('Enabled').waitFor()

    await api('DELETE', `/${domain}/channels/${water}`)
    await publish(domain, steam, [{ n: 'b', v: 31 }])
    await page.getByText(/^It is paused: .*requires publish on the channel/).waitFor()
    await button('Resume').waitFor()
    await visitor.go(`/d/${domain}/rules`)
    await row.getByText('Paused').waitFor()
    await row.getByRole('link', { name: 'heat' }).click()
    await button('Edit').click()
    await button('Remove action 2', dialog()).click()
    const change = 'rooms/messages/rules/rule.tsx PATCH /{domain_id}/rules/{rule_id}'
    await press(change, () => confirm('Save'))
    await state.getByText('Enabled').waitFor()
    await until(async () => (await stored()).seen === 3, 'the message that waited')
    const changed = await stored()
    expect(changed).toMatchObject({ actions: [created.actions[0]], source: created.source })
    expect(changed.paused).toBeUndefined()

    await visitor.go(`/d/${domain}/rules?status=disabled`)
    await seen('No rule matches')
    await button('Clear filters').click()
    await page.getByRole('grid', { name: 'Rules' }).getByRole('link', { name: 'heat' }).click()
    await menu('Delete')
    await dialog()
      .getByText(/2 open alarms of it are cleared/)
      .waitFor()
    await press('rooms/messages/rules/rule.tsx DELETE /{domain_id}/rules/{rule_id}', () => confirm('Delete rule'))
    await headed('Rules')
    await seen('No rules yet')
    const { total } = await api<{ total: number }>('GET', `/${domain}/alarms?status=cleared`)
    expect(total).toBe(2)
  })

  test('messages beyond the rate of a new trigger wait, one that was there keeps what it does, and the task says so', async () => {
    const domain = await newDomain('Rates')
    const steam = await made(`/${domain}/channels`, { name: 'steam' })
    const task = await made('/tasks', { name: 'sum', domain_id: domain, file: fileOf(ADD) })
    type Trigger = { rate_limit?: string; excess?: string; name?: string }
    const trigger = async () => (await api<{ trigger: Trigger }>('GET', `/tasks/${task}`)).trigger
    const change = async (fill: () => Promise<unknown>) => {
      await button('Trigger').click()
      await fill()
      await confirm('Save')
    }
    const beyond = () => dialog().getByLabel('Messages beyond it')
    await visitor.go(`/d/${domain}/tasks/${task}/rules`)
    await change(async () => {
      await dialog().getByLabel('Start for each message of').selectOption({ label: 'steam' })
      expect(await beyond().count()).toBe(0)
      await dialog().getByLabel('Runs at most').fill('1/1h')
      expect(await beyond().inputValue()).toBe('wait')
    })
    expect(await trigger()).toMatchObject({ rate_limit: '1/1h', excess: 'wait' })
    await seen('1/1h; further messages wait')
    await publish(
      domain,
      steam,
      [1, 2, 3].map((v) => ({ n: 'a', v, t: 1_700_000_000 + v })),
    )
    await seen(/messages since .* wait in their channel/)
    await page.route(`**/tasks/${task}?recent=true`, async (route) => {
      const response = await route.fetch()
      const json = (await response.json()) as { trigger_status?: { expired: number } }
      if (json.trigger_status !== undefined) json.trigger_status.expired = 2
      await route.fulfill({ response, json })
    })
    await seen(/matched, 0 dropped, 2 expired after a week of waiting/)
    await page.unroute(`**/tasks/${task}?recent=true`)

    await change(async () => void (await beyond().selectOption('drop')))
    expect(await trigger()).toMatchObject({ rate_limit: '1/1h', excess: 'drop' })
    // As a program wrote it: without a word about excess.
    await api('PUT', `/tasks/${task}`, { trigger: { channel_id: steam, rate_limit: '5/1m' } })
    await seen('5/1m; further messages are dropped')
    await change(async () => {
      expect(await beyond().inputValue()).toBe('drop')
      await dialog().getByLabel('Only records named').fill('pressure')
    })
    expect(await trigger()).toEqual({ channel_id: steam, rate_limit: '5/1m', name: 'pressure' })
    await change(async () => {
      await dialog().getByLabel('Messages per run').fill('100')
      await dialog().getByLabel('Messages run').selectOption('client')
    })
    expect(await trigger()).toMatchObject({ batch: 100, order: 'client' })
    await seen('up to 100, as a list')
    await seen('one after another for each client')
    await api('PUT', `/tasks/${task}`, { trigger: { channel_id: steam, rate_limit: '5/1m', debounce: '5s' } })
    await visitor.go(`/d/${domain}/tasks/${task}/rules`)
    await seen('5/1m; further messages are dropped')
    await button('Trigger').click()
    await dialog().getByLabel('Runs at most').waitFor()
    expect(await beyond().count(), 'with debounce').toBe(0)
    await button('Cancel', dialog()).click()
  })

  test('notifications: subscribed, confirmed again and deleted; what was not delivered is tried again and discarded', async () => {
    const domain = await newDomain('Notified')
    const steam = await made(`/${domain}/channels`, { name: 'steam' })
    await visitor.go('/account/notifications')
    const subscribe = async (contact: string) => {
      await button('New subscription').click()
      await dialog().getByLabel('Topic').fill(`m/${domain}/c/${steam}`)
      await dialog().getByLabel('Contact').fill(contact)
      await press('rooms/provisioning/notifications.tsx POST /subscriptions', () => confirm('Create subscription'))
    }
    await subscribe('ann@example.com')
    const url = `http://${webhook.host}/steam`
    await subscribe(url)
    const row = (contact: string) =>
      page.getByRole('grid', { name: 'Subscriptions' }).locator('[data-row]').filter({ hasText: contact })
    await row('ann@example.com').getByText('Not confirmed').waitFor()
    await row('ann@example.com').getByRole('link').click()
    await headed('ann@example.com')
    await press('rooms/provisioning/notifications.tsx POST /subscriptions/{subscription_id}/confirmation', () =>
      button('Send the link again').click(),
    )
    await menu('Delete')
    await press('rooms/provisioning/notifications.tsx DELETE /subscriptions/{subscription_id}', () =>
      button('Delete subscription', dialog()).click(),
    )
    await headed('Notifications')
    await row('ann@example.com').waitFor({ state: 'detached' })

    webhook.contact.status = 410
    const records = [1, 2, 3, 4, 5].map((v) => ({ n: 'a', v }))
    await publish(domain, steam, records)
    await row(url).getByText('Failing').waitFor()
    await row(url).getByRole('link').click()
    await headed(url)
    await lettersLeft(5)
    const letter = (v: number) => letterRows().filter({ hasText: `"v":${v}` })
    await button('Show the dead letter', letter(2)).click()
    await dialog().getByLabel('message', { exact: true }).getByText('"payload"').waitFor()
    await dialog().getByText(/410/).waitFor()
    await button('Close', dialog()).click()
    webhook.contact.status = 200
    await press('rooms/provisioning/notifications.tsx POST /subscriptions/{subscription_id}/dead-letters/retry', () =>
      button('Retry the dead letter', letter(2)).click(),
    )
    const delivered = async (...values: number[]) =>
      await until(
        () =>
          webhook.contact.payloads
            .map((payload) => (JSON.parse(payload) as [{ v: number }])[0].v)
            .toSorted((one, other) => one - other)
            .join() === values.join(),
        `the values ${values.join()} at the webhook`,
      )
    await delivered(2)
    await lettersLeft(4)
    await button('Discard the dead letter', letter(5)).click()
    await press('rooms/provisioning/notifications.tsx POST /subscriptions/{subscription_id}/dead-letters/discard', () =>
      confirm('Discard'),
    )
    await lettersLeft(3)
    await button('Retry all').click()
    await seen('No dead letters')
    await delivered(1, 2, 3, 4)

    webhook.contact.status = 410
    await publish(domain, steam, records.slice(0, 2))
    await lettersLeft(2)
    await button('Discard all').click()
    await dialog().getByText('Discard all 2 dead letters').waitFor()
    await confirm('Discard')
    await seen('No dead letters')
    await page.route('**/subscriptions/*', async (route) => {
      const response = await route.fetch()
      const json = { ...((await response.json()) as object), behind_since: '2026-01-02T03:04:05.000000Z', missed: 2 }
      await route.fulfill({ response, json })
    })
    await seen(/messages since .* wait in their channel/)
    await seen('2 messages waited for longer than a week')
    await page.unroute('**/subscriptions/*')
  })

  test('rules: mails and webhooks are actions, and what a contact did not accept is retried and discarded', async () => {
    const domain = await newDomain('Told')
    const steam = await made(`/${domain}/channels`, { name: 'steam' })
    await visitor.go(`/d/${domain}/rules`)
    await button('New rule').click()
    await dialog().getByLabel('Name', { exact: true }).fill('told')
    await dialog().getByLabel('Add a channel').selectOption({ label: 'steam' })
    await dialog().getByLabel('Condition').fill('value > 30.0')
    const submit = button('Create rule', dialog())
    await button('Add an action', dialog()).click()
    await dialog().getByLabel('What action 2 does').selectOption({ label: 'Send a mail' })
    expect(await submit.getAttribute('title')).toBe('Give an address first')
    await dialog().getByLabel('To', { exact: true }).fill('admin@example.com, nobody')
    await dialog().getByLabel('Subject').fill('{{ name }}')
    await dialog().getByLabel('Text of the mail').fill('{{ value }}')
    await button('Add an action', dialog()).click()
    await dialog().getByLabel('What action 3 does').selectOption({ label: 'Call a webhook' })
    expect(await submit.getAttribute('title')).toBe('Give the URL first')
    const url = `http://${webhook.host}/told`
    await dialog().getByLabel('URL').fill(url)
    await dialog().getByLabel('JSON of the request').fill('{"payload": "{{ value }}"}')
    await dialog().getByRole('group', { name: 'When action 3 acts' }).getByLabel('at each further message').check()
    await button('Add an action', dialog()).click()
    await dialog().getByLabel('What action 4 does').selectOption({ label: 'Call a webhook' })
    await dialog().getByLabel('URL').nth(1).fill(url)
    const moments = dialog().getByRole('group', { name: 'When action 4 acts' })
    await moments.getByLabel('when it begins to hold').uncheck()
    await moments.getByLabel('when nobody acknowledges its alarm for some time').check()
    await moments.getByLabel('Not acknowledged for').fill('30s')
    await submit.click()
    await dialog().getByText('must be between 1m and 168h').waitFor()
    await moments.getByLabel('Not acknowledged for').fill('2h')
    await submit.click()
    await dialog().getByText('must be an email address').waitFor()
    await dialog().getByLabel('To', { exact: true }).fill('admin@example.com')
    await press('rooms/messages/rules/rules.tsx POST /{domain_id}/rules', () => confirm('Create rule'))
    await headed('told')
    const rule = /\/rules\/([^/?]+)/.exec(page.url())?.[1] ?? ''
    const stored = await api<{ actions: object[] }>('GET', `/${domain}/rules/${rule}`)
    expect(stored.actions).toEqual([
      { type: 'alarm' },
      { type: 'mail', to: ['admin@example.com'], subject: '{{ name }}', text: '{{ value }}', on: ['raise'] },
      { type: 'webhook', url, payload: '{"payload": "{{ value }}"}', on: ['raise', 'repeat'] },
      { type: 'webhook', url, on: ['escalate'], after: '2h' },
    ])
    await seen(/when nobody acknowledges its alarm for 2h/)
    const contacts = page.locator('.card').filter({ hasText: 'Contacts' })
    await contacts.getByText(url).waitFor()
    await button('Copy signing secret', contacts).waitFor()

    webhook.contact.status = 410
    await publish(
      domain,
      steam,
      [31, 32, 33].map((v) => ({ n: 'a', v })),
    )
    await lettersLeft(3)
    await contacts.getByText(/responded with status 410/).waitFor()
    await button('Show the dead letter', letterRows().first()).click()
    await dialog().getByLabel('message', { exact: true }).getByText('payload').waitFor()
    await button('Close', dialog()).click()
    await button('Discard the dead letter', letterRows().first()).click()
    await press('rooms/messages/rules/contacts.tsx POST /{domain_id}/rules/{rule_id}/dead-letters/discard', () =>
      confirm('Discard'),
    )
    await lettersLeft(2)
    webhook.contact.status = 200
    webhook.contact.payloads.length = 0
    await press('rooms/messages/rules/contacts.tsx POST /{domain_id}/rules/{rule_id}/dead-letters/retry', () =>
      button('Retry all').click(),
    )
    await until(() => webhook.contact.payloads.length === 2, 'the two letters at the webhook')
    await letterRows().first().waitFor({ state: 'detached' })
    await contacts.getByText(/responded with status 410/).waitFor({ state: 'detached' })
  })

  test('workflows: created, started, stopped and deleted', async () => {
    const domain = await newDomain('Workflows')
    await visitor.go(`/d/${domain}/workflows`)
    await button('New workflow').click()
    await dialog().getByLabel('Name', { exact: true }).fill('report')
    await dialog().getByLabel('Name of the task').fill('sum')
    await press('rooms/manager/workflow-dialog.tsx POST /workflows', () => button('Create workflow', dialog()).click())
    await headed('report')
    // Without its module, it is not left behind.
    await page.route('**/upload', (route) =>
      route.fulfill({ status: 422, contentType: 'application/json', body: '{"message":"not a module"}' }),
    )
    await visitor.go(`/d/${domain}/workflows?create=1`)
    await dialog().getByLabel('Name', { exact: true }).fill('refused')
    await dialog().getByLabel('Name of the task').fill('sum')
    await dialog().getByLabel('Module', { exact: true }).selectOption({ label: 'a file' })
    await dialog().getByLabel('Module file').setInputFiles(ADD)
    await press('rooms/manager/workflow-dialog.tsx DELETE /workflows/{workflow_id}', () =>
      button('Create workflow', dialog()).click(),
    )
    await seen(/The workflow was not created: not a module/)
    await page.unroute('**/upload')
    expect((await api<{ total: number }>('GET', `/workflows?domain_id=${domain}&name=refused`)).total).toBe(0)
    const tasks = [{ name: 'first', file: fileOf(ENDLESS) }]
    const workflow = await made('/workflows', { name: 'endless', domain_id: domain, tasks })
    await visitor.go(`/d/${domain}/workflows/${workflow}`)
    await press('rooms/manager/workflows.tsx POST /workflows/{workflow_id}/start', () => button('Start').click())
    await press('rooms/manager/workflows.tsx POST /workflows/{workflow_id}/stop', () => button('Stop').click())
    await button('Start').waitFor()
    await menu('Delete')
    await press('rooms/manager/workflows.tsx DELETE /workflows/{workflow_id}', () =>
      button('Delete workflow', dialog()).click(),
    )
    await headed('Workflows')
  })

  test('workers: one joins with a token, is drained, resumed and removed', async () => {
    await visitor.go('/platform')
    await press('rooms/manager/worker-list.tsx POST /workers/tokens', () => button('Join a worker').click())
    const token = (await page.getByLabel('token', { exact: true }).textContent()) ?? ''
    await page.keyboard.press('Escape')
    using worker = startVisitingWorker(running.installation, { token, name: 'visitor' })
    const row = page.getByRole('region', { name: 'Workers' }).getByRole('row').filter({ hasText: 'visitor' })
    await row.getByText('Alive').waitFor()
    await press('rooms/manager/worker-list.tsx POST /workers/{worker_id}/drain', () =>
      menu('Drain', 'Actions for visitor'),
    )
    await row.getByText('Draining').waitFor()
    await press('rooms/manager/worker-list.tsx POST /workers/{worker_id}/resume', () =>
      menu('Resume', 'Actions for visitor'),
    )
    await row.getByText('Alive').waitFor()
    worker.kill()
    await row.getByText('Dead').waitFor()
    await menu('Remove', 'Actions for visitor')
    await press('rooms/manager/worker-list.tsx DELETE /workers/{worker_id}', () => confirm('Remove worker'))
    await row.waitFor({ state: 'detached' })
  })

  test('provisioning: a device is created, a certificate is issued and revoked', async () => {
    const domain = await newDomain('Provisioned')
    await visitor.go(`/d/${domain}/provisioning`)
    await page.getByLabel('External id').fill('gw-18')
    await press('rooms/provisioning/provisioning.tsx POST /{domain_id}/mapping', () => button('Create device').click())
    await headed('Created for gw-18')
    const client = await made(`/${domain}/clients`, { name: 'pump' })
    await visitor.go(`/d/${domain}/certificates?client=${client}`)
    await button('Issue certificate').click()
    await press('rooms/certificates/certificates.tsx POST /{domain_id}/certs/issue/{client_id}', () =>
      button('Issue certificate', dialog()).click(),
    )
    await button('Done').click()
    await button('Close without it').click()
    await button('Revoke', page.getByRole('grid')).click()
    await press('rooms/certificates/certificates.tsx POST /{domain_id}/certs/{serial}/revoke', () => confirm('Revoke'))
    // The filter of the table is one that the server knows.
    await visitor.go(`/d/${domain}/certificates?state=valid`)
    await seen('No certificate matches')
  })

  test('profiles: one is created, previewed and changed, a device is enrolled and fetches it, an unused one is deleted', async () => {
    const domain = await newDomain('Profiles')
    const channel = await made(`/${domain}/channels`, { name: 'readings' })
    await visitor.go(`/d/${domain}/profiles`)
    await seen('No profiles yet')
    await button('New profile').click()
    await dialog().getByLabel('Name', { exact: true }).fill('gateway')
    await press('rooms/provisioning/profiles.tsx POST /{domain_id}/clients/bootstrap/profiles', () =>
      button('Create profile', dialog()).click(),
    )
    await button('Preview gateway').click()
    await dialog().getByLabel('Values of .Vars, as JSON').fill('[1]')
    await button('Render', dialog()).click()
    await dialog().getByText('an object of JSON').waitFor()
    await dialog().getByLabel('Values of .Vars, as JSON').fill('{"broker": "mqtt.plant.example"}')
    await press(
      'rooms/provisioning/profiles.tsx POST /{domain_id}/clients/bootstrap/profiles/{profile_id}/render-preview',
      () => button('Render', dialog()).click(),
    )
    await dialog()
      .getByLabel('configuration', { exact: true })
      .getByText(/mqtt\.plant\.example/)
      .waitFor()
    await button('Cancel', dialog()).click()
    await button('Edit gateway').click()
    await button('Add a slot', dialog()).click()
    await dialog().getByLabel('Slot 3', { exact: true }).fill('alarms')
    await press('rooms/provisioning/profiles.tsx PATCH /{domain_id}/clients/bootstrap/profiles/{profile_id}', () =>
      button('Save', dialog()).click(),
    )
    await seen('device, telemetry, alarms')
    await button('Enrol').click()
    await dialog().getByLabel('External id').fill('gw-7')
    const key = await dialog().getByLabel('External key').inputValue()
    expect(await button('Enrol device', dialog()).getAttribute('title')).toBe('Choose a channel for telemetry')
    await dialog().getByLabel('Channel of telemetry').selectOption({ label: 'readings' })
    await press('rooms/provisioning/profiles.tsx POST /{domain_id}/clients/configs', () =>
      button('Enrol device', dialog()).click(),
    )
    await dialog().getByText('The device fetches its configuration').waitFor()
    const fetched = await fetch(`${running.installation.base}/clients/bootstrap/gw-7`, {
      headers: { authorization: `Client ${key}` },
    })
    const content = JSON.parse(((await fetched.json()) as { content: string }).content) as Record<string, string>
    expect(content).toMatchObject({ broker: 'mqtts://broker.example.com:8883' })
    expect(content['topic']).toContain(channel)
    await button('Cancel', dialog()).click()
    // The one that a device uses stays.
    await button('Delete gateway').click()
    await button('Delete profile', dialog()).click()
    await dialog()
      .getByText(/The profile was not deleted/)
      .waitFor()
    await button('Cancel', dialog()).click()
    await made(`/${domain}/clients/bootstrap/profiles`, {
      name: 'spare',
      content_template: '{}',
      content_format: 'json',
    })
    await page.reload()
    await button('Delete spare').click()
    await press('rooms/provisioning/profiles.tsx DELETE /{domain_id}/clients/bootstrap/profiles/{profile_id}', () =>
      button('Delete profile', dialog()).click(),
    )
  })

  test('personal access tokens are created with scopes, revoked and deleted', async () => {
    await newDomain('Tokens')
    await visitor.go('/account')
    await button('New token').click()
    await dialog().getByLabel('Name').fill('build server')
    await dialog().getByLabel('Domain').selectOption({ label: 'Tokens' })
    await dialog()
      .getByLabel(/Read messages/)
      .check()
    await press(
      [
        'rooms/identity/personal-tokens.tsx POST /pats',
        'rooms/identity/personal-tokens.tsx PATCH /pats/{pat_id}/scope/add',
      ],
      () => button('Create token', dialog()).click(),
    )
    await button('Copy token').click()
    await button('Done', dialog()).click()
    await dialog().waitFor({ state: 'detached' })
    await press('rooms/identity/personal-tokens.tsx PATCH /pats/{pat_id}/secret/revoke', () =>
      menu('Revoke', 'Actions for build server'),
    )
    await seen('Revoked')
    await menu('Delete', 'Actions for build server')
    await press('rooms/identity/personal-tokens.tsx DELETE /pats/{pat_id}', () => confirm('Delete token'))
    await seen('No tokens')
  })

  test('users of the platform are disabled, enabled, made administrators and deleted', async () => {
    await newUser('udo')
    await visitor.go('/platform/users?name=udo')
    const drawer = page.getByRole('dialog', { name: 'User', exact: true })
    const act = async (item: string, control: Control, submit: string) => {
      await button(item, drawer).click()
      const question = page.getByRole('dialog').last()
      await press(control, () => button(submit, question).click())
    }
    await button('Manage udo').click()
    await act('Disable', 'rooms/identity/users.tsx POST /users/{user_id}/disable', 'Disable user')
    await press('rooms/identity/users.tsx POST /users/{user_id}/enable', () => button('Enable', drawer).click())
    await act('Make administrator', 'rooms/identity/users.tsx PATCH /users/{user_id}/role', 'Make administrator')
    await drawer.getByText('administrator of the platform').waitFor()
    await act('Remove administrator role', 'rooms/identity/users.tsx PATCH /users/{user_id}/role', 'Remove role')
    await button('Make administrator', drawer).waitFor()
    await act('Delete', 'rooms/identity/users.tsx DELETE /users/{user_id}', 'Delete user')
    await drawer.waitFor({ state: 'detached' })
    await page.getByRole('grid').getByText('Deleted').waitFor()
  })

  test('files of clients, channels and connections are imported', async () => {
    const domain = await newDomain('Imported')
    await visitor.go(`/d/${domain}/import`)
    const bring = async (kind: 'Clients' | 'Channels' | 'Connections', control: Control, text: string) => {
      await button(kind).click()
      await page
        .getByLabel('CSV file to import')
        .setInputFiles({ name: 'file.csv', mimeType: 'text/csv', buffer: Buffer.from(text) })
      await press(control, () => button(/^Create 1 /).click())
      await seen(/^1 \w+ is created/)
    }
    await bring('Clients', 'rooms/provisioning/import.tsx POST /{domain_id}/clients/import', 'name\npump\n')
    await bring('Channels', 'rooms/provisioning/import.tsx POST /{domain_id}/channels/import', 'name\nsteam\n')
    const first = async (what: string) =>
      (await api<Record<string, Id[]>>('GET', `/${domain}/${what}`))[what]?.[0]?.id ?? ''
    await bring(
      'Connections',
      'rooms/provisioning/import.tsx POST /{domain_id}/connections/import',
      `client_id,channel_id\n${await first('clients')},${await first('channels')}\n`,
    )
  })

  test('that was every control that changes something', () => {
    const left = [...controlsOfTheConsole()]
    for (const control of pressed) {
      const place = left.indexOf(control)
      if (place >= 0) left.splice(place, 1)
    }
    expect(left).toEqual([])
  })
})
