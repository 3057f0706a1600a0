// docs/guides/console.md, decision 0116: what a person does with charts and boards, and what a chart of a day costs
import { readFileSync } from 'node:fs'
import type { Locator, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { until } from '../harness/until.ts'
import { hasNoBrowser, signIn, visit } from './browser.ts'
import type { Visitor } from './browser.ts'
import { startConsole } from './running-console.ts'
import type { RunningConsole } from './running-console.ts'

const DEVICES = 20
const DAY_SECONDS = 86_400
const EVERY_SECONDS = 60
/** Records of one message. */
const PACK = 480

const MAX_REQUESTS = 6
const MAX_BYTES = 150_000
const MAX_SCRIPT_BYTES = 120_000

type Made = { id: string; credentials: { secret: string } }

describe.skipIf(hasNoBrowser)('charts and boards (needs Chromium)', () => {
  let running: RunningConsole
  let visitor: Visitor
  let page: Page
  let domain = ''
  let channel = ''
  const devices: Made[] = []
  let endSeconds = 0

  beforeAll(async () => {
    running = await startConsole()
    domain = await running.made('/domains', { name: 'North plant' })
    channel = await running.made(`/${domain}/channels`, { name: 'Hall climate' })
    for (let at = 1; at <= DEVICES; at++)
      devices.push(await running.api<Made>('POST', `/${domain}/clients`, { name: `thermometer ${at}` }))
    await running.api('POST', `/${domain}/channels/connect`, {
      client_ids: devices.map(({ id }) => id),
      channel_ids: [channel],
      types: ['publish'],
    })
    endSeconds = Math.floor(Date.now() / 1_000)
    await Promise.all(devices.map((device, at) => publishDay(device, at)))
    visitor = await running.asAdmin()
    page = visitor.page
  })
  afterAll(async () => {
    await visitor?.[Symbol.asyncDispose]()
    await running?.[Symbol.asyncDispose]()
  })

  /** A value a minute; the first device sends its humidity too. */
  async function publishDay({ credentials }: Made, at: number): Promise<void> {
    const records: object[] = []
    for (let t = endSeconds - DAY_SECONDS + at; t < endSeconds; t += EVERY_SECONDS) {
      const v = Number((20 + at / 2 + 3 * Math.sin(t / 9_000 + at) + Math.sin(t * 12.9898 + at) / 3).toFixed(2))
      records.push({ n: 'temperature', u: 'Cel', t, v })
      if (at === 0) records.push({ n: 'humidity', u: '%RH', t, v: Number((45 + 5 * Math.cos(t / 7_000)).toFixed(1)) })
    }
    for (let from = 0; from < records.length; from += PACK) {
      const sent = await fetch(`${running.installation.base}/m/${domain}/c/${channel}`, {
        method: 'POST',
        headers: { authorization: `Client ${credentials.secret}`, 'content-type': 'application/senml+json' },
        body: JSON.stringify(records.slice(from, from + PACK)),
      })
      expect(sent.status).toBe(202)
    }
  }

  const channelPath = (query = '') => `/d/${domain}/channels/${channel}${query}`
  const button = (name: string | RegExp, place: Page | Locator = page) =>
    place.getByRole('button', { name, exact: typeof name === 'string' }).first()
  const dialog = () => page.getByRole('dialog')
  const card = (unit: string) =>
    page.locator('section.card', { has: page.getByRole('heading', { name: new RegExp(`^${unit}`) }) })
  const plot = (unit: string) => card(unit).getByRole('group', { name: /^Chart of/ })
  const legend = (unit: string) => card(unit).getByRole('region', { name: 'Series of the chart' })
  const labels = async (unit: string) => await legend(unit).locator('tbody bdi').allTextContents()
  const rangeOf = () => {
    const { searchParams } = new URL(page.url())
    return [Number(searchParams.get('from')), Number(searchParams.get('to'))] as const
  }
  const lengthOf = () => rangeOf()[1] - rangeOf()[0]
  const fixed = (seconds: number, query = '') => `?from=${endSeconds - seconds}&to=${endSeconds}${query}`

  test('a chart of a day of 20 devices is one request for its data and one for the names', async () => {
    const debug = await visitor.context.newCDPSession(page)
    await debug.send('Network.enable')
    const urls = new Map<string, string>()
    const bytes = new Map<string, number>()
    debug.on('Network.requestWillBeSent', ({ requestId, request }) => void urls.set(requestId, request.url))
    debug.on('Network.dataReceived', ({ requestId, encodedDataLength }) =>
      bytes.set(requestId, (bytes.get(requestId) ?? 0) + encodedDataLength),
    )
    debug.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => bytes.set(requestId, encodedDataLength))
    await visitor.go(channelPath('?range=1d'))
    await plot('Cel').waitFor()
    await legend('Cel').getByText('thermometer 20 temperature').waitFor()
    // Of every page: the session, the domains, and the invitations and open alarms of the badges.
    const frame = ['/session/token', '/domains', `/domains/${domain}`, '/invitations', `/${domain}/alarms`]
    const paths = new Map([...urls].map(([id, url]) => [id, new URL(url).pathname]))
    const beyond = [...paths].filter(([, path]) => !path.startsWith('/console') && !frame.includes(path))
    const asked = beyond.map(([, path]) => path.replace(domain, 'D').replace(channel, 'C').toString())
    expect(asked.filter((path) => path.endsWith('/messages/series'))).toHaveLength(1)
    expect(asked.filter((path) => path.endsWith('/clients'))).toHaveLength(1)
    expect(asked.length, asked.join('\n')).toBeLessThanOrEqual(MAX_REQUESTS)
    const sum = beyond.reduce((all, [id]) => all + (bytes.get(id) ?? 0), 0)
    expect(sum).toBeGreaterThan(10_000)
    expect(sum).toBeLessThanOrEqual(MAX_BYTES)
    await debug.detach()
  })

  test('the scripts of the first screen are at most 120 kB', async () => {
    await using stranger = await visit(running.browser, running.installation.base)
    const scripts: Promise<number>[] = []
    stranger.page.on('response', (response) => {
      if (new URL(response.url()).pathname.endsWith('.js'))
        scripts.push(response.headerValue('content-length').then(Number))
    })
    await stranger.go('/')
    await stranger.page.getByRole('button', { name: 'Sign in' }).waitFor()
    const sizes = await Promise.all(scripts)
    expect(sizes.length).toBeGreaterThan(0)
    expect(sizes.every((size) => size > 0)).toBe(true)
    expect(sizes.reduce((all, one) => all + one, 0)).toBeLessThanOrEqual(MAX_SCRIPT_BYTES)
  })

  test('the page is painted before its scripts are there, and the frame before the screen in it', async () => {
    const held = Promise.withResolvers<void>()
    const heldScreen = Promise.withResolvers<void>()
    await using slow = await running.asAdmin()
    await slow.page.route(/\/index-[^/]+\.js$/, async (route) => {
      await held.promise
      await route.continue()
    })
    await slow.page.route(/\/channel-[^/]+\.js$/, async (route) => {
      await heldScreen.promise
      await route.continue()
    })
    await slow.page.goto(`${running.installation.base}/console${channelPath()}`, { waitUntil: 'commit' })
    await slow.page.locator('.boot').getByText('Skein').waitFor()
    expect(await slow.page.locator('nav').count()).toBe(0)
    held.resolve()
    await slow.page.getByRole('navigation', { name: 'Console' }).getByRole('link', { name: 'Channels' }).waitFor()
    await slow.page.getByRole('status', { name: 'Loading' }).waitFor()
    heldScreen.resolve()
    await slow.page.getByRole('heading', { name: 'Hall climate', exact: true }).waitFor()
    expect(await slow.page.locator('.boot').count()).toBe(0)
  })

  test('the readings of a chart are asked for before the console is there, and once', async () => {
    await using slow = await running.asAdmin()
    const held = Promise.withResolvers<void>()
    await slow.page.route(/\/index-[^/]+\.js$/, async (route) => {
      await held.promise
      await route.continue()
    })
    // The chart is made of the first answers: others never come.
    for (const first of ['series', 'latest']) {
      let requests = 0
      await slow.page.route(new RegExp(`/messages/${first}\\?`), async (route) => {
        requests += 1
        if (requests === 1) await route.continue()
      })
    }
    const asked: string[] = []
    slow.page.on('request', (request) => void asked.push(new URL(request.url()).pathname))
    const count = (end: string) => asked.filter((path) => path.endsWith(end)).length
    await slow.page.goto(`${running.installation.base}/console${channelPath('?range=1d')}`, { waitUntil: 'commit' })
    await until(() => count('/messages/series') === 1 && count('/messages/latest') === 1, 'the first requests')
    expect(count('/invitations')).toBe(0)
    held.resolve()
    const shown = slow.page.getByRole('region', { name: 'Series of the chart' }).filter({ hasText: 'thermometer 20' })
    await shown.waitFor()
    expect(count('/session/token')).toBe(1)
  })

  test('a console that is opened while the server does not answer says so, and goes on by itself', async () => {
    await using early = await running.asAdmin()
    let isReachable = false
    await early.page.route('**/console/session/token', async (route) => {
      await (isReachable ? route.fulfill({ status: 503, json: {} }) : route.abort())
    })
    await early.page.goto(`${running.installation.base}/console${channelPath()}`)
    await early.page.getByText('Skein does not answer').waitFor()
    isReachable = true
    await early.page.getByText('the server answered 503').waitFor()
    // A server that is being restarted is no reason to sign in again.
    await early.page.unroute('**/console/session/token')
    await early.page.getByRole('heading', { name: 'Hall climate', exact: true }).waitFor()
  })

  test('a part that a newer version of the console no longer has offers to reload the page', async () => {
    await using old = await running.asAdmin()
    await old.go(`/d/${domain}/channels`)
    await old.page.getByRole('button', { name: 'Filter', exact: true }).waitFor()
    await old.page.route(/\/filter-dialog-[^/]+\.js$/, async (route) => await route.fulfill({ status: 404, json: {} }))
    await old.page.getByRole('button', { name: 'Filter', exact: true }).click()
    await old.page.getByText('A part of the console could not be loaded').waitFor()
    await old.page.unroute(/\/filter-dialog-[^/]+\.js$/)
    await old.page.getByRole('button', { name: 'Reload the page' }).click()
    await old.page.getByRole('button', { name: 'Filter', exact: true }).click()
    await old.page.getByRole('dialog').getByRole('button', { name: 'Apply' }).waitFor()
  })

  test('the typeface comes after the first picture, and begins the next visit', async () => {
    await using first = await running.asAdmin()
    const isOwn = () => first.page.evaluate<boolean>("document.documentElement.dataset.font === 'own'")
    await until(isOwn, 'the typeface')
    await first.page.reload()
    await first.page.getByRole('heading', { name: 'Domains' }).waitFor()
    expect(await isOwn()).toBe(true)
  })

  test('values that are a minute apart are a line in five minutes, and the chart says its step and its records', async () => {
    await visitor.go(channelPath(fixed(300)))
    await card('%RH').getByText('a point is 1 min · 5 records of 1 series').waitFor()
    await visitor.go(channelPath(fixed(DAY_SECONDS)))
    await card('%RH').getByText('a point is 5 min · 1,440 records of 1 series').waitFor()
  })

  test('the figures of a series are those of its records, and the series are in natural order', async () => {
    await visitor.go(channelPath(fixed(3_600)))
    await legend('Cel').getByText('thermometer 20 temperature').waitFor()
    expect(await labels('Cel')).toEqual(devices.map((_device, at) => `thermometer ${at + 1} temperature`))
    const { messages } = await running.api<{ messages: { values: Record<string, number> }[] }>(
      'GET',
      `/${domain}/channels/${channel}/messages?publisher=${devices[0]?.id}&name=humidity&aggregation=min,max&interval=24h&from=${endSeconds - 3_600}&to=${endSeconds}`,
    )
    const cells = await legend('%RH').locator('tbody tr').first().locator('td').allTextContents()
    const least = Math.min(...messages.map(({ values }) => values['min'] ?? Infinity))
    const most = Math.max(...messages.map(({ values }) => values['max'] ?? 0))
    expect([cells[3], cells[5]]).toEqual([String(least), String(most)])
  })

  test('the pointer shows the values of all series at its time, in every chart of the page', async () => {
    await visitor.go(channelPath(fixed(3_600)))
    await legend('Cel').getByText('thermometer 1 temperature').waitFor()
    await plot('%RH').focus()
    await page.keyboard.press('Home')
    await page.keyboard.press('ArrowRight')
    const heads = async () =>
      await Promise.all(['%RH', 'Cel'].map((unit) => legend(unit).locator('th.pointed').textContent()))
    await until(
      async () => (await heads()).every((text) => /\d{2}:\d{2}:\d{2}/.test(text ?? '')),
      'a time in both charts',
    )
    expect(new Set(await heads()).size).toBe(1)
    for (const text of await legend('Cel').locator('td.pointed').allTextContents()) expect(text).toMatch(/^\d/)
    const box = await plot('Cel').locator('.u-over').boundingBox()
    await page.mouse.move((box?.x ?? 0) + (box?.width ?? 0) / 2, (box?.y ?? 0) + 40)
    const before = (await heads())[0]
    await until(async () => (await heads())[0] !== before || (await heads())[0] === (await heads())[1], 'the same time')
    expect(new Set(await heads()).size).toBe(1)
  })

  test('a zoom by keys, by mouse and by a named range is in the address, and Back undoes it', async () => {
    await visitor.go(channelPath(fixed(3_600)))
    await plot('%RH').focus()
    await page.keyboard.press('+')
    await until(() => lengthOf() === 1_800, 'half the range')
    await page.keyboard.press('-')
    await until(() => lengthOf() === 3_600, 'the whole range')
    const box = await plot('%RH').locator('.u-over').boundingBox()
    const { x = 0, y = 0, width = 0 } = box ?? {}
    await page.mouse.move(x + width / 4, y + 60)
    await page.mouse.down()
    await page.mouse.move(x + width / 2, y + 60, { steps: 5 })
    await page.mouse.up()
    await until(() => Math.abs(lengthOf() - 900) < 30, 'a quarter of the range')
    await button('6h').click()
    await until(() => page.url().includes('range=6h'), 'the named range')
    await page.goBack()
    await until(() => Math.abs(lengthOf() - 900) < 30, 'the zoom before')
    await page.goBack()
    await until(() => lengthOf() === 3_600, 'the range before the zoom')
    await page.goBack()
    await until(() => lengthOf() === 1_800, 'the zoom by keys')
  })

  test('a range is shifted, widened, and chosen from a time to a time in the zone that is shown', async () => {
    await visitor.go(channelPath(fixed(3_600)))
    await button('Earlier').click()
    await until(() => rangeOf()[1] === endSeconds - 1_800, 'half an hour earlier')
    await button('Later').click()
    await until(() => rangeOf()[1] === endSeconds, 'the range before')
    await button('Zoom out').click()
    await until(() => lengthOf() === 7_200, 'twice the range')
    await button('UTC', page.getByRole('group', { name: 'Time zone' })).click()
    await until(() => page.url().includes('zone=utc'), 'the zone')
    await button(/ to /).click()
    await dialog().getByLabel('From').fill('2026-03-01T10:00:00')
    await dialog().getByLabel('To', { exact: true }).fill('2026-03-01T09:00:00')
    await button('Show', dialog()).click()
    await dialog().getByText('The end must be later than the beginning').first().waitFor()
    await dialog().getByLabel('To', { exact: true }).fill('2026-03-01T11:30:00')
    await button('Show', dialog()).click()
    await until(() => lengthOf() === 5_400, 'the chosen range')
    expect(rangeOf()[0]).toBe(Date.UTC(2026, 2, 1, 10) / 1_000)
    await page.getByText('Nothing was measured in this range').waitFor()
    await button('Show the nearest data').click()
    await plot('Cel').waitFor()
    await button(/ to /).click()
    await dialog().getByLabel('Calendar').selectOption('Yesterday')
    await button('Show', dialog()).click()
    await until(() => lengthOf() === DAY_SECONDS, 'yesterday')
  })

  test('series are chosen by a check box, alone, by device and by name; the choice is in the address', async () => {
    await visitor.go(channelPath(fixed(3_600)))
    await legend('Cel').getByText('thermometer 2 temperature').waitFor()
    await page.getByRole('checkbox', { name: 'Show temperature of thermometer 2', exact: true }).click()
    await until(async () => !(await labels('Cel')).includes('thermometer 2 temperature'), 'without the second')
    expect(await labels('Cel')).toHaveLength(DEVICES - 1)
    await button('Show only thermometer 10 temperature').click()
    await until(async () => (await labels('Cel')).join() === 'thermometer 10 temperature', 'the tenth alone')
    await page.reload()
    await until(async () => (await labels('Cel')).join() === 'thermometer 10 temperature', 'the tenth after a reload')
    await page.getByRole('checkbox', { name: 'Show temperature of thermometer 9', exact: true }).click()
    await until(
      async () => (await labels('Cel')).join() === 'thermometer 9 temperature,thermometer 10 temperature',
      'both in natural order',
    )
    await button('Remove thermometer 9 temperature').click()
    await until(async () => (await labels('Cel')).length === 1, 'one again')
    await button('Choose by temperature of thermometer 1').click()
    await page.getByRole('menuitem', { name: 'All of thermometer 1' }).click()
    await until(
      async () => (await labels('%RH')).join() === 'thermometer 1 humidity',
      'the humidity of the first device',
    )
    expect(await labels('Cel')).toEqual(['thermometer 1 temperature'])
    await button('Choose by temperature of thermometer 1').click()
    await page.getByRole('menuitem', { name: 'temperature of all devices' }).click()
    await until(async () => (await labels('Cel')).length === DEVICES, 'all temperatures')
    await button('Choose by temperature of thermometer 3').click()
    await page.getByRole('menuitem', { name: 'Only this series' }).click()
    await until(async () => (await labels('Cel')).length === 1, 'the third alone')
    await page.getByRole('checkbox', { name: 'Show temperature of thermometer 3', exact: true }).click()
    await page.getByText('No series is chosen').waitFor()
    await button('Show all').click()
    await until(async () => (await labels('Cel')).length === DEVICES, 'all series')
    await button('Show the first series').click()
    await until(() => !page.url().includes('series='), 'no choice')
  })

  test('the values of the range are a table and a CSV file of what is shown', async () => {
    await visitor.go(channelPath(fixed(300)))
    await button('Values as a table', card('%RH')).click()
    const table = card('%RH').getByRole('region', { name: 'Values of the range' })
    expect(await table.locator('tbody tr').count()).toBe(5)
    const download = page.waitForEvent('download')
    await button('Download CSV', card('%RH')).click()
    const path = await (await download).path()
    const [head, ...rows] = readFileSync(path, 'utf8').trimEnd().split('\r\n')
    expect(head).toBe(
      'time,' + ['mean', 'minimum', 'maximum'].map((one) => `thermometer 1 humidity ${one} (%RH)`).join(','),
    )
    expect(rows).toHaveLength(5)
    const shown = (await table.locator('tbody tr td:nth-child(2)').allTextContents()).toReversed()
    expect(rows.map((row) => row.split(',')[1])).toEqual(shown)
  })

  test('a chart moves on while messages arrive all the time', async () => {
    const busy = await running.made(`/${domain}/channels`, { name: 'busy' })
    const publish = async () =>
      await running.api('POST', `/m/${domain}/c/${busy}`, [{ n: 'load', u: '%', v: Math.round(Math.random() * 100) }])
    await publish()
    let asked = 0
    page.on('request', (request) => {
      if (new URL(request.url()).pathname.endsWith(`/${busy}/messages/series`)) asked += 1
    })
    await visitor.go(`/d/${domain}/channels/${busy}?range=5m`)
    await plot('%').waitFor()
    // Without messages, a chart is drawn every 15 s: two more pictures than that come from the messages.
    await until(async () => {
      await publish()
      return asked >= 5
    }, 'four more pictures')
  })

  test('dates and numbers are those of the language of the browser, words are English', async () => {
    await using german = await running.asAdmin({ locale: 'de-DE', timezoneId: 'Europe/Berlin' })
    const [from, to] = [Date.UTC(2026, 2, 1, 10) / 1_000, Date.UTC(2026, 2, 1, 11, 30) / 1_000]
    await german.go(channelPath(`?from=${from}&to=${to}`))
    await german.page.getByRole('button', { name: '01.03.2026, 11:00:00 to 01.03.2026, 12:30:00' }).waitFor()
    await german.go(channelPath(fixed(3_600)))
    const shown = german.page.getByRole('region', { name: 'Series of the chart' }).filter({ hasText: 'thermometer 20' })
    await shown.waitFor()
    const figures = (await shown.locator('tbody td').allTextContents()).filter((text) => /^-?\d/.test(text))
    expect(figures.some((text) => /^\d+,\d+$/.test(text))).toBe(true)
    expect(figures.filter((text) => text.includes('.'))).toEqual([])
  })

  test('one finger selects a range and two fingers stretch it', async () => {
    await using phone = await running.asAdmin({ isPhone: true })
    await phone.go(channelPath(fixed(3_600)))
    const over = phone.page
      .locator('section.card', { has: phone.page.getByRole('heading', { name: /^%RH/ }) })
      .locator('.u-over')
    await over.waitFor()
    await over.scrollIntoViewIfNeeded()
    const debug = await phone.context.newCDPSession(phone.page)
    const swipe = async (fingers: readonly (readonly [number, number])[]) => {
      const { x = 0, y = 0, width = 0, height = 0 } = (await over.boundingBox()) ?? {}
      const at = (part: 0 | 1, share: number) =>
        fingers.map((finger, id) => ({
          x: x + width * (finger[0] + (finger[part] - finger[0]) * share),
          y: y + height / 2,
          id,
        }))
      await debug.send('Input.dispatchTouchEvent', { type: 'touchStart', touchPoints: at(0, 0) })
      for (const share of [0.25, 0.5, 0.75, 1])
        await debug.send('Input.dispatchTouchEvent', { type: 'touchMove', touchPoints: at(1, share) })
      await debug.send('Input.dispatchTouchEvent', { type: 'touchEnd', touchPoints: [] })
    }
    const length = () => {
      const { searchParams } = new URL(phone.page.url())
      return Number(searchParams.get('to')) - Number(searchParams.get('from'))
    }
    await swipe([[0.25, 0.75]])
    await until(() => Math.abs(length() - 1_800) < 120, 'half the range')
    await over.waitFor()
    await swipe([
      [0.4, 0.2],
      [0.6, 0.8],
    ])
    await until(() => Math.abs(length() - 600) < 120, 'a third of it')
    await phone.page.goBack()
    await until(() => Math.abs(length() - 1_800) < 120, 'the range before')
  })

  test('a chart is pinned to a board; its owner adds tiles of each kind, arranges and shares them', async () => {
    await visitor.go(channelPath(fixed(3_600)))
    await legend('Cel').getByText('thermometer 20 temperature').waitFor()
    await button('Pin to a board', card('Cel')).click()
    await dialog().getByLabel('Name of the new board').fill('Wall of hall 1')
    await button('Pin', dialog()).click()
    await dialog().waitFor({ state: 'detached' })
    await button('Pin to a board', card('%RH')).click()
    await dialog().getByLabel('Title of the chart').fill('Humidity')
    await button('Pin', dialog()).click()
    await dialog().waitFor({ state: 'detached' })
    await visitor.go(`/d/${domain}/boards`)
    await page.getByRole('link', { name: /Wall of hall 1/ }).click()
    await page
      .getByRole('region', { name: 'Humidity' })
      .getByRole('group', { name: /^Chart of/ })
      .waitFor()
    const titles = async () => await page.locator('.tile-title').allTextContents()
    expect(await titles()).toEqual(['temperature (Cel)', 'Humidity'])
    const add = async (kind: string, fill: () => Promise<unknown>) => {
      await button('Add tile').click()
      await button(kind, dialog()).click()
      await dialog().getByLabel('Title').fill(`The ${kind.toLowerCase()}`)
      await fill()
      await button('Add', dialog()).click()
      await dialog().waitFor({ state: 'detached' })
    }
    const choose = async () => {
      await dialog().getByLabel('Channel', { exact: true }).selectOption('Hall climate')
      await dialog().getByLabel('Series').selectOption('thermometer 1 humidity (%RH)')
    }
    await add('Value', choose)
    await add('Gauge', choose)
    await add('State', async () => {
      await choose()
      await dialog().getByLabel('Good from').fill('99')
    })
    await add('Text', () => dialog().getByLabel('Text', { exact: true }).fill('Call 112\nin an emergency'))
    await page
      .getByRole('region', { name: 'The state' })
      .getByText(/^Bad: [\d.]+ %RH$/)
      .waitFor()
    await page.getByRole('region', { name: 'The gauge' }).getByRole('img').waitFor()
    await page.getByRole('region', { name: 'The text' }).getByText('Call 112').waitFor()
    await button('Arrange').click()
    const tile = page.getByRole('region', { name: 'The text' })
    await button('Move earlier', tile).click()
    await button('Wider', tile).click()
    await button('Remove tile', page.getByRole('region', { name: 'The gauge' })).click()
    await page.getByRole('region', { name: 'The state' }).dragTo(page.getByRole('region', { name: 'Humidity' }))
    await until(async () => (await titles())[1] === 'The state', 'a tile that was dragged')
    await button('Move later', page.getByRole('region', { name: 'The state' })).click()
    await button('Save').click()
    await button('Arrange').waitFor()
    await page.reload()
    await tile.waitFor()
    expect(await titles()).toEqual(['temperature (Cel)', 'Humidity', 'The state', 'The value', 'The text'])
    expect(await tile.getAttribute('class')).toContain('w2')
    await button('Full screen').click()
    await until(() => page.evaluate<boolean>("document.fullscreenElement?.className === 'board'"), 'the whole screen')
    await page.evaluate('document.exitFullscreen()')

    const member = await running.made('/users', {
      first_name: 'Vera',
      last_name: 'Viewer',
      email: 'vera@example.com',
      credentials: { username: 'vera', secret: 'correct horse' },
    })
    await running.api('POST', `/domains/${domain}/roles`, {
      role_name: 'reader',
      optional_actions: ['read', 'channel_read'],
      optional_members: [member],
    })
    await using other = await visit(running.browser, running.installation.base)
    await signIn(other.page, running.installation.base, 'vera', 'correct horse')
    await other.go(`/d/${domain}/boards`)
    await other.page.getByText('Create your first board').waitFor()
    await button('More actions').click()
    await page.getByRole('menuitem', { name: 'Share in the domain' }).click()
    await page.locator('.page-head').getByText('shared').waitFor()
    await other.page.reload()
    await other.page.getByRole('link', { name: /Wall of hall 1/ }).click()
    await other.page.getByRole('region', { name: 'The text' }).getByText('Call 112').waitFor()
    await other.page.getByRole('button', { name: 'Full screen' }).waitFor()
    expect(await other.page.getByRole('button', { name: 'Arrange' }).count()).toBe(0)
    await other.page.getByRole('button', { name: 'More actions' }).click()
    await other.page.getByRole('menuitem', { name: 'Copy' }).click()
    await other.page.getByRole('heading', { name: 'Wall of hall 1 (copy)' }).waitFor()
    await other.page.getByRole('button', { name: 'Arrange' }).waitFor()
  })
})
