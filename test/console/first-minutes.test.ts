// docs/guides/console.md: what a new user sees of the first device: its first point, its own rows, commands that connect
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { generate } from 'mqtt-packet'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { freePorts } from '../harness/ports.ts'
import { accessibilityFaults, hasNoBrowser } from './browser.ts'
import { startConsole } from './running-console.ts'
import type { RunningConsole } from './running-console.ts'

const HOUR_SECONDS = 3_600
const COMMAND_DEADLINE_MS = 30_000
const MOSQUITTO = '/usr/bin/mosquitto_pub'
const COAP = '/usr/bin/coap-client-notls'
const CLICKS = 5

/** A line of a shell, as it is copied from a page. */
const runCommand = async (command: string, environment: Record<string, string>, cwd: string) =>
  await promisify(execFile)('sh', ['-ec', command], {
    cwd,
    timeout: COMMAND_DEADLINE_MS,
    env: { PATH: process.env['PATH'], ...environment },
  })

const choose = async (page: Page, program: string) =>
  await page.getByRole('group', { name: 'Program' }).getByRole('button', { name: program, exact: true }).click()

async function commandOf(page: Page, program: string): Promise<string> {
  await choose(page, program)
  return (await page.getByLabel(program, { exact: true }).textContent()) ?? ''
}

/** A user's machine may have none; CI has them. */
const isMissing = (program: string) => !existsSync(program) && process.env['CI'] === undefined

