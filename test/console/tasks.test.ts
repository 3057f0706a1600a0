// docs/guides/console.md: what a run was started with and runs with again, the output of the next run, schedules and workflows as forms
import { readFileSync } from 'node:fs'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { accessibilityFaults, hasNoBrowser } from './browser.ts'
import { startConsole } from './running-console.ts'
import type { RunningConsole } from './running-console.ts'

const fileOf = (name: string) => readFileSync(`examples/${name}/${name}.wasm`).toString('base64')

describe.skipIf(hasNoBrowser)('tasks in the console (needs Chromium)', () => {
  let running: RunningConsole

  beforeAll(async () => {
    running = await startConsole()
  })
  afterAll(() => running?.[Symbol.asyncDispose]())

  const newTask = async (domain: string, name: string, options: object = {}) =>
    await running.made('/tasks', { name, domain_id: domain, file: fileOf(name), ...options })
  const card = (page: Page, title: string) =>
    page.locator('.card').filter({ has: page.getByRole('heading', { name: title, exact: true }) })
  const invoke = async (task: string, inputs: unknown[]) =>
    await running.api<{ run_id: string }>('POST', `/tasks/${task}/invoke`, { inputs, wait: '20s' })

  test('a run shows its inputs, runs again with them, and is tried in the browser with them', async () => {
    const domain = await running.made('/domains', { name: 'Inputs' })
    const task = await newTask(domain, 'add')
    const { run_id: run } = await invoke(task, [20, 22])
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/tasks/${task}/runs/${run}`)
    const inputs = card(page, 'Inputs')
    await inputs.getByText('Function add').waitFor()
    expect(JSON.parse((await inputs.getByLabel('inputs', { exact: true }).textContent()) ?? '')).toEqual([20, 22])
    expect(await accessibilityFaults(page)).toEqual([])
    await inputs.getByRole('button', { name: 'Run again with these' }).click()
    await expect.poll(() => page.url()).not.toContain(run)
    await card(page, 'Result')
      .getByText(/^\[?\s*42\s*\]?$/)
      .waitFor()
    await page.getByRole('link', { name: 'Try in the browser with these' }).click()
    await page.getByText(/on what it was started with/).waitFor()
    expect(await page.getByLabel('Parameter 1 (i32)').inputValue()).toBe('20')
    await page.getByRole('button', { name: 'Run', exact: true }).click()
    await page.getByText('[20,22] → [42]').waitFor()
    expect(await accessibilityFaults(page)).toEqual([])
    // Beside its state, a task says how often it runs, and how often it fails.
    await visitor.go(`/d/${domain}/tasks/${task}`)
    await page.getByText(/^2 runs in the last .+ · no failure in the last 2$/).waitFor()
  })

  test('a run of a message shows the message, and is tried in the browser with it', async () => {
    const domain = await running.made('/domains', { name: 'Messages' })
    const channel = await running.made(`/${domain}/channels`, { name: 'steam' })
    const task = await newTask(domain, 'add', { trigger: { channel_id: channel } })
    await running.api('POST', `/m/${domain}/c/${channel}`, [{ n: 'temperature', u: 'Cel', t: 1_700_000_000, v: 21 }])
    const runs = async () => (await running.api<{ runs: { id: string }[] }>('GET', `/tasks/${task}/runs`)).runs
    const run = await until(async () => (await runs())[0]?.id, 'the run of the message')
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/tasks/${task}/runs/${run}`)
    const inputs = card(page, 'Inputs')
    await inputs.getByText('"temperature"').waitFor()
    expect(await inputs.getByRole('button', { name: 'Run again with these' }).count()).toBe(0)
    await inputs.getByRole('link', { name: 'Try in the browser with these' }).click()
    const chosen = page.getByRole('button', { name: 'the message of the run' })
    await expect.poll(async () => await chosen.getAttribute('aria-pressed')).toBe('true')
    await page.getByRole('button', { name: 'Run', exact: true }).click()
    await page.getByText('[21,1700000000]').waitFor()
  })

  test('dead letters are a figure of the overview, which leads to them until they are discarded', async () => {
    const domain = await running.made('/domains', { name: 'Letters' })
    const channel = await running.made(`/${domain}/channels`, { name: 'steam' })
    const publish = async (record: object) => await running.api('POST', `/m/${domain}/c/${channel}`, [record])
    const task = await newTask(domain, 'add', { trigger: { channel_id: channel } })
    await using visitor = await running.asAdmin()
    const { page } = visitor
    const figure = page.locator('.figures').getByRole('link', { name: /^Dead letters/ })
    const overview = async () => {
      await page.getByRole('navigation', { name: 'Console' }).getByRole('link', { name: 'Overview' }).click()
      await page.getByRole('link', { name: /^Failed runs/ }).waitFor()
    }
    await visitor.go(`/d/${domain}`)
    await page.getByRole('link', { name: /^Failed runs/ }).waitFor()
    expect(await figure.count()).toBe(0)
    expect(await card(page, 'Dead letters').count()).toBe(0)

    // Without a reload.
    await publish({ n: 'a', vs: 'no number' })
    await figure.waitFor()
    expect(await figure.innerText()).toMatch(/^Dead letters\s+1\s+add$/)
    await card(page, 'Dead letters')
      .getByRole('link', { name: /^add\s*task\s*1$/ })
      .waitFor()
    expect(await accessibilityFaults(page)).toEqual([])
    await figure.click()
    await expect.poll(() => page.url()).toContain(`/tasks/${task}/dead-letters`)
    await page.getByRole('button', { name: 'Discard the dead letter' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Discard' }).click()
    await page.getByText('No dead letters').waitFor()
    await overview()
    await figure.waitFor({ state: 'detached' })
    expect(await card(page, 'Dead letters').count()).toBe(0)

    // The source with the most comes first, and each leads to its letters.
    await publish({ n: 'a', vs: 'no number' })
    const consumer = await running.made(`/${domain}/consumers`, {
      name: 'readings',
      channels: [channel],
      from: 'earliest',
      max_deliver: 1,
    })
    const path = `/${domain}/consumers/${consumer}`
    const { messages } = await running.api<{ messages: { position: string }[] }>('GET', `${path}/messages`)
    expect(messages).toHaveLength(2)
    await running.api('POST', `${path}/nack`, { positions: messages.map(({ position }) => position) })
    await figure.getByText(/^3$/).waitFor()
    await figure.getByText('most of readings').waitFor()
    const rows = card(page, 'Dead letters').getByRole('link')
    await expect.poll(async () => await rows.allInnerTexts()).toHaveLength(2)
    expect((await rows.allInnerTexts()).map((text) => text.split(/\s+/))).toEqual([
      ['readings', 'consumer', '2'],
      ['add', 'task', '1'],
    ])
    await rows.first().click()
    await expect.poll(() => page.url()).toContain(`/consumers/${consumer}/dead-letters`)
    await page.getByRole('grid', { name: 'Dead letters' }).locator('[data-row]').first().waitFor()
    await overview()
    await rows.nth(1).click()
    await expect.poll(() => page.url()).toContain(`/tasks/${task}/dead-letters`)
  })

  test('on a phone, many dead letters are a lower bound, and a long name does not widen the page', async () => {
    const domain = await running.made('/domains', { name: 'Many letters' })
    await using visitor = await running.asAdmin({ isPhone: true })
    const { page } = visitor
    const contact = `https://example.com/${'long'.repeat(60)}`
    await page.route(`**/${domain}/overview?*`, async (route) => {
      const response = await route.fetch()
      const sources = [
        { kind: 'subscription', id: domain, name: contact, count: 1_000, count_exact: false },
        { kind: 'task', id: domain, name: 'average', count: 999 },
      ]
      const json = {
        ...((await response.json()) as object),
        dead_letters: { total: 2_345, total_exact: false, sources },
      }
      await route.fulfill({ response, json })
    })
    await visitor.go(`/d/${domain}`)
    const figure = page.locator('.figures').getByRole('link', { name: /^Dead letters/ })
    await figure.getByText('2,345+', { exact: true }).waitFor()
    expect(await figure.getAttribute('href')).toMatch(new RegExp(`/account/notifications/${domain}$`))
    const letters = card(page, 'Dead letters')
    await letters.getByText('your subscription').waitFor()
    await letters.getByText('1,000+', { exact: true }).waitFor()
    await letters.getByText('999', { exact: true }).waitFor()
    await letters.getByText('346 more, of other sources').waitFor()
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(390)
    expect(await accessibilityFaults(page)).toEqual([])
  })

  test('an overview of a node of the version before, which counts no dead letters, is shown', async () => {
    const domain = await running.made('/domains', { name: 'Beside an older node' })
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await page.route(`**/${domain}/overview?*`, async (route) => {
      const response = await route.fetch()
      const { dead_letters: _letters, ...json } = (await response.json()) as { dead_letters: unknown }
      await route.fulfill({ response, json })
    })
    await visitor.go(`/d/${domain}`)
    await page.locator('.figures').getByText('Failed runs').waitFor()
    expect(await page.locator('.figures').getByText('Dead letters').count()).toBe(0)
  })

  test('the output of a task goes on with its next run', async () => {
    const domain = await running.made('/domains', { name: 'Output' })
    const task = await newTask(domain, 'hello')
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/tasks/${task}/logs`)
    await page.getByText('It has not run yet').waitFor()
    const runs: string[] = []
    const log = page.getByRole('log', { name: 'Output' })
    for (const count of [1, 2]) {
      runs.push((await running.api<{ run_id: string }>('POST', `/tasks/${task}/start`)).run_id)
      await expect.poll(async () => await log.getByRole('link').count(), { timeout: 30_000 }).toBe(count)
    }
    expect(await log.getByRole('link').allTextContents()).toEqual(runs.map((run) => run.slice(-12)))
    await expect
      .poll(async () => ((await log.textContent()) ?? '').toLowerCase().split('hello').length)
      .toBeGreaterThan(2)
    await page.getByText('The next one follows here').waitFor()
    expect(await accessibilityFaults(page)).toEqual([])
  })

  test.each([
    ['desktop', false],
    ['phone', true],
  ] as const)(
    'on a %s, a schedule is chosen in words, with its next times in the zone of the browser',
    async (_kind, isPhone) => {
      const domain = await running.made('/domains', { name: 'Schedules' })
      const task = await newTask(domain, 'add', { inputs: [1, 2] })
      await using visitor = await running.asAdmin({ isPhone })
      const { page } = visitor
      await visitor.go(`/d/${domain}/tasks/${task}/rules`)
      await page.getByRole('button', { name: 'Schedule', exact: true }).click()
      const dialog = page.getByRole('dialog')
      const times = dialog.getByRole('list', { name: 'Next times' }).getByRole('listitem')
      expect(await times.count()).toBe(0)
      await dialog.getByLabel('Starts').selectOption({ label: 'Every week' })
      await dialog.getByLabel('Day').selectOption({ label: 'Wednesday' })
      await dialog.getByLabel('At', { exact: true }).fill('07:30')
      const zone = await page.evaluate<string>('Intl.DateTimeFormat().resolvedOptions().timeZone')
      expect(await dialog.getByLabel('Time zone').inputValue()).toBe(zone)
      expect(await times.count()).toBe(5)
      expect((await times.allTextContents()).every((text) => /^Wed, .*07:30:00 AM/.test(text))).toBe(true)
      await dialog.getByLabel('Time zone').fill('Europe/Nowhere')
      await dialog.getByText(/not a cron expression in a time zone/).waitFor()
      await dialog.getByLabel('Time zone').fill('Europe/Berlin')
      expect(await times.count()).toBe(5)
      expect(await accessibilityFaults(page)).toEqual([])
      await dialog.getByRole('button', { name: 'Save' }).click()
      await dialog.waitFor({ state: 'detached' })
      const stored = async () => await running.api<{ schedule?: string; timezone?: string }>('GET', `/tasks/${task}`)
      expect(await stored()).toMatchObject({ schedule: '30 7 * * 3', timezone: 'Europe/Berlin' })
      // It is shown as it was chosen, and as an expression.
      await page.getByRole('button', { name: 'Schedule', exact: true }).click()
      expect(await dialog.getByLabel('At', { exact: true }).inputValue()).toBe('07:30')
      await dialog.getByLabel('Starts').selectOption({ label: 'A cron expression' })
      expect(await dialog.getByLabel('Cron').inputValue()).toBe('30 7 * * 3')
      // The worker starts it by itself: it has to be chosen, and is named with its ticks.
      await dialog.getByLabel('by the clock of its worker').check()
      await dialog.getByRole('button', { name: 'Save' }).click()
      await dialog.getByText('must be set for an offline task').first().waitFor()
      const { workers } = await running.api<{ workers: { id: string; name: string }[] }>('GET', '/workers')
      await dialog.getByLabel('Worker', { exact: true }).selectOption(workers[0]?.id ?? '')
      await dialog.getByRole('button', { name: 'Save' }).click()
      await dialog.waitFor({ state: 'detached' })
      const offline = async () => await running.api<{ offline?: boolean; worker_id?: string }>('GET', `/tasks/${task}`)
      expect(await offline()).toMatchObject({ offline: true, worker_id: workers[0]?.id })
      await page.getByText('without a network too, since').waitFor()
    },
  )

  test.each([
    ['desktop', false],
    ['phone', true],
  ] as const)(
    'on a %s, a workflow is made in a form, with the module of a task and one of a file',
    async (_kind, isPhone) => {
      const domain = await running.made('/domains', { name: 'Workflows' })
      await newTask(domain, 'add')
      await using visitor = await running.asAdmin({ isPhone })
      const { page } = visitor
      await visitor.go(`/d/${domain}/workflows?create=1`)
      const dialog = page.getByRole('dialog')
      const create = dialog.getByRole('button', { name: 'Create workflow' })
      await dialog.getByLabel('Name', { exact: true }).fill('report')
      expect(await create.getAttribute('title')).toBe('Name each task')
      const step = (at: number) => dialog.locator('fieldset').nth(at)
      await step(0).getByLabel('Name of the task').fill('first')
      await step(0).getByLabel('Module', { exact: true }).selectOption({ label: 'that of a task' })
      expect(await create.getAttribute('title')).toBe('Choose the module of first')
      await step(0).getByLabel('Task', { exact: true }).selectOption({ label: 'add' })
      await step(0).getByLabel('Inputs').fill('[1, 2')
      await step(0)
        .getByText(/The inputs are not JSON/)
        .waitFor()
      await step(0).getByLabel('Inputs').fill('[1, 2]')
      await dialog.getByRole('button', { name: 'Add a task' }).click()
      await step(1).getByLabel('Name of the task').fill('second')
      expect(await step(1).getByLabel('first', { exact: true }).isChecked()).toBe(true)
      await step(1).getByLabel('Module', { exact: true }).selectOption({ label: 'a file' })
      await step(1).getByLabel('Module file').setInputFiles('examples/add/add.wasm')
      await step(1).getByLabel('Function').fill('add')
      await step(1).getByLabel('Inputs').fill('[{"from": "first", "result": 0}, 10]')
      await step(1).getByLabel('Runs when').selectOption({ label: 'they ended, however' })
      await dialog.getByRole('region', { name: 'Graph of the workflow' }).getByText('second').waitFor()
      expect(await accessibilityFaults(page)).toEqual([])
      // The same as JSON, and back; the file stays.
      await dialog.getByRole('button', { name: 'JSON' }).click()
      const json = JSON.parse(await dialog.getByLabel('Tasks').inputValue()) as unknown
      expect(json).toEqual([
        { name: 'first', function: 'add', inputs: [1, 2] },
        {
          name: 'second',
          function: 'add',
          inputs: [{ from: 'first', result: 0 }, 10],
          depends_on: ['first'],
          run_if: 'always',
        },
      ])
      await dialog.getByRole('button', { name: 'Form' }).click()
      await step(1)
        .getByText(/add\.wasm/)
        .waitFor()
      await create.click()
      await page.getByRole('heading', { name: 'report' }).waitFor()
      await page.getByRole('button', { name: 'Start' }).click()
      type Workflow = { state: number; tasks: { name: string; results: unknown }[] }
      const id = /\/workflows\/([^/?]+)/.exec(page.url())?.[1] ?? ''
      const workflow = async () => await running.api<Workflow>('GET', `/workflows/${id}`)
      await until(async () => (await workflow()).state === 3, 'the end of the workflow')
      expect((await workflow()).tasks.find(({ name }) => name === 'second')?.results).toEqual([13])
    },
  )
})
