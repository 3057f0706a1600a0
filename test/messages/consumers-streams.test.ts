// docs/guides/consumers.md: streams of named consumers, and receivers in other languages
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import { listen } from '#http/index.ts'
import type { Listeners } from '#http/index.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { newConsumer, send, values } from './consumers-support.ts'
import type { Taken, TestConsumer } from './consumers-support.ts'
import { startPlant } from './support.ts'
import type { Device } from './support.ts'

const plant = useWorld(() => startPlant({ consumerTimes: { checkSeconds: 60, intervalMs: 100 } }))
let listeners: Listeners
let base: string
let device: Device
let channel: string

beforeAll(async () => {
  listeners = await listen(plant.api.app, {
    host: '127.0.0.1',
    ports: [{ port: 0, isOptional: false, setting: 'TEST' }],
    logger,
  })
  base = `http://127.0.0.1:${listeners.ports[0]}`
  device = await plant.newDevice()
  channel = await plant.newChannel()
  await plant.connect(device, channel)
}, 60_000)
afterAll(async () => {
  await listeners.stop(100)
})

const sendValues = async (from: number, to: number) => {
  for (let value = from; value <= to; value++) await send(plant, device, channel, { value })
}

type Event = { event: string; id: string; data: Taken & { reason?: string } }

/** The events of a stream as they arrive. */
async function openStream({ path }: TestConsumer): Promise<{ events: Event[]; close(): void }> {
  const closing = new AbortController()
  const headers = { authorization: `Bearer ${plant.owner.accessToken}` }
  const response = await fetch(`${base}${path}/stream`, { headers, signal: closing.signal })
  expect(response.status).toBe(200)
  const events: Event[] = []
  async function read(): Promise<void> {
    let text = ''
    for await (const part of response.body as AsyncIterable<Uint8Array>) {
      text += Buffer.from(part).toString()
      const blocks = text.split('\n\n')
      text = blocks.pop() ?? ''
      for (const block of blocks) {
        const lines = block
          .split('\n')
          .map((line) => [line.slice(0, line.indexOf(': ')), line.slice(line.indexOf(': ') + 2)])
        const { event, id = '', data } = Object.fromEntries(lines) as Record<string, string>
        if (event !== undefined && data !== undefined) events.push({ event, id, data: JSON.parse(data) as Taken })
      }
    }
  }
  read().catch(() => undefined)
  return { events, close: () => closing.abort() }
}

const received = (events: readonly Event[]) =>
  values(events.filter(({ event }) => event === 'message').map(({ data }) => data))

describe('server-sent events', () => {
  test('deliver messages, at most max_in_flight before some are acknowledged', async () => {
    const consumer = await newConsumer(plant, [channel], { from: 'latest', max_in_flight: 2, order: 'none' })
    const stream = await openStream(consumer)
    await sendValues(1, 3)
    await until(() => received(stream.events).length === 2, 'two messages')
    const [first, second] = stream.events as [Event, Event]
    expect(first.id).toBe(first.data.position)
    expect(await consumer.show()).toMatchObject({ in_flight: 2 })
    expect(received(stream.events)).toEqual([1, 2])
    await consumer.ack(first.data, second.data)
    await until(() => received(stream.events).length === 3, 'the third message')
    expect(received(stream.events)).toEqual([1, 2, 3])
    stream.close()
  })

  test('end when the right to subscribe is lost', async () => {
    const consumer = await newConsumer(plant, [channel], { from: 'latest' })
    const stream = await openStream(consumer)
    await plant.owner.call('POST', `/${plant.domainId}/channels/${channel}/disable`)
    await consumer.post('seek', { from: 'latest' })
    const end = await until(() => stream.events.find(({ event }) => event === 'end'), 'the end of the stream')
    expect(end.data.reason).toBe('forbidden')
    await plant.owner.call('POST', `/${plant.domainId}/channels/${channel}/enable`)
  })

  test('need the same as pulling', async () => {
    const stranger = await plant.api.newUser()
    const consumer = await newConsumer(plant, [channel])
    const refused = await fetch(`${base}${consumer.path}/stream`, {
      headers: { authorization: `Bearer ${stranger.accessToken}` },
    })
    expect(refused.status).toBe(403)
  })
})

type Frame = { type: string; id?: string; data?: Taken; count?: number; error?: string; position?: string }

async function openSocket(): Promise<{ frames: Frame[]; send(frame: object): void; close(): void }> {
  const socket = new WebSocket(`${base.replace('http', 'ws')}/${plant.domainId}/stream`)
  const frames: Frame[] = []
  socket.on('message', (data: Buffer) => frames.push(JSON.parse(data.toString()) as Frame))
  await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject))
  socket.send(JSON.stringify({ type: 'authenticate', token: plant.owner.accessToken }))
  return { frames, send: (frame) => socket.send(JSON.stringify(frame)), close: () => socket.close() }
}

