// docs/guides/console.md: what only the command line had: tokens, users, quotas, exports, retention, the journal and private keys
import { createPrivateKey, X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { connectAsync } from 'mqtt'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { freePorts } from '../harness/ports.ts'
import { until } from '../harness/until.ts'
import { accessibilityFaults, hasNoBrowser } from './browser.ts'
import { startConsole } from './running-console.ts'
import type { RunningConsole } from './running-console.ts'

describe.skipIf(hasNoBrowser)('administration in the console (needs Chromium)', () => {
  let running: RunningConsole
  let mqtt: string

  beforeAll(async () => {
    ;[mqtt = ''] = (await freePorts(1)).map(String)
    running = await startConsole({ SKEIN_MQTT_PORT: mqtt, SKEIN_QUOTA_CLIENTS: '10' })
  })
  afterAll(() => running?.[Symbol.asyncDispose]())

  const downloadOf = async (page: Page, press: () => Promise<unknown>) => {
    const [file] = await Promise.all([page.waitForEvent('download'), press()])
    return { name: file.suggestedFilename(), text: await readFile((await file.path()) ?? '', 'utf8') }
  }
  const card = (page: Page, title: string) =>
    page.locator('.card').filter({ has: page.getByRole('heading', { name: title, exact: true }) })

  test.each([
    ['desktop', false],
    ['phone', true],
  ] as const)(
    'on a %s, the private key is saved as a file, and the dialog asks before it goes without',
    async (_kind, isPhone) => {
      const domain = await running.made('/domains', { name: 'Keys' })
      const client = await running.made(`/${domain}/clients`, { name: 'pump' })
      await using visitor = await running.asAdmin({ isPhone })
      const { page } = visitor
      await visitor.go(`/d/${domain}/certificates?client=${client}&create=1`)
      await page.getByRole('dialog').getByRole('button', { name: 'Issue certificate' }).click()
      const issued = page.getByRole('dialog', { name: 'The certificate is issued' })
      await issued.waitFor()
      const question = page.getByRole('dialog', { name: 'Close without the private key?' })
      for (const leave of ['Done', 'Close']) {
        await issued.getByRole('button', { name: leave, exact: true }).first().click()
        await question.getByRole('button', { name: 'Cancel' }).click()
      }
      await page.keyboard.press('Escape')
      await question.getByRole('button', { name: 'Cancel' }).click()
      expect(await accessibilityFaults(page)).toEqual([])
      const key = await downloadOf(page, () => issued.getByRole('button', { name: 'Private key', exact: true }).click())
      const certificate = await downloadOf(page, () =>
        issued.getByRole('button', { name: 'Certificate', exact: true }).click(),
      )
      const authority = await downloadOf(page, () =>
        issued.getByRole('button', { name: 'Certificate of the authority' }).click(),
      )
      expect([key.name, certificate.name, authority.name]).toEqual(['client.key', 'client.crt', 'ca.crt'])
      const own = new X509Certificate(certificate.text)
      expect(own.checkPrivateKey(createPrivateKey(key.text))).toBe(true)
      expect(own.checkIssued(new X509Certificate(authority.text))).toBe(true)
      // The key is saved: nothing is asked.
      await issued.getByRole('button', { name: 'Done' }).click()
      await issued.waitFor({ state: 'detached' })
      await page.getByRole('grid').getByText('Valid').waitFor()
    },
  )

  test('a token works with its scopes alone, and its dialog asks before it goes uncopied', async () => {
    const domain = await running.made('/domains', { name: 'Tokens' })
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await visitor.go('/account')
    await page.getByRole('button', { name: 'New token' }).click()
    const dialog = page.getByRole('dialog').first()
    const create = dialog.getByRole('button', { name: 'Create token' })
    await dialog.getByLabel('Name').fill('reader')
    expect(await create.getAttribute('title')).toBe('Choose a domain')
    await dialog.getByLabel('Domain').selectOption({ label: 'Tokens' })
    expect(await create.getAttribute('title')).toBe('Choose what the token may do')
    await dialog.getByLabel(/Read messages/).check()
    expect(await accessibilityFaults(page)).toEqual([])
    await create.click()
    const made = page.getByRole('dialog', { name: 'The token reader' })
    const token = (await made.getByLabel('token', { exact: true }).textContent()) ?? ''
    await made.getByRole('button', { name: 'Done' }).click()
    const question = page.getByRole('dialog', { name: 'Close without the token?' })
    await question.getByRole('button', { name: 'Cancel' }).click()
    await made.getByRole('button', { name: 'Copy token' }).click()
    await made.getByRole('button', { name: 'Done' }).click()
    await made.waitFor({ state: 'detached' })
    await card(page, 'Personal access tokens').getByText('reader').waitFor()
    await card(page, 'Personal access tokens').getByText('Active').waitFor()
    const status = async (method: string, path: string) =>
      (
        await running.whole.call(method, path, {
          authorization: `Bearer ${token}`,
          ...(method === 'POST' ? { body: {} } : {}),
        })
      ).status
    const channel = await running.made(`/${domain}/channels`, { name: 'steam' })
    expect(await status('GET', `/${domain}/channels`)).toBe(200)
    expect(await status('GET', `/${domain}/channels/${channel}/messages`)).toBe(200)
    expect(await status('POST', `/${domain}/channels`)).toBe(403)
    expect(await status('GET', `/${domain}/clients`)).toBe(403)
  })

  test('users of the platform are found, and an administrator cannot lock themselves out', async () => {
    for (const username of ['anna', 'bert'])
      await running.made('/users', {
        first_name: username,
        last_name: 'Member',
        email: `${username}@example.com`,
        credentials: { username, secret: 'correct horse' },
      })
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await visitor.go('/platform')
    await page.getByRole('link', { name: 'Users' }).click()
    const grid = page.getByRole('grid', { name: 'Users' })
    await grid.getByText('bert@example.com').waitFor()
    expect(await accessibilityFaults(page)).toEqual([])
    await page.getByLabel('Filter by username').fill('anna')
    await grid.getByText('bert@example.com').waitFor({ state: 'detached' })
    await grid.getByText('anna@example.com').waitFor()
    await page.getByLabel('Filter by username').fill('admin')
    await page.getByRole('button', { name: 'Manage admin' }).click()
    const drawer = page.getByRole('dialog', { name: 'User' })
    await drawer.getByText('administrator of the platform').waitFor()
    for (const item of ['Disable', 'Remove administrator role', 'Delete'])
      expect(await drawer.getByRole('button', { name: item }).getAttribute('title')).toBe('This is you')
    expect(await accessibilityFaults(page)).toEqual([])
  })

  test('the settings show quotas against what is used, and lead back to keeping messages', async () => {
    const domain = await running.made('/domains', { name: 'Quotas' })
    for (const name of ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i']) await running.made(`/${domain}/clients`, { name })
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/settings`)
    const row = page
      .getByRole('table', { name: 'Quotas' })
      .getByRole('row')
      .filter({ hasText: /^Clients/ })
    await expect.poll(async () => await row.textContent()).toBe('Clients910')
    await page.getByText('Nearly used up: Clients.').waitFor()
    // Every domain has limits of what its tasks are.
    const text = await page.getByRole('table', { name: 'Quotas' }).textContent()
    for (const shown of [
      'Tasks0100,000',
      'Workflows010,000',
      'Tasks with a schedule020,000',
      'Tasks with a trigger020,000',
    ])
      expect(text).toContain(shown)
    expect(await accessibilityFaults(page)).toEqual([])
    const days = async () =>
      (await running.api<{ retention_days?: number }>('GET', `/domains/${domain}`)).retention_days
    for (const [label, stored] of [
      ['Deleted after 90 days', 90],
      ['Kept, unless the channel says otherwise', undefined],
    ] as const) {
      await page.getByLabel('Messages are').selectOption({ label })
      await page.getByRole('button', { name: 'Save' }).click()
      await until(async () => (await days()) === stored, label)
    }
    await page.getByText('Messages that are stored keep the period').waitFor()
    const alarmDays = async () =>
      (await running.api<{ alarm_retention_days?: number }>('GET', `/domains/${domain}`)).alarm_retention_days
    for (const [label, stored] of [
      ['Deleted after 90 days', 90],
      ['Deleted when the platform says it, by default after 365 days', undefined],
    ] as const) {
      await page.getByLabel('Cleared alarms are').selectOption({ label })
      await page.getByRole('button', { name: 'Save' }).click()
      await until(async () => (await alarmDays()) === stored, label)
    }
  })

  test('a channel says how many records are older than a period, and deletes them when it is asked to', async () => {
    const domain = await running.made('/domains', { name: 'Retention' })
    const channel = await running.made(`/${domain}/channels`, { name: 'steam' })
    await running.api('POST', `/m/${domain}/c/${channel}`, [
      { n: 'old', t: 1_500_000_000, v: 1 },
      { n: 'old', t: 1_500_000_001, v: 2 },
      { n: 'new', v: 3 },
    ])
    const total = async () =>
      (await running.api<{ total: number }>('GET', `/${domain}/channels/${channel}/messages`)).total
    await using visitor = await running.asAdmin()
    const { page } = visitor
    const dialog = page.getByRole('dialog')
    const edit = async (label: string) => {
      await page.getByRole('button', { name: 'Edit' }).click()
      await dialog.getByLabel('Messages are').selectOption({ label })
    }
    const save = async () => {
      await dialog.getByRole('button', { name: 'Save' }).click()
      await dialog.waitFor({ state: 'detached' })
    }
    await visitor.go(`/d/${domain}/channels/${channel}`)
    await edit('Deleted after 30 days')
    await dialog.getByText(/2 records of the channel are older than/).waitFor()
    expect(await accessibilityFaults(page)).toEqual([])
    // Saving alone deletes nothing.
    await save()
    expect(await total()).toBe(3)
    await edit('Deleted after 7 days')
    await dialog.getByLabel(/Delete them now/).check()
    await save()
    await until(async () => (await total()) === 1, 'the deletion')
    await edit('Kept as the domain says')
    await save()
    expect(await running.api('GET', `/${domain}/channels/${channel}`)).not.toHaveProperty('retention_days')
  })

  test('stored messages are exported with the filters of the page', async () => {
    const domain = await running.made('/domains', { name: 'Export' })
    const channel = await running.made(`/${domain}/channels`, { name: 'steam' })
    await running.api('POST', `/m/${domain}/c/${channel}`, [
      { n: 'temperature', u: 'Cel', t: 1_700_000_000, v: 21.5 },
      { n: 'pressure', t: 1_700_000_000, v: 1 },
    ])
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/channels/${channel}/messages?name=temperature`)
    await page.getByRole('grid').getByText('21.5').waitFor()
    const exported = async (label: string) => {
      await page.locator('main').getByRole('button', { name: 'Export', exact: true }).click()
      return await downloadOf(page, () => page.getByRole('menuitem', { name: label }).click())
    }
    const csv = await exported('CSV')
    expect(csv.name).toBe('messages.csv')
    expect(csv.text.trim().split('\n')).toHaveLength(2)
    expect(csv.text).toContain('21.5')
    const lines = await exported('JSON lines')
    expect(
      lines.text
        .trim()
        .split('\n')
        .map((line) => (JSON.parse(line) as { value: number }).value),
    ).toEqual([21.5])
  })

  test('the journal links names, shows the difference, and leaves the sessions of devices out until they are asked for', async () => {
    const domain = await running.made('/domains', { name: 'Journal' })
    const made = await running.api<{ id: string; credentials: { secret: string } }>('POST', `/${domain}/clients`, {
      name: 'pump',
      metadata: { floor: 1 },
    })
    const channel = await running.made(`/${domain}/channels`, { name: 'steam' })
    await running.api('POST', `/${domain}/channels/connect`, {
      client_ids: [made.id],
      channel_ids: [channel],
      types: ['publish'],
    })
    const session = await connectAsync(`mqtt://127.0.0.1:${mqtt}`, {
      username: made.id,
      password: made.credentials.secret,
    })
    await session.endAsync()
    await running.api('PATCH', `/${domain}/clients/${made.id}`, { name: 'north pump', metadata: { floor: 2 } })
    const sessions = async () =>
      (await running.api<{ total: number }>('GET', `/${domain}/journal/domain/${domain}?operation=mqtt.disconnect`))
        .total
    await until(async () => (await sessions()) > 0, 'the end of the session')
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/journal`)
    const changes = page.getByRole('list', { name: 'Changes' })
    await changes.getByText('Client north pump changed').waitFor()
    expect(await changes.getByText(/MQTT session/).count()).toBe(0)
    await page.getByLabel('Sessions of devices').check()
    await changes
      .getByText(/MQTT session/)
      .first()
      .waitFor()
    await page.getByLabel('Sessions of devices').uncheck()
    await changes
      .getByText(/MQTT session/)
      .first()
      .waitFor({ state: 'detached' })
    await page.getByRole('button', { name: 'Details of client.update' }).click()
    const drawer = page.getByRole('dialog')
    const difference = drawer.getByRole('region', { name: 'Difference' }).getByRole('row')
    expect(await difference.allTextContents()).toEqual(['FieldBeforeAfter', 'namepumpnorth pump', 'metadata.floor12'])
    expect(await accessibilityFaults(page)).toEqual([])
    await page.keyboard.press('Escape')
    await page.getByRole('button', { name: 'Details of channel.connect' }).click()
    await drawer.getByRole('link', { name: 'steam' }).waitFor()
    await drawer.getByRole('link', { name: 'north pump' }).click()
    await page.getByRole('heading', { name: 'north pump' }).waitFor()
  })

  test('the journal leads to rules, alarms and consumers, and names what has only an id', async () => {
    const domain = await running.made('/domains', { name: 'Journal of rules' })
    const channel = await running.made(`/${domain}/channels`, { name: 'steam' })
    const device = await running.api<{ id: string; credentials: { secret: string } }>('POST', `/${domain}/clients`, {
      name: 'boiler',
    })
    await running.api('POST', `/${domain}/channels/connect`, {
      client_ids: [device.id],
      channel_ids: [channel],
      types: ['publish'],
    })
    await running.made(`/${domain}/rules`, {
      name: 'Too hot',
      source: { type: 'messages' },
      condition: 'value > 30.0',
      actions: [{ type: 'alarm', text: '{{ client.name }} is too hot' }],
    })
    await running.made(`/${domain}/consumers`, { name: 'erp', channels: [channel] })
    const sent = await running.whole.call('POST', `/m/${domain}/c/${channel}`, {
      authorization: `Client ${device.credentials.secret}`,
      body: [{ n: 'temperature', v: 40 }],
    })
    expect(sent.status).toBeLessThan(300)
    const alarms = async () =>
      (await running.api<{ alarms: { id: string }[] }>('GET', `/${domain}/alarms?limit=10`)).alarms
    await until(async () => (await alarms()).length === 1, 'the alarm')
    const [{ id: alarm } = { id: '' }] = await alarms()
    await running.api('PATCH', `/${domain}/alarms/${alarm}`, { status: 'acknowledged' })
    await running.api('POST', `/${domain}/clients/${device.id}/disable`)
    await using visitor = await running.asAdmin({ isPhone: true })
    const { page } = visitor
    const changes = page.getByRole('list', { name: 'Changes' })
    for (const [words, heading] of [
      ['Alarm Too hot acknowledged', 'boiler is too hot'],
      ['Rule Too hot created', 'Too hot'],
      ['Consumer erp created', 'erp'],
      ['Client boiler disabled', 'boiler'],
    ] as const) {
      await visitor.go(`/d/${domain}/journal`)
      await changes.getByRole('link', { name: words }).click()
      await page.getByRole('heading', { name: heading, exact: true }).waitFor()
    }
    // The whole sentence is there on a phone too.
    await visitor.go(`/d/${domain}/journal`)
    const words = changes.getByRole('link', { name: 'Alarm Too hot acknowledged' })
    await words.waitFor()
    expect(
      await words.evaluate((link) => {
        const { scrollWidth, clientWidth } = (link as unknown as { parentElement: Record<string, number> })
          .parentElement
        return (scrollWidth ?? 0) <= (clientWidth ?? 0)
      }),
    ).toBe(true)
    await page.getByRole('button', { name: 'Details of alarm.acknowledge' }).click()
    await page.getByRole('dialog').getByRole('link', { name: 'Too hot' }).first().waitFor()
    await page.getByRole('dialog').getByRole('link', { name: 'boiler' }).waitFor()
  })

  test('administrators of the platform see the age of the last backup', async () => {
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await visitor.go('/platform')
    await card(page, 'Database').getByText('Last backup').waitFor()
    await card(page, 'Database').getByText('none yet').waitFor()
    const fact = { backups: { last_at: new Date(Date.now() - 9 * 86_400_000).toISOString() } }
    await page.route('**/health/database', async (route) => {
      const response = await route.fetch()
      await route.fulfill({ response, json: { ...((await response.json()) as object), ...fact } })
    })
    await page.reload()
    await card(page, 'Database').getByText('9 days ago').waitFor()
  })
})
