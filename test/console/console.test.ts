// docs/guides/console.md: what a user does in a browser, against the real platform
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import wabt from 'wabt'
import { until } from '../harness/until.ts'
import { createInstallation, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import { accessibilityFaults, hasNoBrowser, launchBrowser, signIn, visit } from './browser.ts'
import { startVisitingWorker } from './running-console.ts'
import type { Visitor } from './browser.ts'

const FIRST_LOAD_BYTES = 300_000
/** Two dozen screens, each loaded again. */
const SCREENS_MS = 400_000
const MANY_CLIENTS = 10_000
const BULK = 1_000
const MAIL_DEADLINE_MS = 20_000
const VIEWS = ['client', 'channel', 'group'] as const

/** Without a mail server, mails are files. */
function mailsTo({ dataDir }: Installation, address: string): string[] {
  const folder = join(dataDir, 'mail')
  if (!existsSync(folder)) return []
  const mails = readdirSync(folder)
    .filter((name) => name.endsWith('.eml'))
    .map((name) => readFileSync(join(folder, name), 'utf8'))
  return mails.filter((mail) => mail.includes(`To: ${address}`))
}

/** Without the host, which is that of `SKEIN_PUBLIC_URL`. */
function resetPathIn(mails: readonly string[]): string | undefined {
  return mails.map((mail) => /\/password\/reset\?token=\S+/.exec(mail)?.[0]).find((path) => path !== undefined)
}

/** Sets the key `count` of the task to the text `7`. */
const SETS_A_KEY = `(module
  (import "skein" "state_set" (func $set (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1) (data (i32.const 0) "count7")
  (func (export "set") (result i32) (call $set (i32.const 0) (i32.const 0) (i32.const 5) (i32.const 5) (i32.const 1))))`

describe.skipIf(hasNoBrowser)('the console (needs Chromium)', () => {
  let installation: Installation
  let whole: Whole
  let browser: Browser
  let admin: string

  const api = async <T>(method: string, path: string, body?: unknown, token = admin): Promise<T> => {
    const answer = await whole.call(method, path, {
      authorization: `Bearer ${token}`,
      ...(body === undefined ? {} : { body }),
    })
    expect(answer.status, `${method} ${path}: ${answer.text}`).toBeLessThan(300)
    return (answer.text === '' ? undefined : answer.json()) as T
  }
  const login = async (identity: string, secret: string) =>
    (await whole.call('POST', '/users/tokens/issue', { body: { identity, secret } })).json<{ access_token: string }>()
      .access_token

  beforeAll(async () => {
    installation = await createInstallation({ SKEIN_WORKER_LEASE: '20s', SKEIN_WORKER_HEARTBEAT: '2s' })
    whole = await startWhole(installation)
    browser = await launchBrowser()
    admin = await login('admin', 'the-first-admin')
  })
  afterAll(async () => {
    await browser?.close()
    await whole?.[Symbol.asyncDispose]()
    installation?.[Symbol.dispose]()
  })

  const asAdmin = async (kind: Parameters<typeof visit>[2] = {}): Promise<Visitor> => {
    const visitor = await visit(browser, installation.base, kind)
    await signIn(visitor.page, installation.base, 'admin', 'the-first-admin')
    return visitor
  }
  const newDomain = async (name: string) => (await api<{ id: string }>('POST', '/domains', { name })).id
  const at = (page: Page, text: string | RegExp) => page.getByText(text).first()

  test('the address of the console is the first one printed at a start', () => {
    expect(whole.output()).toMatch(/is running[^\n]*\n\n +Console +http:\/\/127\.0\.0\.1:\d+\/console\n/)
  })

  test('the first load is at most 300 kB, and the policy allows neither inline code nor other hosts', async () => {
    const response = await fetch(`${installation.base}/console`)
    const policy = response.headers.get('content-security-policy') ?? ''
    expect(policy).toContain("default-src 'none'")
    expect(policy).not.toMatch(/unsafe|\*|http/)
    await using visitor = await visit(browser, installation.base)
    let bytes = 0
    visitor.page.on('response', (one) => {
      void one.body().then(
        (body) => (bytes += /\.(js|css|svg)$/.test(one.url()) ? gzipSync(body).length : body.length),
        () => undefined,
      )
    })
    await visitor.go('/sign-in')
    await visitor.page.getByRole('button', { name: 'Sign in' }).waitFor()
    await visitor.page.waitForLoadState('networkidle')
    expect(bytes).toBeGreaterThan(50_000)
    expect(bytes).toBeLessThan(FIRST_LOAD_BYTES)
  })

  test('a new user signs up, and follows the first steps from a domain to a live chart', async () => {
    await using visitor = await visit(browser, installation.base)
    const { page } = visitor
    await visitor.go('/sign-up')
    await page.getByLabel('First name').fill('Ada')
    await page.getByLabel('Last name').fill('Lovelace')
    await page.getByLabel('Email').fill('ada@example.com')
    await page.getByLabel('Username').fill('ada')
    await page.getByLabel('Password').fill('correct horse')
    await page.getByRole('button', { name: 'Create account' }).click()
    await at(page, 'Create your first domain').waitFor()
    await page.getByRole('button', { name: 'New domain' }).first().click()
    await page.getByLabel('Name', { exact: true }).fill('North plant')
    await page.getByRole('button', { name: 'Create domain' }).click()
    await page.getByRole('heading', { name: 'North plant' }).waitFor()
    await at(page, 'First steps: 0 of 2').waitFor()
    await page.getByRole('navigation', { name: 'Console' }).getByRole('link', { name: 'Channels' }).click()
    await page.getByRole('button', { name: 'New channel' }).first().click()
    await page.getByLabel('Name', { exact: true }).fill('Hall')
    await page.getByRole('button', { name: 'Create channel' }).click()
    await page.getByRole('heading', { name: 'Hall', exact: true }).waitFor()
    const channelUrl = page.url()
    await page.getByRole('navigation', { name: 'Console' }).getByRole('link', { name: 'Clients' }).click()
    await page.getByRole('button', { name: 'New client' }).first().click()
    await page.getByLabel('Name', { exact: true }).fill('Thermometer')
    await page.getByLabel('Connect to channel').selectOption({ label: 'Hall' })
    await page.getByRole('button', { name: 'Create client' }).click()
    const secret = (await page.getByLabel('secret', { exact: true }).textContent()) ?? ''
    expect(secret.length).toBeGreaterThan(20)
    await page.getByRole('button', { name: 'Open the client' }).click()
    await page.getByRole('heading', { name: 'Thermometer' }).waitFor()

    await page.goto(`${channelUrl}/live`)
    await at(page, /^Live$/).waitFor()
    const [, domain, channel] = /\/d\/([^/]+)\/channels\/([^/]+)/.exec(channelUrl) ?? []
    const publish = async (value: number) => {
      const response = await fetch(`${installation.base}/m/${domain}/c/${channel}`, {
        method: 'POST',
        headers: { Authorization: `Client ${secret}`, 'Content-Type': 'application/senml+json' },
        body: JSON.stringify([{ n: 'temperature', u: 'Cel', v: value }]),
      })
      expect(response.status).toBe(202)
    }
    await publish(21.5)
    await at(page, 'temperature = 21.5 Cel').waitFor()
    // A pause holds until the user resumes.
    await page.getByRole('button', { name: 'Pause' }).click()
    await publish(22.5)
    await page.getByRole('button', { name: 'Resume (1 new)' }).waitFor()
    expect(await page.getByText('temperature = 22.5 Cel').count()).toBe(0)
    await page.getByRole('button', { name: 'Resume' }).click()
    await at(page, 'temperature = 22.5 Cel').waitFor()
    await page.getByRole('link', { name: 'Data' }).click()
    await page.getByRole('group', { name: /Chart of temperature in Cel/ }).waitFor()
    await page.locator('td', { hasText: '22.5' }).first().waitFor()
    await publish(23.5)
    await page.locator('td', { hasText: '23.5' }).first().waitFor()
  })

  test('a module becomes a task, runs with typed inputs, and its run shows the result', async () => {
    const domain = await newDomain('Modules')
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/tasks`)
    await page.getByRole('button', { name: 'New task' }).first().click()
    await page.getByLabel('Module file').setInputFiles('examples/add/add.wasm')
    await page.getByRole('button', { name: 'Create task' }).click()
    await page.getByRole('heading', { name: 'add', exact: true }).waitFor()
    await page.getByLabel('Parameter 1 (i32)').fill('many')
    await page.getByRole('button', { name: 'Run', exact: true }).click()
    await at(page, 'Parameter 1 must be a whole number').waitFor()
    await page.getByLabel('Parameter 1 (i32)').fill('20')
    await page.getByLabel('Parameter 2 (i32)').fill('22')
    await page.getByRole('button', { name: 'Run', exact: true }).click()
    await at(page, /Completed in/).waitFor()
    expect(JSON.parse((await page.getByLabel('result', { exact: true }).textContent()) ?? '')).toEqual([42])
    await page.getByRole('link', { name: 'Open the run' }).click()
    await page.getByRole('heading', { name: /Run of/ }).waitFor()
    await at(page, 'Completed').waitFor()
  })

  test('a module is tried in the browser on the last hour of a channel, then deployed, and runs for the next message', async () => {
    const domain = await newDomain('Trial')
    const newChannel = async (name: string) => (await api<{ id: string }>('POST', `/${domain}/channels`, { name })).id
    const [readings, alarms] = [await newChannel('readings'), await newChannel('alarms')]
    await api('POST', `/m/${domain}/c/${readings}`, [
      { n: 'temperature', u: 'Cel', v: 20 },
      { n: 'pressure', u: 'bar', v: 95 },
    ])
    await using visitor = await asAdmin()
    const { page } = visitor
    const frames: string[] = []
    page.on('frameattached', (frame) => frames.push(frame.name()))
    await visitor.go(`/d/${domain}/try`)
    await page.getByLabel('Module file').setInputFiles('examples/threshold-alarm/threshold-alarm.wasm')
    await page.getByRole('button', { name: 'the last hour of a channel' }).click()
    await page.getByLabel('Channel', { exact: true }).selectOption({ label: 'readings' })
    await page.getByRole('button', { name: 'Run', exact: true }).click()
    await at(page, '2 runs completed').waitFor()
    await at(page, 'Would publish 2').waitFor()
    expect(await page.getByRole('list', { name: 'Publications' }).textContent()).toContain('"v":95')
    expect(frames.length).toBe(1)
    expect(page.frames().length).toBe(1)
    expect((await api<{ total: number }>('GET', `/${domain}/channels/${alarms}/messages`)).total).toBe(0)

    await page.getByRole('button', { name: 'Deploy' }).click()
    await page
      .getByRole('dialog')
      .getByLabel(/^Publishes to/)
      .selectOption({ label: 'alarms' })
    await page.getByRole('dialog').getByRole('button', { name: 'Create task' }).click()
    await page.getByRole('heading', { name: 'threshold-alarm', exact: true }).waitFor()
    await api('POST', `/m/${domain}/c/${readings}`, [{ n: 'temperature', u: 'Cel', v: 99 }])
    await until(
      async () => (await api<{ total: number }>('GET', `/${domain}/channels/${alarms}/messages`)).total > 0,
      'the alarm',
    )
    await page.getByRole('link', { name: 'Runs', exact: true }).last().click()
    await page.getByRole('grid').getByText('Completed').first().waitFor()
    // From the run to what it published, and back to the message that caused it.
    await page.locator('[data-row="0"]').click()
    await page.getByRole('heading', { name: /Run of threshold-alarm/ }).waitFor()
    await page.locator('dd').getByRole('link', { name: 'alarms' }).click()
    await page.getByRole('heading', { name: 'alarms', exact: true }).waitFor()
    const published = page.getByRole('grid', { name: 'Stored messages' })
    await published.getByText('99').first().waitFor()
    await at(page, /^Run: /).waitFor()
    await published.getByRole('link', { name: 'a run' }).first().click()
    await page.getByRole('link', { name: 'a message' }).click()
    await page.getByRole('heading', { name: 'readings', exact: true }).waitFor()
    // That message alone, not the records of an hour before.
    await at(page, /^Message: /).waitFor()
    await at(page, '1 row').waitFor()
    const causing = page.getByRole('grid', { name: 'Stored messages' })
    await causing.getByText('99').waitFor()
    await causing.getByRole('link', { name: 'runs' }).click()
    await page.getByRole('grid', { name: 'Runs' }).getByRole('link', { name: 'threshold-alarm' }).waitFor()
    await at(page, '1 row').waitFor()
  })

  test('an endless module is stopped in the browser, and one that no worker runs is refused with the reason', async () => {
    const domain = await newDomain('Hostile')
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/try`)
    await page.getByLabel('Module file').setInputFiles('examples/add/add.wasm')
    await page.getByLabel('Parameter 1 (i32)').fill('20')
    await page.getByLabel('Parameter 2 (i32)').fill('22')
    await page.getByRole('button', { name: 'Run', exact: true }).click()
    await at(page, '[20,22] → [42]').waitFor()
    await page.getByLabel('Module file').setInputFiles('examples/endless/endless.wasm')
    await page.getByRole('button', { name: 'Run', exact: true }).click()
    await at(page, 'timeout: the module ran for 10 s').waitFor()
    await page.getByLabel('Module file').setInputFiles({
      name: 'text.wasm',
      mimeType: 'application/wasm',
      buffer: Buffer.from('this is no module'),
    })
    await at(page, /The module was not read/).waitFor()
  })

  test('a component is tried in the browser with typed inputs, its messages are listed, and a wrong value is refused', async () => {
    const domain = await newDomain('Components')
    const channel = (await api<{ id: string }>('POST', `/${domain}/channels`, { name: 'imperial' })).id
    await api('POST', `/m/${domain}/c/${channel}`, [{ n: 'boiler', u: 'degF', v: 212 }])
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/try`)
    await page.getByLabel('Module file').setInputFiles('examples/unit-conversion/unit-conversion.wasm')
    await page.getByLabel('Parameter 1 (string)').fill('no message')
    await page.getByRole('button', { name: 'Run', exact: true }).click()
    await at(page, '1 of 1 runs failed').waitFor()
    await page.getByRole('button', { name: 'the last hour of a channel' }).click()
    await page.getByLabel('Channel', { exact: true }).selectOption({ label: 'imperial' })
    await page.getByRole('button', { name: 'Run', exact: true }).click()
    await at(page, 'Completed').waitFor()
    await at(page, 'Would publish 1').waitFor()
    const published = (await page.getByRole('list', { name: 'Publications' }).textContent()) ?? ''
    expect(published).toContain('converted')
    expect(published).toContain('"u":"Cel","v":100')
    // Nothing was sent, and the frame is gone.
    expect((await api<{ total: number }>('GET', `/${domain}/channels/${channel}/messages`)).total).toBe(1)
    expect(page.frames().length).toBe(1)
  })

  test('a trial shows the state that the module would keep, and says that it is in memory', async () => {
    const domain = await newDomain('Trial of state')
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/try`)
    const buffer = Buffer.from((await wabt()).parseWat('set.wat', SETS_A_KEY).toBinary({}).buffer)
    await page.getByLabel('Module file').setInputFiles({ name: 'set.wasm', mimeType: 'application/wasm', buffer })
    await page.getByRole('button', { name: 'Run', exact: true }).click()
    await at(page, 'Would keep 1 key').waitFor()
    await at(page, /it begins empty, its runs share it, and nothing is stored/).waitFor()
    expect(await page.getByRole('list', { name: 'State' }).textContent()).toBe('count = 7')
  })

  test('the frame of a trial has no origin, no network and no session', async () => {
    const response = await fetch(`${installation.base}/console/try.html`)
    expect(response.headers.get('content-security-policy')).toBe(
      "sandbox allow-scripts; default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    )
    await using visitor = await visit(browser, installation.base)
    await visitor.go('/try.html')
    const seen = await visitor.page.evaluate<{ origin: string; cookie: string; fetched: string }>(`(async () => ({
      origin: globalThis.origin,
      cookie: (() => { try { return document.cookie } catch { return 'refused' } })(),
      fetched: await fetch('/health').then(() => 'answered', () => 'refused'),
    }))()`)
    expect(seen).toEqual({ origin: 'null', cookie: 'refused', fetched: 'refused' })
    // The refused request is what this test is about.
    expect(visitor.faults.splice(0).length).toBeGreaterThan(0)
  })

  test('a message starts a run, and the run links to the message', async () => {
    const domain = await newDomain('Causes')
    const channel = (await api<{ id: string }>('POST', `/${domain}/channels`, { name: 'boiler' })).id
    const file = readFileSync('examples/moving-average/moving-average.wasm').toString('base64')
    await api('POST', `/m/${domain}/c/${channel}`, [{ n: 'temperature', u: 'Cel', v: 12.5 }])
    const task = await api<{ id: string }>('POST', '/tasks', {
      name: 'average',
      domain_id: domain,
      trigger: { channel_id: channel, name: 'temperature' },
      grants: [{ kind: 'read', name: 'readings', channel_id: channel }],
      file,
    })
    // The time of its record is not the time of the run.
    const longAgo = 1_700_000_000
    await api('POST', `/m/${domain}/c/${channel}`, [{ n: 'temperature', u: 'Cel', v: 81.25, t: longAgo }])
    await api('POST', `/m/${domain}/c/${channel}`, [{ n: 'humidity', u: '%RH', v: 14.5, t: longAgo }])
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/runs`)
    await page.getByRole('grid', { name: 'Runs' }).getByText('a message').waitFor()
    await page.getByRole('button', { name: 'Filter', exact: true }).click()
    await page.getByLabel('Cause').selectOption('schedule')
    await page.getByRole('dialog').getByLabel('Task', { exact: true }).selectOption('average')
    await page.getByRole('button', { name: 'Apply' }).click()
    await at(page, 'No run matches').waitFor()
    await at(page, 'Task: average').waitFor()
    await page.getByRole('button', { name: 'Clear filters' }).click()
    await page.getByRole('grid', { name: 'Runs' }).getByRole('link', { name: 'average' }).click()
    await page.getByRole('heading', { name: /Run of average/ }).waitFor()
    await at(page, 'Completed').waitFor()
    expect(page.url()).toContain(`/tasks/${task.id}/runs/`)
    await page.getByRole('link', { name: 'a message' }).click()
    await page.getByRole('heading', { name: 'boiler', exact: true }).waitFor()
    // Neither the message before it nor the one after it.
    await page.locator('[role=row]').getByText('81.25').waitFor()
    await at(page, /^Message: \d+\/0/).waitFor()
    for (const other of ['12.5', '14.5']) expect(await page.getByText(other).count()).toBe(0)
    // The filters of the table are in its address.
    await page.getByRole('button', { name: 'Filter', exact: true }).click()
    await page.getByLabel('Name', { exact: true }).fill('pressure')
    await page.getByRole('button', { name: 'Apply' }).click()
    await at(page, 'No message matches').waitFor()
    await page.reload()
    await at(page, 'Name: pressure').waitFor()
    await at(page, 'No message matches').waitFor()
  })

  test('the five figures of the overview have the series of the range', async () => {
    const domain = await newDomain('Figures')
    await api('POST', `/${domain}/clients`, { name: 'pump' })
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}`)
    for (const name of [
      /^Clients online, at least 0/,
      /^Messages per/,
      /^Records per/,
      /^Runs by/,
      /^Workers online, at/,
    ])
      await page.getByRole('img', { name }).waitFor()
    await page.getByRole('button', { name: '24 h' }).click()
    await page.getByRole('img', { name: /^Workers online, at least \d, at most [1-9]/ }).waitFor()
  })

  test('connections are a matrix in which a click changes them, and a graph', async () => {
    const domain = await newDomain('Wiring')
    await api('POST', `/${domain}/clients`, { name: 'pump' })
    await api('POST', `/${domain}/channels`, { name: 'steam' })
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/connections`)
    await page.getByRole('button', { name: 'pub pump, steam' }).click()
    await page.getByRole('button', { name: '✓ pub pump, steam' }).waitFor()
    await page.getByRole('button', { name: 'Graph' }).click()
    await page.getByRole('img', { name: /^1 connections of 1 clients and 1 channels/ }).waitFor()
    await page.getByRole('list', { name: 'Connected channels' }).getByRole('link', { name: 'steam' }).click()
    await page.getByRole('heading', { name: 'steam', exact: true }).waitFor()
  })

  test('administrators of the platform read the journal of its workers, and others see why they do not', async () => {
    const domain = await newDomain('Racks')
    const { workers } = await api<{ workers: { id: string; name: string; domain_id?: string }[] }>('GET', '/workers')
    const worker = workers.find(({ domain_id: owner }) => owner === undefined)
    const { id = '', name = '' } = worker ?? {}
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go('/platform')
    await page
      .getByRole('button', { name: `Actions for ${name}` })
      .first()
      .click()
    await page.getByRole('menuitem', { name: 'Journal' }).click()
    await page
      .getByRole('dialog', { name: `Journal of ${name}` })
      .getByText(`Worker ${name} created`)
      .waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('link', { name, exact: true }).first().click()
    await page.getByRole('heading', { name, exact: true }).waitFor()
    await page.getByRole('link', { name: 'Journal' }).click()
    await page.getByRole('list', { name: 'Changes' }).getByText(`Worker ${name} created`).waitFor()
    expect(page.url()).toMatch(/\/platform\/workers\/[^/]+\/journal$/)

    await whole.call('POST', '/users', {
      body: {
        first_name: 'Edsger',
        last_name: 'Dijkstra',
        email: 'edsger@example.com',
        credentials: { username: 'edsger', secret: 'correct horse' },
      },
    })
    const edsger = await login('edsger', 'correct horse')
    const member = await api<{ id: string }>('GET', '/users/profile', undefined, edsger)
    const role = await api<{ role_id: string }>('POST', `/domains/${domain}/roles`, {
      role_name: 'operator',
      optional_actions: ['read', 'worker_read'],
    })
    await api('POST', `/domains/${domain}/invitations`, { invitee_user_id: member.id, role_id: role.role_id })
    await api('POST', '/invitations/accept', { domain_id: domain }, edsger)
    await using other = await visit(browser, installation.base)
    await signIn(other.page, installation.base, 'edsger', 'correct horse')
    await other.go(`/d/${domain}/workers/${id}/journal`)
    await at(other.page, /^This worker belongs to the platform/).waitFor()
  })

  test('a worker that is killed is shown as dead without a reload', async () => {
    const { token } = await api<{ token: string }>('POST', '/workers/tokens', {})
    using worker = startVisitingWorker(installation, { token, name: 'doomed' })
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go('/platform')
    const row = page.getByRole('region', { name: 'Workers' }).getByRole('row').filter({ hasText: 'doomed' })
    await row.getByText('Alive').waitFor()
    worker.kill()
    await row.getByText('Dead').waitFor()
  })

  test('every entity with a journal shows it: who changed what, with the values', async () => {
    const domain = await newDomain('Journals')
    const client = (await api<{ id: string }>('POST', `/${domain}/clients`, { name: 'valve' })).id
    const channel = (await api<{ id: string }>('POST', `/${domain}/channels`, { name: 'steam' })).id
    const group = (await api<{ id: string }>('POST', `/${domain}/groups`, { name: 'hall' })).id
    const task = (await api<{ id: string }>('POST', '/tasks', { name: 'average', domain_id: domain })).id
    const steps = [{ name: 'first' }]
    const report = { name: 'report', domain_id: domain, tasks: steps }
    const workflow = (await api<{ id: string }>('POST', '/workflows', report)).id
    await using visitor = await asAdmin()
    const { page } = visitor
    for (const [path, change] of [
      [`/d/${domain}/clients/${client}/journal`, 'Client valve created'],
      [`/d/${domain}/channels/${channel}/journal`, 'Channel steam created'],
      [`/d/${domain}/groups/${group}/journal`, 'Group hall created'],
      [`/d/${domain}/tasks/${task}/journal`, 'Task average created'],
      [`/d/${domain}/journal`, 'Workflow report created'],
      [`/d/${domain}/journal`, 'Client valve created'],
      ['/account', 'Client valve created'],
    ] as const) {
      await visitor.go(path)
      const changes = page.getByRole('list', { name: 'Changes' })
      await changes.getByText(change).waitFor()
      await changes
        .getByRole('listitem')
        .filter({ hasText: change })
        .getByRole('button', { name: /^Details of/ })
        .click()
      const drawer = page.getByRole('dialog', { name: change })
      expect(await drawer.getByLabel('record', { exact: true }).textContent()).toContain('"name"')
      await page.keyboard.press('Escape')
      await drawer.waitFor({ state: 'detached' })
    }
    await visitor.go(`/d/${domain}/workflows/${workflow}`)
    await page.getByRole('button', { name: 'More actions' }).click()
    await page.getByRole('menuitem', { name: 'Journal' }).click()
    await page.getByRole('dialog', { name: 'Journal of report' }).getByText('Workflow report created').waitFor()
  })

  test('a device is provisioned, fetches its configuration, and gets a certificate that is revoked', async () => {
    const domain = await newDomain('Fleet')
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/provisioning`)
    await page.getByLabel('External id').fill('gw-17')
    await page.getByLabel('External key').fill('short')
    await page.getByLabel('Name').fill('gateway')
    await page.getByRole('button', { name: 'Create device' }).click()
    await at(page, /^External key must /).waitFor()
    await page.getByRole('button', { name: 'Another key' }).click()
    const key = await page.getByLabel('External key').inputValue()
    await page.getByRole('button', { name: 'Create device' }).click()
    await page.getByRole('heading', { name: 'Created for gw-17' }).waitFor()
    const configuration = await fetch(`${installation.base}/clients/bootstrap/gw-17`, {
      headers: { Authorization: `Client ${key}` },
    })
    expect(configuration.status).toBe(200)
    await page.getByRole('link', { name: 'gateway', exact: true }).click()
    await page.getByRole('heading', { name: 'gateway', exact: true }).waitFor()
    await page.getByRole('link', { name: 'Issue', exact: true }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Issue certificate' }).click()
    await page.getByLabel('private key', { exact: true }).waitFor()
    expect(await page.getByLabel('private key', { exact: true }).textContent()).toContain('PRIVATE KEY')
    await page.getByRole('button', { name: 'Copy private key' }).click()
    await page.getByRole('button', { name: 'Done' }).click()
    await at(page, 'Valid').waitFor()
    await page.getByRole('grid').getByRole('button', { name: 'Revoke' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click()
    await at(page, 'Revoked').waitFor()
    const { certs } = await api<{ certs: { revoked: boolean }[] }>('GET', `/${domain}/certs`)
    expect(certs.map(({ revoked }) => revoked)).toEqual([true])
  })

  test('10,000 clients are one list; a selection of all is counted; the filter survives a reload', async () => {
    const domain = await newDomain('Many')
    for (let made = 0; made < MANY_CLIENTS; made += BULK)
      await api(
        'POST',
        `/${domain}/clients/bulk`,
        Array.from({ length: BULK }, (_none, index) => ({
          name: `meter ${String(made + index).padStart(5, '0')}`,
          tags: (made + index) % 1_000 === 0 ? ['first'] : [],
        })),
      )
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/clients?order=name&dir=asc`)
    await at(page, '10,000 rows').waitFor()
    await page.locator('[data-row="0"]').click({ position: { x: 20, y: 8 } })
    await page.locator('[data-row="0"]').focus()
    await page.keyboard.press('End')
    await at(page, 'meter 09999').waitFor()
    // Visible rows and some beside them.
    expect(await page.locator('[data-row]').count()).toBeLessThan(80)
    await visitor.go(`/d/${domain}/clients`)
    await page.getByRole('button', { name: 'Filter', exact: true }).click()
    await page.getByLabel('Tags').fill('first')
    await page.getByRole('button', { name: 'Apply' }).click()
    await at(page, '10 rows').waitFor()
    await page.reload()
    await at(page, 'Tags: first').waitFor()
    await at(page, '10 rows').waitFor()
    await page.getByLabel('Select the visible rows').check()
    await at(page, '10 clients selected').waitFor()
    // So does the selection, and it stays what it was under another filter.
    await page.reload()
    await at(page, '10 clients selected').waitFor()
    await page.getByRole('button', { name: 'Remove the filter Tags' }).click()
    await at(page, '10,000 rows').waitFor()
    await at(page, '10 clients selected').waitFor()
    await page.getByRole('button', { name: 'Disable' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Disable 10 clients' }).click()
    await at(page, '10 of 10').waitFor()
    const { total } = await api<{ total: number }>('GET', `/${domain}/clients?status=disabled&limit=1`)
    expect(total).toBe(10)
  })

  test('an invited user sees what the role allows, and a refusal names the missing action', async () => {
    const domain = await newDomain('Shared')
    await whole.call('POST', '/users', {
      body: {
        first_name: 'Grace',
        last_name: 'Hopper',
        email: 'grace@example.com',
        credentials: { username: 'grace', secret: 'correct horse' },
      },
    })
    const grace = await login('grace', 'correct horse')
    const { id } = await api<{ id: string }>('GET', '/users/profile', undefined, grace)
    const role = await api<{ role_id: string }>('POST', `/domains/${domain}/roles`, {
      role_name: 'reader',
      optional_actions: ['read', 'client_read'],
    })
    await api('POST', `/${domain}/clients`, { name: 'pump' })
    await api('POST', `/domains/${domain}/invitations`, { invitee_user_id: id, role_id: role.role_id })
    await using visitor = await visit(browser, installation.base)
    const { page } = visitor
    await signIn(page, installation.base, 'grace', 'correct horse')
    await at(page, 'as reader').waitFor()
    await page.getByRole('button', { name: 'Accept' }).click()
    await page.getByRole('link', { name: /Shared/ }).click()
    await page.getByRole('heading', { name: 'Shared' }).waitFor()
    await page.getByRole('navigation', { name: 'Console' }).getByRole('link', { name: 'Clients' }).click()
    await page.getByRole('link', { name: 'pump' }).click()
    await page.getByRole('heading', { name: 'pump' }).waitFor()
    await page.getByRole('button', { name: 'More actions' }).click()
    const remove = page.getByRole('menuitem', { name: 'Delete' })
    await expect
      .poll(async () => await remove.getAttribute('title'))
      .toBe('None of your roles on this client has the action delete')
    expect(await remove.getAttribute('aria-disabled')).toBe('true')
    await page.keyboard.press('Escape')
    await visitor.go(`/d/${domain}/access?entity=domain:${domain}&action=client_delete`)
    await at(page, 'Not allowed').waitFor()
    await visitor.go(`/d/${await newDomain('Closed')}`)
    await at(page, 'You do not have access').waitFor()
  })

  test('a forgotten password is reset with the link in a mail, and an unknown address gets the same answer', async () => {
    const email = 'hedy@example.com'
    await whole.call('POST', '/users', {
      body: {
        first_name: 'Hedy',
        last_name: 'Lamarr',
        email,
        credentials: { username: 'hedy', secret: 'correct horse' },
      },
    })
    await using visitor = await visit(browser, installation.base)
    const { page } = visitor
    const request = async (address: string) => {
      await visitor.go('/sign-in')
      await page.getByRole('link', { name: 'Forgot the password?' }).click()
      await page.getByLabel('Email').fill(address)
      await page.getByRole('button', { name: 'Send the link' }).click()
      return await at(page, /a mail with a link is on its way/).textContent()
    }
    expect(await request('nobody@example.com')).toBe(await request(email))
    const path = await until(() => resetPathIn(mailsTo(installation, email)), 'the mail', MAIL_DEADLINE_MS)
    expect(mailsTo(installation, 'nobody@example.com')).toEqual([])
    await page.goto(`${installation.base}${path}`)
    await page.getByLabel('New password', { exact: true }).fill('battery staple')
    await page.getByLabel('Repeat the new password').fill('battery staple')
    await page.getByRole('button', { name: 'Set the password' }).click()
    await at(page, /The new password is set/).waitFor()
    await signIn(page, installation.base, 'hedy', 'battery staple')
  })

  test('a CSV file is shown line by line: a wrong line with its error and nothing created, a right file is created', async () => {
    const domain = await newDomain('Import')
    const names = async () =>
      (await api<{ clients: { name: string }[] }>('GET', `/${domain}/clients`)).clients.map(({ name }) => name)
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/import`)
    const choose = async (text: string) =>
      await page
        .getByLabel('CSV file to import')
        .setInputFiles({ name: 'clients.csv', mimeType: 'text/csv', buffer: Buffer.from(text) })
    const resultOf = (content: string) =>
      page.getByRole('region', { name: 'Lines of the file' }).getByRole('row').filter({ hasText: content })
    await choose('name,status\npump,enabled\nvalve,broken\n')
    await at(page, /Nothing was created: .*1 line is marked below/).waitFor()
    await resultOf('valve,broken')
      .getByText(/status/)
      .waitFor()
    expect(await resultOf('valve,broken').getByRole('cell').first().textContent()).toBe('3')
    expect(await resultOf('pump,enabled').getByRole('cell').last().textContent()).toBe('')
    expect(await page.getByRole('button', { name: /^Create/ }).count()).toBe(0)
    await choose('name,status\npump,enabled\nvalve,disabled\n')
    await at(page, 'The file is right: 2 clients').waitFor()
    // Until here all was a trial.
    expect(await names()).toEqual([])
    await page.getByRole('button', { name: 'Create 2 clients' }).click()
    await at(page, '2 clients are created').waitFor()
    await page.getByRole('link', { name: 'Show them' }).click()
    await page.getByRole('link', { name: 'pump' }).waitFor()
    expect(await api<object>('GET', `/${domain}/clients?name=pump`)).toMatchObject({ total: 1 })
  })

  test('a waiting task shows for each worker why it is not placed there', async () => {
    const domain = await newDomain('Placement')
    const file = readFileSync('examples/add/add.wasm').toString('base64')
    const body = { name: 'add', domain_id: domain, file, inputs: [20, 22], labels: { zone: 'moon' } }
    const { id } = await api<{ id: string }>('POST', '/tasks', body)
    await api('POST', `/tasks/${id}/start`)
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/tasks/${id}`)
    await page.getByRole('heading', { name: 'Placement' }).waitFor()
    await at(page, 'no worker fits').waitFor()
    await at(page, 'its label zone is not set, not moon').waitFor()
    await api('POST', `/tasks/${id}/stop`)
    await page.getByRole('heading', { name: 'Placement' }).waitFor({ state: 'detached' })
  })

  test('Access gives the missing role on a client, a channel or a group; a member without the right cannot', async () => {
    const domain = await newDomain('Roles')
    const members = await Promise.all(
      ['rosa', 'tim'].map(async (username) => {
        const created = await api<{ id: string }>('POST', '/users', {
          first_name: username,
          last_name: 'Member',
          email: `${username}@example.com`,
          credentials: { username, secret: 'correct horse' },
        })
        return created.id
      }),
    )
    const [rosa = '', tim = ''] = members
    const actions = ['read', 'view_role_users', ...VIEWS.flatMap((type) => [`${type}_read`])]
    await api('POST', `/domains/${domain}/roles`, {
      role_name: 'viewer',
      optional_actions: [...actions, ...VIEWS.map((type) => `${type}_view_role_users`)],
      optional_members: members,
    })
    await using visitor = await asAdmin()
    await using other = await visit(browser, installation.base)
    await signIn(other.page, installation.base, 'rosa', 'correct horse')
    for (const type of VIEWS) {
      const { id } = await api<{ id: string }>('POST', `/${domain}/${type}s`, { name: `the ${type}` })
      const { role_id: role } = await api<{ role_id: string }>('POST', `/${domain}/${type}s/${id}/roles`, {
        role_name: 'editor',
        optional_actions: ['read', 'update'],
      })
      const membersOf = async () =>
        (await api<{ members: string[] }>('GET', `/${domain}/${type}s/${id}/roles/${role}/members`)).members
      const question = `/d/${domain}/access?entity=${type}:${id}&action=update&subject=`
      // The user sees the roles, and must not give them.
      await other.go(`${question}${rosa}`)
      await at(other.page, 'Not allowed').waitFor()
      await other.page.getByRole('button', { name: 'Give the role editor' }).click()
      await at(other.page, /The role was not given/).waitFor()
      expect(await membersOf(), type).toEqual([])
      await visitor.go(`${question}${tim}`)
      await at(visitor.page, 'Not allowed').waitFor()
      await visitor.page.getByRole('button', { name: 'Give the role editor' }).click()
      await visitor.page.getByText('Allowed', { exact: true }).waitFor()
      await visitor.page.getByRole('list', { name: 'Granted by the role editor' }).first().waitFor()
      expect(await membersOf(), type).toEqual([tim])
    }
  })

  test('an ended session shows a login over the page, not a missing right', async () => {
    const domain = await newDomain('Session')
    await using visitor = await asAdmin()
    const { page, context } = visitor
    await visitor.go(`/d/${domain}/channels`)
    await at(page, 'No channels yet').waitFor()
    // As after 12 hours: the cookie is gone, and the next request needs a token.
    await context.clearCookies()
    await page.reload()
    await page.getByRole('heading', { name: 'Sign in' }).waitFor()
    await page.getByLabel('Username or email').fill('admin')
    await page.getByLabel('Password').fill('the-first-admin')
    await page.getByRole('button', { name: 'Sign in' }).click()
    // Back where the user was.
    await at(page, 'No channels yet').waitFor()
    expect(await page.getByText('You do not have access').count()).toBe(0)
  })

  test('signing out in one tab signs out the others', async () => {
    await using visitor = await asAdmin()
    const { page, context } = visitor
    const other = await context.newPage()
    await other.goto(`${installation.base}/console/account`)
    await other.getByRole('heading', { name: 'Your account' }).waitFor()
    await page.getByRole('button', { name: 'Account' }).click()
    await page.getByRole('menuitem', { name: 'Sign out' }).click()
    await page.getByRole('heading', { name: 'Sign in' }).waitFor()
    await other.getByRole('heading', { name: 'Sign in' }).waitFor()
  })

  test('the keyboard alone searches, opens and closes', async () => {
    const domain = await newDomain('Keys')
    await api('POST', `/${domain}/clients`, { name: 'pump' })
    await api('POST', `/${domain}/clients`, { name: 'press' })
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}`)
    await page.getByRole('heading', { name: 'Keys', exact: true }).waitFor()
    await page.keyboard.press('?')
    await page.getByRole('dialog', { name: 'Keys' }).waitFor()
    await page.keyboard.press('Escape')
    await page.keyboard.press('g')
    await page.keyboard.press('c')
    await page.getByRole('heading', { name: 'Clients', exact: true }).waitFor()
    await page.getByRole('link', { name: 'press' }).waitFor()
    // The first press enters the list; after `g`, the same key is the second of two.
    const row = async () => await page.evaluate<string | null>('document.activeElement.getAttribute("data-row")')
    await page.keyboard.press('j')
    await expect.poll(row).toBe('0')
    await page.keyboard.press('j')
    await expect.poll(row).toBe('1')
    await page.keyboard.press('k')
    await expect.poll(row).toBe('0')
    await page.keyboard.press('g')
    await page.keyboard.press('j')
    await page.getByRole('heading', { name: 'Journal', exact: true }).waitFor()
    await page.goBack()
    await page.getByRole('link', { name: 'press' }).waitFor()
    await page.keyboard.press('k')
    await expect.poll(row).toBe('0')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'press' }).waitFor()
    await page.keyboard.press('Control+k')
    await page.keyboard.type('chann')
    await page.getByRole('option', { name: 'Channels' }).waitFor()
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Channels', exact: true }).waitFor()
  })

  test('a page shows its requests as commands, without its token', async () => {
    const domain = await newDomain('Commands')
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/clients`)
    await at(page, 'No clients yet').waitFor()
    await page.getByRole('button', { name: 'Show this page as commands' }).click()
    const text = (await page.getByLabel(`GET /${domain}/clients`, { exact: true }).textContent()) ?? ''
    expect(text).toContain(`"${installation.base}/${domain}/clients?`)
    expect(text).toContain('Bearer $TOKEN')
    expect(text).not.toContain('eyJ')
    // Also when its data is still there, and nothing is sent for it.
    await page.keyboard.press('Escape')
    await page.getByRole('link', { name: 'Channels', exact: true }).click()
    await at(page, 'No channels yet').waitFor()
    await page.getByRole('link', { name: 'Clients', exact: true }).click()
    await at(page, 'No clients yet').waitFor()
    await page.getByRole('button', { name: 'Show this page as commands' }).click()
    await page.getByLabel(`GET /${domain}/clients`, { exact: true }).waitFor()
    expect(await page.getByLabel(`GET /${domain}/channels`, { exact: true }).count()).toBe(0)
  })

  test('the console works under a path prefix of a reverse proxy', async () => {
    const { createServer, request } = await import('node:http')
    const target = new URL(installation.base)
    const proxy = createServer((incoming, answer) => {
      const path = (incoming.url ?? '/').replace(/^\/tools\/skein/, '')
      const forwarded = request(
        { host: target.hostname, port: target.port, path, method: incoming.method, headers: incoming.headers },
        (response) => {
          answer.writeHead(response.statusCode ?? 502, response.headers)
          response.pipe(answer)
        },
      )
      incoming.pipe(forwarded)
    })
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
    const { port } = proxy.address() as { port: number }
    const base = `http://127.0.0.1:${port}/tools/skein`
    try {
      await using visitor = await visit(browser, base)
      await signIn(visitor.page, base, 'admin', 'the-first-admin')
      await visitor.page.goto(`${base}/console/account`)
      await visitor.page.getByRole('heading', { name: 'Your account' }).waitFor()
    } finally {
      proxy.closeAllConnections()
      proxy.close()
    }
  })

  describe('every screen is accessible', () => {
    let domain: string
    let client: string
    let channel: string
    let worker: { id: string; name: string }
    let [group, task, run, workflow, refused, subscription, board, consumer] = ['', '', '', '', '', '', '', '']
    let [alarm, rule] = ['', '']
    beforeAll(async () => {
      domain = await newDomain('Accessible')
      const { workers } = await api<{ workers: (typeof worker)[] }>('GET', '/workers')
      worker = workers[0] ?? { id: '', name: '' }
      group = (await api<{ id: string }>('POST', `/${domain}/groups`, { name: 'hall' })).id
      const file = readFileSync('examples/add/add.wasm').toString('base64')
      task = (await api<{ id: string }>('POST', '/tasks', { name: 'sum', domain_id: domain, file })).id
      run = (await api<{ run_id: string }>('POST', `/tasks/${task}/invoke`, { inputs: [1, 2], wait: '20s' })).run_id
      const tasks = [{ name: 'first' }, { name: 'second', depends_on: ['first'] }]
      workflow = (await api<{ id: string }>('POST', '/workflows', { name: 'report', domain_id: domain, tasks })).id
      client = (await api<{ id: string }>('POST', `/${domain}/clients`, { name: 'pump', tags: ['hall'] })).id
      channel = (await api<{ id: string }>('POST', `/${domain}/channels`, { name: 'heat', route: 'heat' })).id
      await api('POST', `/${domain}/channels/connect`, {
        client_ids: [client],
        channel_ids: [channel],
        types: ['publish', 'subscribe'],
      })
      // It has no module, so the message is a dead letter.
      const trigger = { channel_id: channel, rate_limit: '1/1h', excess: 'wait' }
      refused = (await api<{ id: string }>('POST', '/tasks', { name: 'refused', domain_id: domain, trigger })).id
      await api('POST', `/m/${domain}/c/${channel}`, [{ n: 'temperature', u: 'Cel', v: 20 }])
      await until(
        async () => (await api<{ total: number }>('GET', `/tasks/${refused}/dead-letters`)).total === 1,
        'a dead letter',
      )
      await api('POST', '/subscriptions', { topic: `m/${domain}/c/${channel}/alarms`, contact: 'ann@example.com' })
      const { subscriptions } = await api<{ subscriptions: { id: string }[] }>('GET', '/subscriptions')
      subscription = subscriptions[0]?.id ?? ''
      const reads = {
        name: 'readings',
        channels: [channel],
        from: 'earliest',
        max_deliver: 1,
        filter: { subtopic: '#' },
      }
      consumer = (await api<{ id: string }>('POST', `/${domain}/consumers`, reads)).id
      const taken = await api<{ messages: { position: string }[] }>('GET', `/${domain}/consumers/${consumer}/messages`)
      // A dead letter, and a message that waits.
      await api('POST', `/${domain}/consumers/${consumer}/nack`, { positions: [taken.messages[0]?.position] })
      const warm = {
        name: 'too warm',
        source: { type: 'messages', channels: [channel], names: ['temperature'] },
        condition: 'value > 20.0',
        clear_when: 'value < 18.0',
        actions: [{ type: 'alarm' }, { type: 'publish', channel, subtopic: 'warm' }, { type: 'start', task }],
      }
      rule = (await api<{ id: string }>('POST', `/${domain}/rules`, warm)).id
      await api('POST', `/m/${domain}/c/${channel}`, [{ n: 'temperature', u: 'Cel', v: 21 }])
      alarm = await until(async () => {
        const { alarms } = await api<{ alarms: { id: string }[] }>('GET', `/${domain}/alarms`)
        return alarms[0]?.id
      }, 'the alarm')
      const series = [{ publisher: '', name: 'temperature', unit: 'Cel' }]
      const tiles = ['chart', 'value', 'gauge', 'state'].map((kind) => ({ kind, title: kind, channel, series }))
      const content = { range: '1h', tiles: [...tiles, { kind: 'text', title: 'note', text: 'Call 112' }] }
      board = (await api<{ id: string }>('POST', `/${domain}/dashboards`, { name: 'Wall', shared: true, content })).id
    })

    const screens = (): [path: string, heading: string][] => [
      ['/', 'Domains'],
      ['/account', 'Your account'],
      ['/account/notifications', 'Notifications'],
      [`/account/notifications/${subscription}`, 'ann@example.com'],
      [`/d/${domain}`, 'Accessible'],
      [`/d/${domain}/clients`, 'Clients'],
      [`/d/${domain}/clients/${client}`, 'pump'],
      [`/d/${domain}/clients/${client}/connections`, 'pump'],
      [`/d/${domain}/clients/${client}/snippets`, 'pump'],
      [`/d/${domain}/clients/${client}/journal`, 'pump'],
      [`/d/${domain}/channels`, 'Channels'],
      [`/d/${domain}/channels/${channel}`, 'heat'],
      [`/d/${domain}/channels/${channel}/live`, 'heat'],
      [`/d/${domain}/channels/${channel}/messages`, 'heat'],
      [`/d/${domain}/channels/${channel}/clients`, 'heat'],
      [`/d/${domain}/channels/${channel}/about`, 'heat'],
      [`/d/${domain}/channels/${channel}/consumers`, 'heat'],
      [`/d/${domain}/alarms`, 'Alarms'],
      [`/d/${domain}/alarms/${alarm}`, 'too warm'],
      [`/d/${domain}/rules`, 'Rules'],
      [`/d/${domain}/rules?create=1`, 'New rule'],
      [`/d/${domain}/rules/${rule}`, 'too warm'],
      [`/d/${domain}/consumers`, 'Consumers'],
      [`/d/${domain}/consumers?create=1`, 'New consumer'],
      [`/d/${domain}/consumers/${consumer}`, 'readings'],
      [`/d/${domain}/consumers/${consumer}/dead-letters`, 'readings'],
      [`/d/${domain}/consumers/${consumer}/receive`, 'readings'],
      [`/d/${domain}/boards`, 'Boards'],
      [`/d/${domain}/boards/${board}`, 'Wall'],
      [`/d/${domain}/connections`, 'Connections'],
      [`/d/${domain}/connections?shape=graph`, 'Connections'],
      [`/d/${domain}/groups`, 'Groups'],
      [`/d/${domain}/groups/${group}`, 'hall'],
      [`/d/${domain}/import`, 'Import'],
      [`/d/${domain}/tasks`, 'Tasks'],
      [`/d/${domain}/tasks/${task}`, 'sum'],
      [`/d/${domain}/tasks/${task}/runs`, 'sum'],
      [`/d/${domain}/tasks/${task}/module`, 'sum'],
      [`/d/${domain}/tasks/${task}/rules`, 'sum'],
      [`/d/${domain}/tasks/${refused}/rules`, 'refused'],
      [`/d/${domain}/tasks/${refused}/dead-letters`, 'refused'],
      [`/d/${domain}/tasks/${task}/runs/${run}`, 'Run of sum'],
      [`/d/${domain}/runs`, 'Runs'],
      [`/d/${domain}/workflows`, 'Workflows'],
      [`/d/${domain}/workflows/${workflow}`, 'report'],
      [`/d/${domain}/modules`, 'Modules'],
      [`/d/${domain}/try`, 'Try a module'],
      [`/d/${domain}/workers`, 'Workers'],
      [`/d/${domain}/provisioning`, 'Provisioning'],
      [`/d/${domain}/profiles`, 'Profiles'],
      [`/d/${domain}/certificates`, 'Certificates'],
      ['/platform', 'Platform'],
      [`/platform/workers/${worker.id}`, worker.name],
      [`/platform/workers/${worker.id}/journal`, worker.name],
      [`/d/${domain}/members`, 'Members and roles'],
      [`/d/${domain}/access?entity=domain:${domain}&action=read`, 'Access'],
      [`/d/${domain}/journal`, 'Journal'],
      [`/d/${domain}/settings`, 'Settings'],
    ]

    test.each(['light', 'dark'] as const)(
      'in the %s theme',
      async (theme) => {
        await using visitor = await asAdmin({ theme })
        const found: string[] = []
        for (const [path, heading] of screens()) {
          await visitor.go(path)
          await visitor.page.getByRole('heading', { name: heading, exact: true }).first().waitFor()
          await expect.poll(async () => await visitor.page.locator('.skeleton').count()).toBe(0)
          for (const fault of await accessibilityFaults(visitor.page)) found.push(`${path}: ${fault}`)
        }
        expect(found).toEqual([])
      },
      SCREENS_MS,
    )

    test('and before a login', async () => {
      await using visitor = await visit(browser, installation.base)
      const found: string[] = []
      for (const [path, heading] of [
        ['/sign-in', 'Sign in'],
        ['/sign-up', 'Create an account'],
        ['/recovery', 'Set a new password'],
      ] as const) {
        await visitor.go(path)
        await visitor.page.getByRole('heading', { name: heading }).waitFor()
        found.push(...(await accessibilityFaults(visitor.page)).map((fault) => `${path}: ${fault}`))
      }
      expect(found).toEqual([])
    })

    test(
      'on a phone, no screen is wider than the display, and the navigation opens',
      async () => {
        await using visitor = await asAdmin({ isPhone: true })
        const { page } = visitor
        for (const [path, heading] of screens()) {
          await visitor.go(path)
          await page.getByRole('heading', { name: heading, exact: true }).first().waitFor()
          const overflow = await page.evaluate<number>(
            'document.documentElement.scrollWidth - document.documentElement.clientWidth',
          )
          expect(overflow, path).toBeLessThanOrEqual(0)
        }
        await visitor.go(`/d/${domain}`)
        await page.getByRole('button', { name: 'Navigation' }).click()
        await page.getByRole('dialog', { name: 'Navigation' }).getByRole('link', { name: 'Clients' }).click()
        await page.getByRole('heading', { name: 'Clients', exact: true }).waitFor()
      },
      SCREENS_MS,
    )
  })

  test('an open page continues after the platform was killed and restarted', async () => {
    const domain = await newDomain('Restart')
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}`)
    await page.getByRole('heading', { name: 'Restart', exact: true }).waitFor()
    await at(page, 'First steps: 0 of 2').waitFor()
    whole.kill('SIGKILL')
    await whole.ended
    await whole.silent
    whole = await startWhole(installation)
    admin = await login('admin', 'the-first-admin')
    await api('POST', `/${domain}/clients`, { name: 'after' })
    await at(page, '0 of 1').waitFor()
  })
})
