// docs/guides/console.md: alarms are listed while they are raised, counted on every page, and lead to what caused them
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { accessibilityFaults, hasNoBrowser, signIn, visit } from './browser.ts'
import { startConsole } from './running-console.ts'
import type { RunningConsole } from './running-console.ts'

const SECRET = 'correct horse'

type Alarm = { id: string; name: string; status: string; assignee_name?: string }

describe.skipIf(hasNoBrowser)('alarms in the console (needs Chromium)', () => {
  let running: RunningConsole

  beforeAll(async () => {
    running = await startConsole()
  })
  afterAll(() => running?.[Symbol.asyncDispose]())

  /** A domain with a rule over each of its channels: above 30 is hot. */
  async function newPlant(name: string) {
    const { made, api } = running
    const domain = await made('/domains', { name })
    const channel = await made(`/${domain}/channels`, { name: 'steam' })
    const rule = async (its: string, more: object = {}) =>
      await made(`/${domain}/rules`, {
        name: its,
        source: { type: 'messages', channels: [channel] },
        condition: 'value > 30.0',
        actions: [{ type: 'alarm', text: '{{ name }} is too hot' }],
        ...more,
      })
    const send = async (n: string, v: number) => await api('POST', `/m/${domain}/c/${channel}`, [{ n, u: 'Cel', v }])
    const alarms = async (query = '') =>
      (await api<{ alarms: Alarm[] }>('GET', `/${domain}/alarms?limit=100${query}`)).alarms
    const untilRaised = async (count: number) =>
      await until(async () => (await alarms()).length === count, `${count} alarms`)
    return { domain, channel, rule, send, alarms, untilRaised }
  }

  const texts = async (page: Page) => await page.locator('[data-row] .main').allTextContents()
  const badge = (page: Page) => page.getByRole('navigation', { name: 'Console' }).getByRole('link', { name: /^Alarms/ })

  test('the list shows what is raised and cleared by itself, the newest first, and filters it', async () => {
    const { domain, rule, send, untilRaised } = await newPlant('Listed')
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/alarms`)
    await page.getByText('No open alarms').waitFor()
    expect(await badge(page).textContent()).toBe('Alarms')
    await rule('major heat', { severity: 'major' })
    await send('inlet', 31)
    await untilRaised(1)
    await send('outlet', 35)
    await expect.poll(async () => await texts(page)).toEqual(['outlet is too hot', 'inlet is too hot'])
    await expect.poll(async () => await badge(page).textContent()).toBe('Alarms2open')
    await page.getByRole('row').filter({ hasText: 'outlet' }).getByText('35 Cel').waitFor()
    expect(await accessibilityFaults(page)).toEqual([])

    await send('outlet', 20)
    await expect.poll(async () => await texts(page)).toEqual(['inlet is too hot'])
    await expect.poll(async () => await badge(page).textContent()).toBe('Alarms1open')
    await page.getByRole('button', { name: 'Cleared', exact: true }).click()
    await expect.poll(async () => await texts(page)).toEqual(['outlet is too hot'])
    await visitor.go(`/d/${domain}/alarms?status=all&severity=critical`)
    await page.getByText('No alarm matches').waitFor()
    await page.getByRole('button', { name: 'Clear filters' }).click()
    await expect.poll(async () => (await texts(page)).length).toBe(2)
    await page.getByRole('searchbox').fill('inlet')
    await expect.poll(async () => await texts(page)).toEqual(['inlet is too hot'])
    // A time of the address is one of the API.
    await visitor.go(`/d/${domain}/alarms?status=all&to=1700000000`)
    await page.getByText('No alarm matches').waitFor()
  })

  test('an alarm shows its series around that time, and leads to the message that raised it', async () => {
    const { domain, rule, send, alarms, untilRaised } = await newPlant('Caused')
    await rule('heat')
    for (const value of [20, 25, 33]) {
      // oxlint-disable-next-line no-await-in-loop -- their order is what is tested
      await send('inlet', value)
    }
    await untilRaised(1)
    const [alarm] = await alarms()
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/alarms/${alarm?.id}`)
    const facts = page.locator('.card').filter({ hasText: 'What is wrong' })
    for (const text of ['33 Cel', 'value > 30.0', 'heat', 'inlet', 'a user or a task'])
      await facts.getByText(text, { exact: true }).waitFor()
    const around = page.locator('.card').filter({ hasText: 'Around that time' })
    await around.locator('canvas').waitFor()
    await page.getByRole('list', { name: 'History' }).getByText('raised the alarm').waitFor()
    expect(await accessibilityFaults(page)).toEqual([])
    await facts.getByRole('link', { name: 'the message that raised it' }).click()
    // That message alone.
    const stored = page.getByRole('grid', { name: 'Stored messages' }).locator('[data-row]')
    await stored.getByText(/^33( |$)/).waitFor()
    expect(await stored.count()).toBe(1)
  })

  test('a tile of a board has the open alarms with its text, and leads to them', async () => {
    const { domain, rule, send, alarms, untilRaised } = await newPlant('On a board')
    await rule('heat')
    await send('inlet', 31)
    await send('outlet', 35)
    await untilRaised(2)
    const board = await running.made(`/${domain}/dashboards`, { name: 'Wall', content: { version: 1, tiles: [] } })
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/boards/${board}`)
    const add = async (title: string, text: string) => {
      await page.getByRole('button', { name: 'Add tile' }).first().click()
      const dialog = page.getByRole('dialog')
      await dialog.getByRole('button', { name: 'Alarms' }).click()
      await dialog.getByLabel('Title').fill(title)
      await dialog.getByLabel('Only those with this text').fill(text)
      await dialog.getByRole('button', { name: 'Add', exact: true }).click()
      await dialog.waitFor({ state: 'detached' })
    }
    await add('Everything', '')
    await add('Outlet', 'outlet')
    await add('Cold', 'cold')
    const tile = (name: string) => page.getByRole('region', { name })
    const links = async (name: string) => await tile(name).getByRole('link').allTextContents()
    await expect.poll(async () => (await links('Everything')).length).toBe(2)
    expect(await links('Outlet')).toEqual([expect.stringContaining('outlet is too hot')])
    await tile('Cold').getByText('No open alarms').waitFor()
    expect(await accessibilityFaults(page)).toEqual([])
    await page.reload()
    await tile('Outlet').getByRole('link').click()
    const outlet = (await alarms()).find(({ name }) => name === 'outlet')
    await page.waitForURL(`**/d/${domain}/alarms/${outlet?.id}`)
  })

  test('the page of a client and the overview say how many alarms are open, and lead to them', async () => {
    const { domain, channel, rule, send, untilRaised } = await newPlant('Counted')
    const { api, installation } = running
    await rule('heat')
    const pump = await api<{ id: string; credentials: { secret: string } }>('POST', `/${domain}/clients`, {
      name: 'pump',
    })
    await api('POST', `/${domain}/channels/connect`, {
      client_ids: [pump.id],
      channel_ids: [channel],
      types: ['publish'],
    })
    const published = await fetch(`${installation.base}/m/${domain}/c/${channel}`, {
      method: 'POST',
      headers: { Authorization: `Client ${pump.credentials.secret}`, 'Content-Type': 'application/senml+json' },
      body: JSON.stringify([{ n: 'bearing', u: 'Cel', v: 80 }]),
    })
    expect(published.status).toBe(202)
    await send('inlet', 40)
    await untilRaised(2)
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/clients/${pump.id}`)
    await page.getByRole('link', { name: '1 open alarm' }).click()
    await expect.poll(async () => await texts(page)).toEqual(['bearing is too hot'])
    await page.getByRole('row').filter({ hasText: 'bearing' }).getByRole('link', { name: 'pump' }).waitFor()
    await visitor.go(`/d/${domain}`)
    const figure = page.getByRole('link', { name: 'Open alarms' })
    await expect.poll(async () => await figure.locator('.figure-value').textContent()).toBe('2')
    await figure.click()
    await expect.poll(async () => (await texts(page)).length).toBe(2)
  })

  test('an alarm of a JSON object leads to its message too', async () => {
    const { domain, channel, rule, alarms, untilRaised } = await newPlant('Objects')
    await rule('level', { condition: 'json.level > 3', actions: [{ type: 'alarm', text: 'the level is high' }] })
    for (const level of [1, 4])
      // oxlint-disable-next-line no-await-in-loop -- their order is what is tested
      await running.api('POST', `/m/${domain}/c/${channel}`, { level })
    await untilRaised(1)
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/alarms/${(await alarms())[0]?.id}`)
    await page.getByRole('link', { name: 'the message that raised it' }).click()
    const stored = page.getByRole('grid', { name: 'Stored messages' }).locator('[data-row]')
    await stored.getByText('"level":4').waitFor()
    expect(await stored.count()).toBe(1)
  })

  test('many alarms are acknowledged and cleared at once', async () => {
    const { domain, rule, send, alarms, untilRaised } = await newPlant('Many')
    await rule('heat')
    for (const name of ['a', 'b', 'c']) {
      // oxlint-disable-next-line no-await-in-loop -- the newest is first
      await send(name, 40)
    }
    await untilRaised(3)
    await using visitor = await running.asAdmin()
    const { page } = visitor
    const dialog = page.getByRole('dialog')
    await visitor.go(`/d/${domain}/alarms`)
    const act = async (label: string) => {
      await page.getByLabel('Select the visible rows').check()
      await page.getByText('3 alarms selected').waitFor()
      await page.getByRole('toolbar').getByRole('button', { name: label, exact: true }).first().click()
      await dialog.getByRole('button', { name: `${label} 3 alarms` }).click()
      await dialog.getByText('Done.').waitFor()
      await dialog.locator('.dialog-foot').getByRole('button', { name: 'Close' }).click()
    }
    await act('Acknowledge')
    expect((await alarms('&status=acknowledged')).length).toBe(3)
    await act('Clear')
    expect((await alarms('&status=cleared')).length).toBe(3)
    await page.getByText('No open alarms').waitFor()
  })

  test('a user who can read alarms sees why they cannot change them, and one who cannot read them has no badge', async () => {
    const { domain, rule, send, alarms, untilRaised } = await newPlant('Read')
    await rule('heat')
    await send('inlet', 40)
    await untilRaised(1)
    const [alarm] = await alarms()
    const asMember = async (username: string, relation: string) => {
      const user = await running.made('/users', {
        first_name: username,
        last_name: 'Member',
        email: `${username}@example.com`,
        credentials: { username, secret: SECRET },
      })
      await running.api('POST', `/domains/${domain}/users/assign`, { relation, user_ids: [user] })
      const visitor = await visit(running.browser, running.installation.base)
      await signIn(visitor.page, running.installation.base, username, SECRET)
      return visitor
    }
    await using viewer = await asMember('vera', 'viewer')
    await viewer.go(`/d/${domain}/alarms/${alarm?.id}`)
    for (const name of ['Acknowledge', 'Assign', 'Clear', 'Add comment'])
      await expect
        .poll(async () => await viewer.page.getByRole('button', { name, exact: true }).first().getAttribute('title'), {
          message: name,
        })
        .toMatch(/has the action alarm_update$/)
    await viewer.page.getByRole('button', { name: 'More actions' }).click()
    await expect
      .poll(async () => await viewer.page.getByRole('menuitem', { name: 'Delete' }).getAttribute('title'))
      .toMatch(/has the action alarm_delete$/)
    // No action works on several rows, so rows cannot be selected.
    await viewer.go(`/d/${domain}/alarms`)
    await viewer.page.getByRole('link', { name: 'inlet is too hot' }).waitFor()
    await expect.poll(async () => await viewer.page.getByLabel('Select the visible rows').count()).toBe(0)

    await using operator = await asMember('oskar', 'contributor')
    await operator.go(`/d/${domain}/alarms`)
    await operator.page.getByText('You do not have access').waitFor()
    expect(await badge(operator.page).textContent()).toBe('Alarms')
  })
})