describe.skipIf(hasNoBrowser)('the first minutes with the console (needs Chromium)', () => {
  let running: RunningConsole
  let domain: string
  let ports: { mqtt: string; mqtts: string; coap: string; grpc: string }

  beforeAll(async () => {
    const [mqtt, mqtts, coap] = (await freePorts(3)).map(String) as [string, string, string]
    running = await startConsole({ SKEIN_MQTT_PORT: mqtt, SKEIN_MQTTS_PORT: mqtts, SKEIN_COAP_PORT: coap })
    ports = { mqtt, mqtts, coap, grpc: running.installation.environment['SKEIN_MANAGER_GRPC_PORT'] ?? '' }
    domain = await made('/domains', { name: 'First' })
  })
  afterAll(() => running?.[Symbol.asyncDispose]())

  const api = <T>(method: string, path: string, body?: unknown) => running.api<T>(method, path, body)
  const made = (path: string, body: object) => running.made(path, body)
  const asAdmin = (isPhone = false) => running.asAdmin({ isPhone })
  const newDevice = async (name: string, channel: string) => {
    const client = await api<{ id: string; credentials: { secret: string } }>('POST', `/${domain}/clients`, { name })
    await api('POST', `/${domain}/channels/connect`, {
      client_ids: [client.id],
      channel_ids: [channel],
      types: ['publish', 'subscribe'],
    })
    return { id: client.id, secret: client.credentials.secret }
  }
  const publish = async (channel: string, records: object[], as = `Bearer ${running.admin}`, subtopic = '') =>
    expect(
      (
        await fetch(`${running.installation.base}/m/${domain}/c/${channel}${subtopic}`, {
          method: 'POST',
          headers: { Authorization: as, 'Content-Type': 'application/senml+json' },
          body: JSON.stringify(records),
        })
      ).status,
    ).toBe(202)

  /** Pixels of the chart in the colour of its first series. */
  const drawnPixels = async (page: Page) =>
    await page.evaluate<number>(`(() => {
      const canvas = document.querySelector('.chart canvas')
      if (canvas === null) return 0
      const probe = document.createElement('span')
      probe.style.color = getComputedStyle(document.documentElement).getPropertyValue('--series-1')
      document.body.append(probe)
      const [red, green, blue] = getComputedStyle(probe).color.match(/\\d+/g).map(Number)
      probe.remove()
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
      let count = 0
      for (let at = 0; at < data.length; at += 4)
        if (data[at + 3] > 200 && Math.abs(data[at] - red) + Math.abs(data[at + 1] - green) + Math.abs(data[at + 2] - blue) < 30) count += 1
      return count
    })()`)

  test.each([
    ['desktop', false],
    ['phone', true],
  ] as const)('on a %s, the first measurement of a device is drawn in every range', async (_kind, isPhone) => {
    const channel = await made(`/${domain}/channels`, { name: 'one point' })
    await publish(channel, [{ n: 'temperature', u: 'Cel', v: 21.5 }])
    await using visitor = await asAdmin(isPhone)
    const { page } = visitor
    for (const range of ['5m', '1h', '7d', '30d']) {
      await visitor.go(`/d/${domain}/channels/${channel}?range=${range}`)
      await page.getByRole('group', { name: /Chart of temperature/ }).waitFor()
      await expect.poll(async () => await drawnPixels(page), { message: range }).toBeGreaterThan(3)
    }
  })

  test('an empty range says where the nearest data is, before it and after it, and goes there', async () => {
    const channel = await made(`/${domain}/channels`, { name: 'long ago' })
    const then = Math.floor(Date.now() / 1_000) - 5 * HOUR_SECONDS
    await publish(channel, [{ n: 'temperature', u: 'Cel', v: 21.5, t: then }])
    await using visitor = await asAdmin()
    const { page } = visitor
    const nearest = page.getByText(/^The nearest data is from /)
    await visitor.go(`/d/${domain}/channels/${channel}`)
    await nearest.waitFor()
    await page.getByRole('button', { name: 'Show the nearest data' }).click()
    await page.getByRole('group', { name: /Chart of temperature/ }).waitFor()
    await expect.poll(async () => await drawnPixels(page)).toBeGreaterThan(3)
    expect(Number(new URL(page.url()).searchParams.get('from'))).toBeCloseTo(then - HOUR_SECONDS / 2, 0)
    // A range before everything.
    await visitor.go(`/d/${domain}/channels/${channel}?from=${then - 9_000}&to=${then - 8_000}`)
    await nearest.waitFor()
    await page.getByRole('button', { name: 'Show the nearest data' }).click()
    await page.getByRole('group', { name: /Chart of temperature/ }).waitFor()
    // What arrives is shown without a question.
    await visitor.go(`/d/${domain}/channels/${channel}`)
    await nearest.waitFor()
    await publish(channel, [{ n: 'temperature', u: 'Cel', v: 22 }])
    await page.getByRole('group', { name: /Chart of temperature/ }).waitFor()
  })

  test('a series shows its own rows: neither those of a device nor those with a subtopic', async () => {
    const channel = await made(`/${domain}/channels`, { name: 'shared' })
    const { secret } = await newDevice('thermometer', channel)
    await publish(channel, [{ n: 'temperature', u: 'Cel', v: 10 }])
    await publish(channel, [{ n: 'temperature', u: 'Cel', v: 1_000 }], `Client ${secret}`)
    await publish(channel, [{ n: 'temperature', u: 'Cel', v: 2_000 }], undefined, '/hall')
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/channels/${channel}`)
    const rows = page.getByRole('region', { name: 'Series of the chart' }).locator('tbody tr')
    const means = async () => {
      const cells = await rows.evaluateAll((all) =>
        all.map((row) => [...row.querySelectorAll('td')].map((one) => one.textContent)),
      )
      return Object.fromEntries(cells.map((row) => [row[0], row[4]]))
    }
    await expect
      .poll(means)
      .toEqual({ 'a user temperature': '10', 'thermometer temperature': '1,000', 'a user hall temperature': '2,000' })
  })

  test.each([
    ['curl', false, undefined],
    ['mosquitto_pub', false, MOSQUITTO],
    ['mosquitto_pub with TLS', false, MOSQUITTO],
    ['coap-client', true, COAP],
  ] as const)(
    `from an empty domain to the chart of a first device, whose message %s sends, in at most ${CLICKS} clicks`,
    async (program, isPhone, needed) => {
      if (needed !== undefined && isMissing(needed)) return
      const empty = await made('/domains', { name: `Empty ${program}` })
      await using visitor = await asAdmin(isPhone)
      const { page } = visitor
      await visitor.go(`/d/${empty}`)
      let clicks = 0
      await page.exposeFunction('countClick', () => void (clicks += 1))
      await page.evaluate(`addEventListener('click', () => countClick(), true)`)
      await page.getByRole('link', { name: 'Connect a device' }).click()
      await page.getByRole('button', { name: 'Create device' }).click()
      await page.getByText('Waiting for the first message…').waitFor()
      await page.getByRole('button', { name: 'Include the secret' }).click()
      await page.getByRole('button', { name: 'Hide the secret' }).waitFor()
      if (program !== 'curl') await choose(page, program)
      const shown = page.getByLabel(program, { exact: true })
      const folder = await mkdtemp(join(tmpdir(), 'skein-first-device-'))
      try {
        await runCommand((await shown.textContent()) ?? '', {}, folder)
      } finally {
        await rm(folder, { recursive: true, force: true })
      }
      await page.getByText('The first message has arrived.').waitFor()
      expect(await accessibilityFaults(page)).toEqual([])
      await page.getByRole('link', { name: 'Show the chart' }).click()
      await page.getByRole('group', { name: /Chart of temperature/ }).waitFor()
      await expect.poll(async () => await drawnPixels(page)).toBeGreaterThan(3)
      expect(clicks).toBeGreaterThan(0)
      expect(clicks).toBeLessThanOrEqual(CLICKS)
    },
  )

  test('programs that are not run here have the addresses and the secret, and a reload finds the device again', async () => {
    const channel = await made(`/${domain}/channels`, { name: 'programs' })
    const { id, secret } = await newDevice('programs', channel)
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/connect?client=${id}&channel=${channel}`)
    await page.getByText('Waiting for the first message…').waitFor()
    for (const program of ['Python', 'Node.js', 'Arduino, ESP32', 'Node-RED'])
      expect(await commandOf(page, program)).not.toContain(secret)
    await page.getByRole('button', { name: 'Include the secret' }).click()
    await page.getByRole('button', { name: 'Hide the secret' }).waitFor()
    const topic = `m/${domain}/c/${channel}`
    const python = await commandOf(page, 'Python')
    for (const part of [`"${topic}"`, `port=${ports.mqtt}`, `"username": "${id}", "password": "${secret}"`])
      expect(python).toContain(part)
    const arduino = await commandOf(page, 'Arduino, ESP32')
    for (const part of [`mqtt.setServer("127.0.0.1", ${ports.mqtt})`, `"${id}", "${secret}"`, `"${topic}"`])
      expect(arduino).toContain(part)
    const flow = JSON.parse(await commandOf(page, 'Node-RED')) as { type: string; url?: string; func?: string }[]
    expect(flow.find(({ type }) => type === 'http request')?.url).toBe(`${running.installation.base}/${topic}`)
    expect(flow.find(({ type }) => type === 'function')?.func).toContain(`Client ${secret}`)
    const folder = await mkdtemp(join(tmpdir(), 'skein-programs-'))
    try {
      await writeFile(join(folder, 'send.mjs'), await commandOf(page, 'Node.js'))
      await promisify(execFile)(process.execPath, [join(folder, 'send.mjs')], { timeout: COMMAND_DEADLINE_MS })
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
    await page.getByText('The first message has arrived.').waitFor()
  })

  test('commands have the ports of the listeners, and work as they are shown', async () => {
    const channel = await made(`/${domain}/channels`, { name: 'commands' })
    const { id, secret } = await newDevice('pump', channel)
    await using visitor = await asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/clients/${id}/snippets`)
    const textOf = async (name: string) => await commandOf(page, name)
    const commands = {
      plain: await textOf('mosquitto_pub'),
      secure: await textOf('mosquitto_pub with TLS'),
      coap: await textOf('coap-client'),
      curl: await textOf('curl'),
    }
    expect(commands.plain).toContain(`-h 127.0.0.1 -p ${ports.mqtt} `)
    expect(commands.secure).toContain(`-h 127.0.0.1 -p ${ports.mqtts} --cafile ca.crt`)
    expect(commands.coap).toContain(`"coap://127.0.0.1:${ports.coap}/m/`)
    const runnable = [
      commands.curl,
      ...(isMissing(MOSQUITTO) ? [] : [commands.plain, commands.secure]),
      ...(isMissing(COAP) ? [] : [commands.coap]),
    ]
    const folder = await mkdtemp(join(tmpdir(), 'skein-commands-'))
    try {
      for (const command of runnable) await runCommand(command, { SECRET: secret }, folder)
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
    const { total } = await api<{ total: number }>('GET', `/${domain}/channels/${channel}/messages`)
    expect(total).toBe(runnable.length)

    await visitor.go('/platform')
    await page.getByRole('button', { name: 'Join a worker' }).click()
    const dialog = page.getByRole('dialog', { name: 'Join a worker' })
    await expect
      .poll(async () => await dialog.getByLabel('command', { exact: true }).textContent())
      .toContain(`SKEIN_WORKER_MANAGER=127.0.0.1:${ports.grpc} `)
    await dialog.getByText(/machine of the platform alone/).waitFor()
  })

  test('a page publishes and is answered over MQTT in the frames that its browser makes', async () => {
    const channel = await made(`/${domain}/channels`, { name: 'browser' })
    const device = await newDevice('browser', channel)
    const packets = [
      generate({
        cmd: 'connect',
        protocolId: 'MQTT',
        protocolVersion: 4,
        clean: true,
        clientId: 'page',
        keepalive: 60,
        username: device.id,
        password: Buffer.from(device.secret),
      }),
      // Above 126 bytes, and in one message with the next packet.
      Buffer.concat([
        generate({
          cmd: 'publish',
          topic: `m/${domain}/c/${channel}`,
          payload: JSON.stringify([{ n: 'v'.repeat(200), v: 7 }]),
          qos: 1,
          messageId: 1,
          dup: false,
          retain: false,
        }),
        generate({ cmd: 'pingreq' }),
      ]),
    ].map((packet) => [...packet])
    await using visitor = await asAdmin()
    // Three answers are awaited: CONNACK, PUBACK and PINGRESP.
    const answered = await visitor.page.evaluate<{
      kinds: number[]
      protocol: string
      extensions: string
    }>(`(async () => {
      const socket = new WebSocket(location.origin.replace('http', 'ws') + '/mqtt', ['mqtt'])
      socket.binaryType = 'arraybuffer'
      const kinds = []
      await new Promise((resolve, reject) => {
        socket.onopen = () => { for (const packet of ${JSON.stringify(packets)}) socket.send(new Uint8Array(packet)) }
        socket.onerror = () => reject(new Error('the socket failed'))
        socket.onclose = () => reject(new Error('the socket was closed'))
        socket.onmessage = ({ data }) => {
          const bytes = new Uint8Array(data)
          for (let at = 0; at < bytes.length; at += 2 + bytes[at + 1]) kinds.push(bytes[at] >> 4)
          if (kinds.length >= 3) resolve()
        }
      })
      return { kinds: kinds.toSorted((one, other) => one - other), protocol: socket.protocol, extensions: socket.extensions }
    })()`)
    expect(answered).toEqual({ kinds: [2, 4, 13], protocol: 'mqtt', extensions: '' })
    const { messages } = await api<{ messages: { value: number; protocol: string }[] }>(
      'GET',
      `/${domain}/channels/${channel}/messages`,
    )
    expect(messages).toMatchObject([{ value: 7 }])
  })
})
