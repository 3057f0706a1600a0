// docs/guides/console.md: what a device should be and what it is, side by side, and the commands that it was given
import { connectAsync } from 'mqtt'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { freePorts } from '../harness/ports.ts'
import { until } from '../harness/until.ts'
import { accessibilityFaults, hasNoBrowser, signIn, visit } from './browser.ts'
import { startConsole } from './running-console.ts'
import type { RunningConsole } from './running-console.ts'

const SECRET = 'correct horse'
const FLEET = 102

type Client = { id: string; name: string; credentials: { secret: string } }
type State = { desired: Record<string, unknown>; version: number }
type Command = { id: string; name: string; status: string; payload?: unknown; expires_at: string }

describe.skipIf(hasNoBrowser)('state and commands of devices in the console (needs Chromium)', () => {
  let running: RunningConsole
  let mqtt: string

  beforeAll(async () => {
    ;[mqtt = ''] = (await freePorts(1)).map(String)
    running = await startConsole({ SKEIN_MQTT_PORT: mqtt })
  })
  afterAll(() => running?.[Symbol.asyncDispose]())

  async function newDevice(name: string) {
    const { made, api } = running
    const domain = await made('/domains', { name })
    const client = await api<Client>('POST', `/${domain}/clients`, { name: 'pump' })
    const path = `/${domain}/clients/${client.id}`
    return {
      domain,
      client,
      path,
      desire: async (body: object, document = '') =>
        await api<State>('PATCH', `${path}/desired-state${document}`, body),
      desired: async (document = '') => (await api<State>('GET', `${path}/desired-state${document}`)).desired,
      report: async (body: object) => await asDevice(client, 'PATCH', `/c/${domain}/state`, body),
      answer: async (id: string, body: object) =>
        await asDevice(client, 'POST', `/c/${domain}/commands/${id}/result`, body),
      commands: async () => (await api<{ commands: Command[] }>('GET', `${path}/commands`)).commands,
    }
  }
  async function asDevice(client: Client, method: string, path: string, body: object): Promise<void> {
    const answer = await fetch(`${running.installation.base}${path}`, {
      method,
      headers: { Authorization: `Client ${client.credentials.secret}`, 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    })
    expect(answer.status, await answer.text()).toBeLessThan(300)
  }

  const dialogOf = (page: Page) => page.getByRole('dialog')
  const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true })
  const sides = async (page: Page) =>
    await page
      .getByRole('table', { name: 'Desired and reported' })
      .locator('tbody tr')
      .evaluateAll((rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent)))

  test('both sides are shown by field, live, and what differs is marked', async () => {
    const { domain, client, desire, report } = await newDevice('Sides')
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/clients/${client.id}/state`)
    await page.getByText('Nothing is desired or reported yet').waitFor()
    await desire({ firmware: '1.4', led: { on: true } })
    await expect
      .poll(async () => await sides(page))
      .toEqual([
        ['firmware', '"1.4"', 'none', 'Differs'],
        ['led.on', 'true', 'none', 'Differs'],
      ])
    await report({ firmware: '1.4', battery: 87 })
    await expect
      .poll(async () => await sides(page))
      .toEqual([
        ['led.on', 'true', 'none', 'Differs'],
        ['firmware', '"1.4"', '"1.4"', 'Same'],
        ['battery', 'none', '87', 'Only reported'],
      ])
    expect(await accessibilityFaults(page)).toEqual([])
    await page.getByLabel('Only what differs (1 of 3)').check()
    expect(await sides(page)).toHaveLength(1)
    await report({ led: { on: true } })
    await page.locator('.card').filter({ hasText: 'Desired' }).getByText('In sync').waitFor()
    await page.getByRole('link', { name: 'Guide for this page' }).click()
    await page.getByRole('heading', { name: 'Desired and reported state' }).waitFor()
  })

  test('an edit keeps types, reports do not disturb it, and a change of another user is shown before it is replaced', async () => {
    const { domain, client, desire, desired, report } = await newDevice('Edited')
    await desire({ code: '12', count: 12, on: false, list: [1, 2], big: 1 })
    // A number of JavaScript would round it.
    const big = '9007199254740993'
    await using visitor = await running.asAdmin()
    const { page } = visitor
    const dialog = dialogOf(page)
    await visitor.go(`/d/${domain}/clients/${client.id}/state`)
    await button(page, 'Edit').nth(1).click()
    const valueOf = (at: number) => dialog.getByLabel(`Value of field ${at}`)
    const rowOf = async (name: string) => {
      const all = await dialog
        .getByLabel(/^Field \d+$/)
        .evaluateAll((fields) => fields.map((field) => (field as unknown as { value: string }).value))
      return all.indexOf(name) + 1
    }
    await valueOf(await rowOf('count')).fill('13')
    await valueOf(await rowOf('big')).fill(big)
    await valueOf(await rowOf('on')).selectOption('true')
    await dialog.getByLabel(`Remove field ${await rowOf('list')}`).click()
    await button(page, 'Add field').click()
    await dialog.getByLabel('Field 5', { exact: true }).fill('led.level')
    await dialog.getByLabel('Type of field 5').selectOption({ label: 'Number' })
    await valueOf(5).fill('high')
    await button(page, 'Save').click()
    await dialog.getByText('Enter a number').first().waitFor()
    await valueOf(5).fill('3')
    expect(await accessibilityFaults(page)).toEqual([])
    // A report raises the version, and is no other change of what is desired.
    await report({ battery: 1 })
    await button(page, 'Save').click()
    await dialog.waitFor({ state: 'detached' })
    const text = async () =>
      (
        await running.whole.call('GET', `/${domain}/clients/${client.id}/desired-state`, {
          authorization: `Bearer ${running.admin}`,
        })
      ).text
    expect(await text()).toContain(`"big":${big}`)
    expect(await desired()).toMatchObject({ code: '12', count: 13, on: true, led: { level: 3 } })
    expect(await desired()).not.toHaveProperty('list')

    await button(page, 'Edit').nth(1).click()
    await button(page, 'JSON').click()
    await dialog.getByLabel('What is desired').fill('{"mine": true}')
    await desire({ count: 14 })
    await button(page, 'Save').click()
    await dialog.getByText('Another user changed what is desired').waitFor()
    expect(await dialog.getByRole('list', { name: 'Changes of the newer document' }).textContent()).toBe('count: 13 14')
    expect(await desired()).toMatchObject({ count: 14 })
    await button(page, 'Edit the newer one').click()
    await valueOf(await rowOf('count')).fill('15')
    await desire({ count: 16 })
    await button(page, 'Save').click()
    await button(page, 'Replace the newer one').click()
    await dialog.waitFor({ state: 'detached' })
    expect(await desired()).toMatchObject({ count: 15, code: '12' })
  })

  test('named documents are created, chosen and deleted', async () => {
    const { domain, client, desired } = await newDevice('Named')
    await using visitor = await running.asAdmin()
    const { page } = visitor
    const dialog = dialogOf(page)
    await visitor.go(`/d/${domain}/clients/${client.id}/state`)
    await button(page, 'New document').click()
    await dialog.getByLabel('Name', { exact: true }).fill('a/b')
    await button(page, 'Create document').click()
    await dialog
      .getByText(/Use 1 to 64 letters/)
      .first()
      .waitFor()
    await dialog.getByLabel('Name', { exact: true }).fill('config')
    await dialog.getByLabel('Field 1', { exact: true }).fill('interval')
    await dialog.getByLabel('Type of field 1').selectOption({ label: 'Number' })
    await dialog.getByLabel('Value of field 1').fill('60')
    await button(page, 'Create document').click()
    await expect.poll(async () => await sides(page)).toEqual([['interval', '60', 'none', 'Differs']])
    expect(await desired('/config')).toEqual({ interval: 60 })
    expect(new URL(page.url()).searchParams.get('document')).toBe('config')
    await button(page, 'Edit').nth(1).click()
    await dialog.getByLabel('Value of field 1').fill('90')
    await button(page, 'Save').click()
    await expect.poll(async () => await sides(page)).toEqual([['interval', '90', 'none', 'Differs']])
    await button(page, 'Actions for the document').click()
    await page.getByRole('menuitem', { name: 'Delete' }).click()
    await button(page, 'Delete document').click()
    await page.getByText('Nothing is desired or reported yet').waitFor()
    expect(await desired('/config')).toEqual({})
  })

  test('a command is given, followed to its result and cancelled', async () => {
    const { domain, client, commands, answer } = await newDevice('Commanded')
    const session = await connectAsync(`mqtt://127.0.0.1:${mqtt}`, {
      username: client.id,
      password: client.credentials.secret,
    })
    try {
      await using visitor = await running.asAdmin()
      const { page } = visitor
      const dialog = dialogOf(page)
      await visitor.go(`/d/${domain}/clients/${client.id}/commands`)
      await page.getByText('No commands yet').waitFor()
      await button(page, 'Give a command').click()
      await dialog.getByLabel('Command', { exact: true }).fill('two words')
      await button(page, 'Give command').click()
      await dialog
        .getByText(/such as reboot/)
        .first()
        .waitFor()
      await dialog.getByLabel('Command', { exact: true }).fill('reboot')
      await dialog.getByLabel('Payload').fill('{"delay": 5')
      await button(page, 'Give command').click()
      await dialog
        .getByText(/The payload is not JSON/)
        .first()
        .waitFor()
      await dialog.getByLabel('Payload').fill('{"delay": 5}')
      await dialog.getByLabel('Time-out').fill('soon')
      await button(page, 'Give command').click()
      await dialog
        .getByText(/duration/)
        .first()
        .waitFor()
      await dialog.getByLabel('Time-out').fill('2m')
      await dialog.getByLabel('Expires').selectOption({ label: 'in 30 days' })
      await button(page, 'Give command').click()
      await dialog.waitFor({ state: 'detached' })
      const row = page.getByRole('row').filter({ hasText: 'reboot' })
      await row.getByText('Queued').waitFor()
      const [first] = await commands()
      expect(first).toMatchObject({ name: 'reboot', payload: { delay: 5 }, timeout: '2m' })
      await session.subscribeAsync(`c/${domain}/commands/requests/+/+`, { qos: 1 })
      await row.getByText('Delivered').waitFor()
      await answer(first?.id ?? '', { status: 'failed', result: { uptime: 3 }, reason: 'the battery is low' })
      await row.getByText('Failed').waitFor()
      await row.getByText('the battery is low').waitFor()
      expect(await accessibilityFaults(page)).toEqual([])
      await row.getByRole('link', { name: 'reboot' }).click()
      await dialog.getByText('"uptime": 3').waitFor()
      expect(await button(page, 'Cancel command').getAttribute('title')).toBe('It has ended already')
      expect(await accessibilityFaults(page)).toEqual([])
      await dialog.locator('.dialog-foot').getByRole('button', { name: 'Close' }).click()

      await button(page, 'Give a command').click()
      await dialog.getByLabel('Command', { exact: true }).fill('blink')
      await button(page, 'Give command').click()
      await page.getByRole('row').filter({ hasText: 'blink' }).getByRole('link', { name: 'blink' }).click()
      await button(page, 'Cancel command').click()
      await dialog.locator('dl').getByText('Cancelled').waitFor()
      await visitor.go(`/d/${domain}/clients/${client.id}/commands?status=failed`)
      await page.getByRole('link', { name: 'reboot' }).waitFor()
      expect(await page.locator('[data-row]').count()).toBe(1)
      await page.getByRole('link', { name: 'Guide for this page' }).click()
      await page.getByRole('heading', { name: 'Commands', exact: true }).first().waitFor()
    } finally {
      await session.endAsync()
    }
  })

  test(`${FLEET} devices get what is desired and a command at once, after their number was typed, and the list says who differs`, async () => {
    const { made, api } = running
    const domain = await made('/domains', { name: 'Fleet' })
    const all = Array.from({ length: FLEET }, (_none, at) => ({ name: `meter ${String(at).padStart(3, '0')}` }))
    const answered = await api<{ clients: Client[] } | Client[]>('POST', `/${domain}/clients/bulk`, all)
    const fleet = Array.isArray(answered) ? answered : answered.clients
    const [first] = fleet
    if (first === undefined) throw new Error('no clients were created')
    await using visitor = await running.asAdmin()
    const { page } = visitor
    const dialog = dialogOf(page)
    const act = async (label: string, answer: () => Promise<void>) => {
      await page.getByLabel('Select the visible rows').check()
      await page.getByRole('button', { name: `Select all ${FLEET}` }).click()
      await page.getByText(`${FLEET} clients selected`).waitFor()
      await page.getByRole('toolbar', { name: 'Selection' }).getByRole('button', { name: label, exact: true }).click()
      const submit = dialog.getByRole('button', { name: `${label} ${FLEET} clients` })
      expect(await submit.getAttribute('title')).toBe('Answer the question first')
      await answer()
      expect(await submit.getAttribute('title')).toBe(`Type ${FLEET} first`)
      await dialog.getByLabel(`Type ${FLEET} to go on`).fill(String(FLEET))
      await submit.click()
      await dialog.getByText('Done.').waitFor()
      await dialog.locator('.dialog-foot').getByRole('button', { name: 'Close' }).click()
    }
    await visitor.go(`/d/${domain}/clients?order=name&dir=asc`)
    await act('Desired state', async () => {
      await dialog.getByLabel('Change').fill('{"firmware": ')
      await dialog.getByText(/This is not JSON/).waitFor()
      await dialog.getByLabel('Change').fill('{"firmware": "1.4"}')
    })
    await asDevice(first, 'PATCH', `/c/${domain}/state`, { firmware: '1.4' })
    const total = async (query: string) =>
      (await api<{ total: number }>('GET', `/${domain}/clients?limit=1&${query}`)).total
    expect(await total('out_of_sync=true')).toBe(FLEET - 1)
    await visitor.go(`/d/${domain}/clients?order=name&dir=asc`)
    const row = (name: string) => page.getByRole('row').filter({ hasText: name })
    await row('meter 001').getByText('Out of sync').waitFor()
    expect(await row('meter 000').getByText('Out of sync').count()).toBe(0)
    await visitor.go(`/d/${domain}/clients?sync=in%20sync`)
    await row('meter 000').waitFor()
    expect(await page.locator('[data-row]').count()).toBe(1)
    await visitor.go(`/d/${domain}/clients?sync=out%20of%20sync&order=name&dir=asc`)
    await row('meter 001').waitFor()
    expect(await row('meter 000').count()).toBe(0)
    await visitor.go(`/d/${domain}/clients?reported=${encodeURIComponent('{"firmware":"1.4"}')}`)
    await row('meter 000').waitFor()
    expect(await page.locator('[data-row]').count()).toBe(1)

    await visitor.go(`/d/${domain}/clients`)
    await act('Command', async () => {
      await dialog.getByLabel('Command', { exact: true }).fill('blink')
    })
    const given = async ({ id }: Client) =>
      (await api<{ commands: Command[] }>('GET', `/${domain}/clients/${id}/commands`)).commands.map(({ name }) => name)
    expect(await given(first)).toEqual(['blink'])
    expect(await given(fleet.at(-1) ?? first)).toEqual(['blink'])
  })

  test('a user who may only read sees why, and one with a role on one client can act on it', async () => {
    const { domain, client, desire } = await newDevice('Read')
    await desire({ firmware: '1.4' })
    const newUser = async (username: string) =>
      await running.made('/users', {
        first_name: username,
        last_name: 'Member',
        email: `${username}@example.com`,
        credentials: { username, secret: SECRET },
      })
    const vera = await newUser('vera')
    await running.api('POST', `/domains/${domain}/users/assign`, { relation: 'viewer', user_ids: [vera] })
    await using viewer = await visit(running.browser, running.installation.base)
    await signIn(viewer.page, running.installation.base, 'vera', SECRET)
    const reasonOf = async (name: string) => await button(viewer.page, name).last().getAttribute('title')
    await viewer.go(`/d/${domain}/clients/${client.id}/state`)
    await viewer.page.getByText('"1.4"').waitFor()
    await expect.poll(async () => await reasonOf('Edit')).toMatch(/has the action state_update$/)
    await expect.poll(async () => await reasonOf('New document')).toMatch(/has the action state_update$/)
    await button(viewer.page, 'Actions for the document').click()
    expect(await viewer.page.getByRole('menuitem', { name: 'Delete' }).getAttribute('title')).toMatch(/state_update$/)
    await viewer.go(`/d/${domain}/clients/${client.id}/commands`)
    await expect.poll(async () => await reasonOf('Give a command')).toMatch(/has the action command$/)
    const select = async () => {
      await viewer.go(`/d/${domain}/clients`)
      await viewer.page.getByLabel('Select the visible rows').check()
    }
    await select()
    await expect.poll(async () => await reasonOf('Command')).toMatch(/has the action client_command$/)
    await expect.poll(async () => await reasonOf('Desired state')).toMatch(/has the action client_state_update$/)

    const { role_id: role } = await running.api<{ role_id: string }>('POST', `/${domain}/clients/${client.id}/roles`, {
      role_name: 'operator',
      optional_actions: ['read', 'command'],
      optional_members: [vera],
    })
    expect(role).not.toBe('')
    await until(async () => {
      await select()
      return (await reasonOf('Command')) === null
    }, 'a command to the clients of the role')
    expect(await reasonOf('Desired state')).toMatch(/has the action client_state_update$/)
  })
})
