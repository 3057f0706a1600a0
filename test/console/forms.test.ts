// docs/guides/console.md: an error is shown in its form, at the field that it names
import type { Page } from 'playwright-core'
import { parseWithExactIntegers } from '#core/exact-integers.ts'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { accessibilityFaults, hasNoBrowser, visit } from './browser.ts'
import { startConsole } from './running-console.ts'
import type { RunningConsole } from './running-console.ts'

describe.skipIf(hasNoBrowser)('forms of the console (needs Chromium)', () => {
  let running: RunningConsole

  beforeAll(async () => {
    running = await startConsole()
  })
  afterAll(() => running?.[Symbol.asyncDispose]())

  const made = (path: string, body: object) => running.made(path, body)
  const asAdmin = (isPhone = false) => running.asAdmin({ isPhone })

  /** The one field that is marked, with the focus and its message beside it. */
  async function refusedField(page: Page): Promise<{ label: string; message: string }> {
    await page.getByRole('dialog').locator('[aria-invalid=true]').waitFor()
    const read = async <T>(expression: string) => await page.evaluate<T>(`document.${expression}`)
    await expect.poll(async () => await read('activeElement.getAttribute("aria-invalid")')).toBe('true')
    return {
      label: await read('activeElement.labels[0].textContent'),
      message: await read('getElementById(document.activeElement.getAttribute("aria-describedby")).textContent'),
    }
  }

  test.each([
    ['desktop', false],
    ['phone', true],
  ] as const)('on a %s, a refused value is marked in its dialog, and the focus is there', async (_kind, isPhone) => {
    const domain = await made('/domains', { name: 'Forms' })
    const task = await made('/tasks', { name: 'sum', domain_id: domain })
    const client = await made(`/${domain}/clients`, { name: 'pump' })
    await using visitor = await asAdmin(isPhone)
    const { page } = visitor
    const send = async (submit: string) =>
      await page.getByRole('dialog').getByRole('button', { name: submit, exact: true }).click()
    const put = async (label: string, value: string) => await page.getByRole('dialog').getByLabel(label).fill(value)

    await visitor.go(`/d/${domain}/channels?create=1`)
    await put('Name', 'steam')
    await put('Route', 'not a route/')
    await send('Create channel')
    expect(await refusedField(page)).toEqual({ label: 'Route', message: expect.stringMatching(/^Route must /) })
    expect(await accessibilityFaults(page)).toEqual([])
    // Nothing is said behind the dialog.
    expect(await page.locator('.toast').count()).toBe(0)
    // A value that is right is accepted in the same dialog.
    await put('Route', `route-${isPhone ? 'phone' : 'desktop'}`)
    await send('Create channel')
    await page.getByRole('heading', { name: 'steam' }).waitFor()

    await visitor.go(`/d/${domain}/tasks/${task}/rules`)
    await page.getByRole('button', { name: 'Schedule' }).click()
    await page.getByRole('dialog').getByLabel('Starts').selectOption({ label: 'A cron expression' })
    await put('Cron', 'at nine')
    await send('Save')
    expect(await refusedField(page)).toEqual({ label: 'Cron', message: expect.stringMatching(/^Cron /) })

    await visitor.go(`/d/${domain}/certificates?client=${client}&create=1`)
    await put('Lifetime', 'for ever')
    await send('Issue certificate')
    expect(await refusedField(page)).toEqual({ label: 'Lifetime', message: expect.stringMatching(/^Lifetime must /) })

    await visitor.go(`/d/${domain}/workflows?create=1`)
    await page.getByRole('dialog').getByLabel('Name', { exact: true }).fill('report')
    await put('Name of the task', 'a')
    await page.getByRole('dialog').getByRole('button', { name: 'JSON' }).click()
    await put('Tasks', '[{"name": "a"}, ')
    await send('Create workflow')
    expect(await refusedField(page)).toEqual({ label: 'Tasks', message: expect.stringMatching(/not JSON/) })
    await put('Tasks', '[{"name": "a", "depends_on": ["b"]}]')
    await send('Create workflow')
    expect(await refusedField(page)).toEqual({ label: 'Tasks', message: expect.stringMatching(/depends_on|"b"|b\b/) })
  })

  test('a value that another entity has is marked in its dialog', async () => {
    const domain = await made('/domains', { name: 'Taken', alias: 'taken' })
    await made('/domains', { name: 'Other', alias: 'other' })
    await made(`/${domain}/channels`, { name: 'steam', route: 'steam' })
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/channels?create=1`)
    await page.getByRole('dialog').getByLabel('Name').fill('other')
    await page.getByRole('dialog').getByLabel('Route').fill('steam')
    await page.getByRole('dialog').getByRole('button', { name: 'Create channel' }).click()
    expect(await refusedField(page)).toEqual({ label: 'Route', message: 'Route is already in use' })
    expect(await page.locator('.toast').count()).toBe(0)
    await visitor.go('/')
    await page.getByRole('button', { name: 'New domain' }).first().click()
    await page.getByRole('dialog').getByLabel('Name').fill('another')
    await page.getByRole('dialog').getByLabel('Alias').fill('taken')
    await page.getByRole('dialog').getByRole('button', { name: 'Create domain' }).click()
    expect(await refusedField(page)).toEqual({ label: 'Alias', message: 'Alias is already in use' })
    await visitor.go(`/d/${domain}/settings`)
    await page.getByLabel('Alias').fill('other')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByText('Alias is already in use').waitFor()
  })

  test('an error of no field is shown in the dialog, with the focus; a dialog that is opened again shows none', async () => {
    const domain = await made('/domains', { name: 'Gone' })
    await using visitor = await asAdmin()
    const { page } = visitor
    const open = async () => {
      await page.getByRole('button', { name: 'New channel' }).first().click()
      await page.getByRole('dialog').getByLabel('Name').fill('other')
    }
    await visitor.go(`/d/${domain}/channels`)
    await open()
    // Another user was faster.
    await running.api('DELETE', `/domains/${domain}`)
    await page.getByRole('dialog').getByRole('button', { name: 'Create channel' }).click()
    const failure = page.getByRole('dialog').getByText(/The channel was not created: /)
    await failure.waitFor()
    expect(await page.evaluate<string>('document.activeElement.textContent')).toContain('The channel was not created')
    expect(await page.locator('.toast').count()).toBe(0)
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click()
    await open()
    expect(await failure.count()).toBe(0)
  })

  test('a dialog begins in its first field, one without fields on the answer that changes nothing', async () => {
    const domain = await made('/domains', { name: 'Focus' })
    const client = await made(`/${domain}/clients`, { name: 'pump' })
    await using visitor = await asAdmin()
    const { page } = visitor
    const focused = async () =>
      await page.evaluate<string>(
        'document.activeElement.labels?.[0]?.textContent ?? document.activeElement.textContent',
      )
    await visitor.go(`/d/${domain}/clients?create=1`)
    await page.getByRole('dialog').waitFor()
    await expect.poll(focused).toBe('Name')
    for (const [path, opens, label] of [
      [`/d/${domain}/channels`, 'New channel', 'Name'],
      [`/d/${domain}/clients/${client}`, 'Edit', 'Name'],
      [`/d/${domain}/clients/${client}/connections`, 'Connect', 'Channel'],
      [`/d/${domain}/members`, 'New role', 'Name'],
      [`/d/${domain}/clients/${client}`, 'Rotate', 'Cancel'],
    ] as const) {
      await visitor.go(path)
      await page.getByRole('button', { name: opens, exact: true }).first().click()
      await page.getByRole('dialog').waitFor()
      await expect.poll(focused, { message: opens }).toBe(label)
    }
  })

  test('an error toast is above a dialog, can be dismissed there, and goes with the next success', async () => {
    const domain = await made('/domains', { name: 'Toasts' })
    const channel = await made(`/${domain}/channels`, { name: 'steam' })
    await using visitor = await asAdmin()
    const { page } = visitor
    const toast = page.locator('.toast')
    const fail = async () => {
      await page.route('**/disable', (route) =>
        route.fulfill({
          status: 503,
          contentType: 'application/json',
          body: '{"message":"stopping","request_id":"r-1"}',
        }),
      )
      await page.getByRole('button', { name: 'More actions' }).click()
      await page.getByRole('menuitem', { name: 'Disable' }).click()
      await toast.getByText('The status was not changed: stopping').waitFor()
    }
    await visitor.go(`/d/${domain}/channels/${channel}`)
    await fail()
    // The id of the request is for support.
    expect(await toast.getByText('r-1').isVisible()).toBe(false)
    await toast.getByText('Details').click()
    await toast.getByText('Request r-1').waitFor()
    await page.getByRole('button', { name: 'Edit' }).first().click()
    await page.getByRole('dialog').waitFor()
    await toast.getByRole('button', { name: 'Dismiss' }).click()
    await toast.waitFor({ state: 'detached' })
    await page.keyboard.press('Escape')
    await fail()
    await page.unroute('**/disable')
    await page.getByRole('button', { name: 'More actions' }).click()
    await page.getByRole('menuitem', { name: 'Disable' }).click()
    await toast.getByText('The status was not changed: stopping').waitFor({ state: 'detached' })
  })

  test('a connection that fails after its client was created is said, and the next attempt uses the client', async () => {
    const domain = await made('/domains', { name: 'Halves' })
    await made(`/${domain}/channels`, { name: 'steam' })
    await using visitor = await asAdmin()
    const { page } = visitor
    await page.route('**/channels/connect', (route) =>
      route.fulfill({ status: 503, contentType: 'application/json', body: '{"message":"stopping"}' }),
    )
    await visitor.go(`/d/${domain}/clients?create=1`)
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Name').fill('pump')
    await dialog.getByLabel('Connect to channel').selectOption({ label: 'steam' })
    await dialog.getByRole('button', { name: 'Create client' }).click()
    await dialog.getByText(/The client was not created: stopping/).waitFor()
    await page.unroute('**/channels/connect')
    await dialog.getByRole('button', { name: 'Create client' }).click()
    await page.getByRole('heading', { name: 'pump is created' }).waitFor()
    const { total } = await running.api<{ total: number }>('GET', `/${domain}/clients`)
    expect(total).toBe(1)
  })

  test('a wrong password is said in plain words', async () => {
    await using visitor = await visit(running.browser, running.installation.base)
    const { page } = visitor
    await visitor.go('/sign-in')
    await page.getByLabel('Username or email').fill('admin')
    await page.getByLabel('Password').fill('not the password')
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByText('You are not signed in: the username or the password is wrong.').waitFor()
  })

  test('an error of a deletion is shown in its dialog', async () => {
    const domain = await made('/domains', { name: 'Asked' })
    const channel = await made(`/${domain}/channels`, { name: 'steam' })
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/channels/${channel}`)
    await page.getByRole('button', { name: 'More actions' }).click()
    await page.getByRole('menuitem', { name: 'Delete' }).click()
    await page.getByLabel('Type steam').fill('steam')
    // Another user was faster.
    await running.api('DELETE', `/${domain}/channels/${channel}`)
    await page.getByRole('button', { name: 'Delete channel' }).click()
    await page
      .getByRole('dialog')
      .getByText(/The channel was not deleted: /)
      .waitFor()
  })

  test('integers above 2^53 keep their digits in every screen, and when an entity is opened and saved', async () => {
    const digits = ['9007199254740993', '18446744073709551615']
    const domain = await made('/domains', { name: 'Digits' })
    const client = await made(`/${domain}/clients`, { name: 'meter' })
    const path = `/${domain}/clients/${client}`
    const written = `{"metadata":{"serial":${digits[0]},"deep":[${digits[1]},{"small":1}]}}`
    await running.api('PATCH', path, parseWithExactIntegers(written))
    const stored = async () => {
      const { text } = await running.whole.call('GET', path, { authorization: `Bearer ${running.admin}` })
      return JSON.stringify((parseWithExactIntegers(text) as { metadata: unknown }).metadata)
    }
    const metadata = await stored()
    expect(metadata).toContain(digits[0])
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/clients/${client}`)
    for (const one of digits) await page.getByText(one).first().waitFor()
    await page.getByRole('button', { name: 'Edit', exact: true }).click()
    const editor = page.getByRole('dialog').getByLabel('Metadata')
    for (const one of digits) expect(await editor.inputValue()).toContain(one)
    await page.getByRole('dialog').getByLabel('Name').fill('meter of the hall')
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
    await page.getByRole('heading', { name: 'meter of the hall' }).waitFor()
    expect(await stored()).toBe(metadata)
    // What is shown after the next answer is what is sent, too: the cache of the page keeps the digits.
    await page.getByRole('button', { name: 'Edit', exact: true }).click()
    await editor.fill((await editor.inputValue()).replace('"small": 1', '"small": 2'))
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    expect(await stored()).toBe(metadata.replace('"small":1', '"small":2'))
  })

  test('a dialog that is closed by a key asks before it drops what was entered, and Cancel does not', async () => {
    const domain = await made('/domains', { name: 'Entered' })
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/channels`)
    const form = page.getByRole('dialog', { name: 'New channel' })
    const question = page.getByRole('dialog', { name: 'Discard what you entered?' })
    const open = () => page.getByRole('button', { name: 'New channel' }).first().click()
    const close = () => page.keyboard.press('Escape')
    await open()
    await close()
    await form.waitFor({ state: 'detached' })
    await open()
    await form.getByLabel('Name').fill('steam')
    for (const leave of [close, () => form.getByRole('button', { name: 'Close' }).click()]) {
      await leave()
      await question.waitFor()
      expect(await accessibilityFaults(page)).toEqual([])
      // The answer that loses nothing has the focus.
      await page.keyboard.press('Enter')
      await question.waitFor({ state: 'detached' })
      expect(await form.getByLabel('Name').inputValue()).toBe('steam')
    }
    // The browser closes a dialog that has refused the key before.
    for (let presses = 0; presses < 3; presses++) {
      await close()
      await question.waitFor()
      await close()
      await question.waitFor({ state: 'detached' })
      expect(await form.getByLabel('Name').inputValue()).toBe('steam')
    }
    await close()
    await question.getByRole('button', { name: 'Discard' }).click()
    await form.waitFor({ state: 'detached' })
    await open()
    expect(await form.getByLabel('Name').inputValue()).toBe('')
    await form.getByLabel('Name').fill('steam')
    await form.getByRole('button', { name: 'Cancel' }).click()
    await form.waitFor({ state: 'detached' })
  })

  test('a page with a form that was changed asks before it is left', async () => {
    const domain = await made('/domains', { name: 'Left' })
    await using visitor = await asAdmin()
    const { page } = visitor
    const question = page.getByRole('dialog', { name: 'Discard what you entered?' })
    const leave = () => page.getByRole('navigation').getByRole('link', { name: 'Clients' }).first().click()
    const headed = (name: string) => page.getByRole('heading', { name, exact: true }).first().waitFor()
    const tags = page.getByLabel('Tags')
    await visitor.go(`/d/${domain}/settings`)
    await tags.fill('north')
    await leave()
    await question.getByRole('button', { name: 'Keep editing' }).click()
    await question.waitFor({ state: 'detached' })
    expect(await tags.inputValue()).toBe('north')
    await page.getByRole('button', { name: 'Save', exact: true }).first().click()
    await page.getByText('Saved').waitFor()
    await leave()
    await headed('Clients')
    await page.goBack()
    await expect.poll(async () => await tags.inputValue()).toBe('north')
    await tags.fill('south')
    await leave()
    await question.getByRole('button', { name: 'Discard' }).click()
    await headed('Clients')
    await page.goBack()
    await expect.poll(async () => await tags.inputValue()).toBe('north')
  })
})