describe('the WebSocket of the domain', () => {
  test('subscribes to a consumer, acknowledges and puts back', async () => {
    const consumer = await newConsumer(plant, [channel], { from: 'latest' })
    const socket = await openSocket()
    socket.send({ type: 'subscribe', id: 'mine', source: 'consumer', consumer: consumer.name })
    await until(() => socket.frames.find(({ type }) => type === 'subscribed'), 'the subscription')
    await sendValues(1, 1)
    const events = () => socket.frames.filter(({ type }) => type === 'event')
    const first = await until(() => events()[0], 'the message')
    expect(first).toMatchObject({ id: 'mine', event: 'message', data: { payload: { value: 1 }, attempts: 1 } })
    socket.send({ type: 'nack', id: 'mine', positions: [first.position], reason: 'not yet' })
    const second = await until(() => events()[1], 'the message again')
    expect(second).toMatchObject({ position: first.position, data: { attempts: 2 } })
    socket.send({ type: 'ack', id: 'mine', positions: [second.position] })
    await until(() => socket.frames.find(({ type }) => type === 'acked'), 'the acknowledgement')
    expect(socket.frames.find(({ type }) => type === 'nacked')).toMatchObject({ id: 'mine', count: 1 })
    expect(await consumer.show()).toMatchObject({ in_flight: 0 })
    socket.send({ type: 'unsubscribe', id: 'mine' })
    socket.close()
  })

  test('refuses frames that are malformed, unknown consumers and strange positions', async () => {
    const consumer = await newConsumer(plant, [channel], { from: 'latest' })
    const socket = await openSocket()
    const refusal = async (frame: object) => {
      const before = socket.frames.length
      socket.send(frame)
      return (await until(() => socket.frames.slice(before).find(({ type }) => type === 'error'), 'an error')).error
    }
    await until(() => socket.frames.length > 0, 'the login')
    expect(await refusal({ type: 'subscribe', id: 'a', source: 'consumer' })).toBe('malformed')
    expect(await refusal({ type: 'subscribe', id: 'a', source: 'events', consumer: 'x' })).toBe('malformed')
    expect(await refusal({ type: 'subscribe', id: 'a', source: 'consumer', consumer: 'unknown' })).toBe('not_found')
    expect(await refusal({ type: 'ack', id: 'a', positions: ['1-1-1'] })).toBe('not_found')
    socket.send({ type: 'subscribe', id: 'b', source: 'consumer', consumer: consumer.name })
    await until(() => socket.frames.find(({ type }) => type === 'subscribed'), 'the subscription')
    expect(await refusal({ type: 'ack', id: 'b', positions: ['1-1-1'] })).toBe('not_found')
    expect(await refusal({ type: 'ack', id: 'b', positions: [] })).toBe('malformed')
    socket.close()
  })
})

const has = (program: string, ...args: string[]) => spawnSync(program, args).status === 0
/** Go compiles its standard library once. */
const BUILD_MS = 300_000
const FOLDER = join(import.meta.dirname, '../../examples/consumers')

/** Starts a receiver, which must print and acknowledge everything that is sent, also what was sent before. */
async function checkReceiver(command: string, args: readonly string[]): Promise<void> {
  const consumer = await newConsumer(plant, [channel], { from: 'latest' })
  await sendValues(1, 3)
  const receiver = spawn(command, args, {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: {
      PATH: process.env['PATH'],
      HOME: tmpdir(),
      SKEIN_URL: base,
      SKEIN_TOKEN: plant.owner.accessToken,
      SKEIN_DOMAIN: plant.domainId,
      SKEIN_CONSUMER: consumer.name,
    },
  })
  let printed = ''
  receiver.stdout.on('data', (data: Buffer) => (printed += data.toString()))
  const lines = () =>
    printed
      .trim()
      .split('\n')
      .map((line) => line.replaceAll(' ', ''))
  try {
    await until(
      () => lines().length === 3,
      () => `three messages: ${printed}`,
    )
    await sendValues(4, 5)
    await until(
      () => lines().length === 5,
      () => `five messages: ${printed}`,
    )
    expect(lines()).toEqual([1, 2, 3, 4, 5].map((value) => `{"value":${value}}`))
    await until(async () => (await consumer.show()).in_flight === 0, 'all are acknowledged')
  } finally {
    receiver.kill('SIGKILL')
    await new Promise((resolve) => receiver.once('close', resolve))
  }
}

describe('a receiver', () => {
  test.skipIf(!has('python3', '--version'))('in Python gets and acknowledges everything', () =>
    checkReceiver('python3', [join(FOLDER, 'receiver.py')]),
  )

  test.skipIf(!has('go', 'version'))(
    'in Go gets and acknowledges everything',
    async () => {
      const folder = mkdtempSync(join(tmpdir(), 'skein-receiver-'))
      try {
        const program = join(folder, 'receiver')
        const env = { ...process.env, GO111MODULE: 'off' }
        const built = spawnSync('go', ['build', '-o', program, join(FOLDER, 'receiver.go')], { env, encoding: 'utf8' })
        expect(built.stderr).toBe('')
        await checkReceiver(program, [])
      } finally {
        rmSync(folder, { recursive: true, force: true })
      }
    },
    BUILD_MS,
  )
})
