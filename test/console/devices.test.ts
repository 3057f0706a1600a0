// docs/guides/console.md: the list of devices says who is online, acts on many of them, and a device shows its own data
import { readFile } from 'node:fs/promises'
import { connectAsync } from 'mqtt'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { freePorts } from '../harness/ports.ts'
import { accessibilityFaults, hasNoBrowser } from './browser.ts'
import { startConsole } from './running-console.ts'
import type { RunningConsole } from './running-console.ts'

type Client = { id: string; name: string; credentials: { secret: string } }
const FLEET = 120

describe.skipIf(hasNoBrowser)('devices in the console (needs Chromium)', () => {
  let running: RunningConsole
  let mqtt: string

  beforeAll(async () => {
    ;[mqtt = ''] = (await freePorts(1)).map(String)
    running = await startConsole({ SKEIN_MQTT_PORT: mqtt })
  })
  afterAll(() => running?.[Symbol.asyncDispose]())

  const names = async (page: Page) => await page.locator('[data-row] .main').allTextContents()
  const newClients = async (domain: string, all: readonly object[]) => {
    const made = await running.api<{ clients: Client[] } | Client[]>('POST', `/${domain}/clients/bulk`, all)
    return Array.isArray(made) ? made : made.clients
  }

  test('the list says who is online and was seen when, and is sorted and filtered by it', async () => {
    const domain = await running.made('/domains', { name: 'Online' })
    const [, , last] = await newClients(domain, [{ name: 'a' }, { name: 'b' }, { name: 'c' }])
    const session = await connectAsync(`mqtt://127.0.0.1:${mqtt}`, {
      username: last?.id ?? '',
      password: last?.credentials.secret ?? '',
    })
    try {
      await using visitor = await running.asAdmin()
      const { page } = visitor
      const row = page.getByRole('row').filter({ hasText: 'Online' }).filter({ hasNotText: 'Last seen' })
      await visitor.go(`/d/${domain}/clients?order=name&dir=asc`)
      await row.waitFor()
      expect(await row.locator('.main').textContent()).toBe('c')
      await page.getByRole('button', { name: 'State' }).click()
      await page.getByRole('button', { name: /^State/ }).click()
      await expect.poll(async () => (await names(page))[0]).toBe('c')
      expect(new URL(page.url()).searchParams.get('order')).toBe('online')
      // The longest silent first, then the last seen; every column is on the screen.
      await page.getByRole('button', { name: /^Last seen/ }).click()
      await expect.poll(async () => (await names(page))[2]).toBe('c')
      await page.getByRole('button', { name: /^Last seen/ }).click()
      await expect.poll(async () => (await names(page))[0]).toBe('c')
      expect(new URL(page.url()).search).toContain('order=last_seen&dir=desc')
      const overflow = await page.locator('.table-scroll').evaluate((table) => table.scrollWidth - table.clientWidth)
      expect(overflow, 'the columns fit').toBe(0)
      await visitor.go(`/d/${domain}/clients?state=online`)
      await expect.poll(async () => await names(page)).toEqual(['c'])
      await visitor.go(`/d/${domain}/clients?state=offline&order=name&dir=asc`)
      await expect.poll(async () => await names(page)).toEqual(['a', 'b'])
      expect(await accessibilityFaults(page)).toEqual([])
    } finally {
      await session.endAsync()
    }
  })

  test(`an action on ${FLEET} devices needs their number, and what fails stays selected`, async () => {
    const domain = await running.made('/domains', { name: 'Fleet' })
    const fleet = await newClients(
      domain,
      Array.from({ length: FLEET }, (_none, at) => ({ name: `meter ${String(at).padStart(3, '0')}`, tags: ['old'] })),
    )
    const failing = fleet[7]?.id ?? ''
    await using visitor = await running.asAdmin()
    const { page } = visitor
    const dialog = page.getByRole('dialog')
    const tag = dialog.getByRole('button', { name: `Tag ${FLEET} clients` })
    await page.route(`**/clients/${failing}/tags`, (route) =>
      route.fulfill({ status: 503, contentType: 'application/json', body: '{"message":"stopping"}' }),
    )
    await visitor.go(`/d/${domain}/clients`)
    await page.getByLabel('Select the visible rows').check()
    await page.getByRole('button', { name: `Select all ${FLEET}` }).click()
    await page.getByText(`${FLEET} clients selected`).waitFor()
    await page.getByRole('button', { name: 'Tag', exact: true }).click()
    await dialog.getByLabel('Tags to add').fill('new')
    expect(await tag.getAttribute('title')).toBe(`Type ${FLEET} first`)
    // As many languages write numbers of four digits; Enter in a field is the button.
    const number = dialog.getByLabel(`Type ${FLEET} to go on`)
    await number.fill(`${FLEET}0`)
    expect(await tag.getAttribute('title')).toBe(`Type ${FLEET} first`)
    await number.press('Enter')
    expect(await dialog.getByRole('progressbar').count()).toBe(0)
    await number.fill(` ${String(FLEET).slice(0, -2)}.${String(FLEET).slice(-2)}`)
    await number.press('Enter')
    await dialog.getByText(/1 failed and stay selected. The first: .*stopping/).waitFor()
    await dialog.locator('.dialog-foot').getByRole('button', { name: 'Close' }).click()
    await page.getByText('1 client selected').waitFor()
    const { total } = await running.api<{ total: number }>('GET', `/${domain}/clients?tags=old,new`)
    expect(total).toBe(FLEET - 1)
    const [file] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Export' }).click(),
    ])
    expect(await readFile((await file.path()) ?? '', 'utf8')).toBe(
      `id,name,tags,metadata,status\r\n${failing},meter 007,old,,enabled\r\n`,
    )
  })

  test('devices are connected to a channel beyond the first 100, in one direction', async () => {
    const domain = await running.made('/domains', { name: 'Many channels' })
    const [pump] = await newClients(domain, [{ name: 'pump' }])
    await running.api(
      'POST',
      `/${domain}/channels/bulk`,
      Array.from({ length: 100 }, (_none, at) => ({ name: `a ${at}` })),
    )
    const last = await running.made(`/${domain}/channels`, { name: 'z last' })
    await using visitor = await running.asAdmin()
    const { page } = visitor
    const dialog = page.getByRole('dialog')
    const connections = async (type: string) =>
      (
        await running.api<{ channels: { id: string }[] }>(
          'GET',
          `/${domain}/clients/${pump?.id}/channels?connection_type=${type}`,
        )
      ).channels.map(({ id }) => id)
    await visitor.go(`/d/${domain}/clients`)
    await page.getByLabel('Select the visible rows').check()
    await page.getByRole('button', { name: 'Connect', exact: true }).click()
    await dialog.getByText('More than 100 match: type a part of the name.').waitFor()
    expect(await dialog.getByRole('option', { name: 'z last' }).count()).toBe(0)
    await dialog.getByLabel('Find channels by name').fill('last')
    await dialog.getByLabel('Channel', { exact: true }).selectOption({ label: 'z last' })
    // What is chosen stays when another name is typed.
    await dialog.getByLabel('Find channels by name').fill('a 1')
    await dialog.getByRole('option', { name: 'a 17' }).waitFor({ state: 'attached' })
    expect(await dialog.getByLabel('Channel', { exact: true }).inputValue()).toBe(last)
    await dialog.getByRole('button', { name: 'Publish', exact: true }).click()
    await dialog.getByRole('button', { name: 'Connect 1 client' }).click()
    await dialog.getByText('Done.').waitFor()
    expect(await connections('publish')).toEqual([last])
    expect(await connections('subscribe')).toEqual([])
    expect(await accessibilityFaults(page)).toEqual([])
    // The page of the client and the form of a new one find it too.
    await visitor.go(`/d/${domain}/clients/${pump?.id}/connections`)
    await page.getByRole('button', { name: 'Connect', exact: true }).first().click()
    await dialog.getByLabel('Find channels by name').fill('last')
    await dialog.getByLabel('Channel', { exact: true }).selectOption({ label: 'z last' })
    await dialog.getByRole('button', { name: 'Subscribe', exact: true }).click()
    await dialog.getByRole('button', { name: 'Connect', exact: true }).click()
    await dialog.waitFor({ state: 'detached' })
    expect(await connections('subscribe')).toEqual([last])
  })

  test('the page of a device shows its newest values, and its certificates', async () => {
    const domain = await running.made('/domains', { name: 'Page' })
    const [device, other] = await newClients(domain, [{ name: 'pump' }, { name: 'valve' }])
    const channel = await running.made(`/${domain}/channels`, { name: 'steam' })
    await running.api('POST', `/${domain}/channels/connect`, {
      client_ids: [device?.id, other?.id],
      channel_ids: [channel],
      types: ['publish'],
    })
    const publish = async (secret: string, value: number) =>
      expect(
        (
          await fetch(`${running.installation.base}/m/${domain}/c/${channel}`, {
            method: 'POST',
            headers: { Authorization: `Client ${secret}`, 'Content-Type': 'application/senml+json' },
            body: JSON.stringify([{ n: 'temperature', u: 'Cel', v: value }]),
          })
        ).status,
      ).toBe(202)
    await publish(device?.credentials.secret ?? '', 21.5)
    await publish(other?.credentials.secret ?? '', 99)
    await running.api('POST', `/${domain}/certs/issue/${device?.id}`, { ttl: '1h' })
    await using visitor = await running.asAdmin()
    const { page } = visitor
    // The list has the newest value of each, in one request for all of them.
    const asked: string[] = []
    page.on('request', (request) => {
      const { pathname, searchParams } = new URL(request.url())
      if (pathname === `/${domain}/latest`) asked.push(searchParams.get('client_id') ?? '')
    })
    await visitor.go(`/d/${domain}/clients?order=name&dir=asc`)
    await page.getByRole('row').filter({ hasText: 'pump' }).getByText('21.5 Cel').waitFor()
    await page.getByRole('row').filter({ hasText: 'valve' }).getByText('99 Cel').waitFor()
    expect(new Set(asked[0]?.split(','))).toEqual(new Set([device?.id, other?.id]))
    await visitor.go(`/d/${domain}/clients/${device?.id}`)
    const values = page.locator('.card').filter({ hasText: 'Newest values' })
    await values.getByText('21.5').waitFor()
    expect(await values.textContent()).not.toContain('99')
    await page.locator('.card').filter({ hasText: 'Certificates' }).getByText('Valid', { exact: true }).waitFor()
    // It was seen and never had a session, so there is no time since which it is offline.
    expect(await page.locator('.card').filter({ hasText: 'Presence' }).textContent()).not.toContain('Since')
    expect(await accessibilityFaults(page)).toEqual([])
    // A value leads to the chart of its series, without those of other devices of the channel.
    await values.getByText('21.5').click()
    const shown = page.getByRole('region', { name: 'Series of the chart' }).locator('tbody tr')
    await expect.poll(async () => await shown.count()).toBe(1)
    await expect.poll(async () => await shown.textContent()).toContain('pump temperature')
  })
})
