// principles 6 and 7, contract sections 7.2, 7.3, 7.6 and 10: readers of every kind that take nothing are disconnected, never the process
import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createHttpApp, createMetrics, listen } from '#http/index.ts'
import { sql } from '#core/sql.ts'
import { Readiness } from '#core/readiness/index.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { openEvents } from '../harness/event-stream.ts'
import { until } from '../harness/until.ts'
import { untilAllFollow } from '../messages/support.ts'
import type { Device } from '../messages/support.ts'
import { connectPeer, subscribe } from '../mqtt/peer.ts'
import { as as connectingAs, startNode } from '../mqtt/support.ts'
import type { Node } from '../mqtt/support.ts'
import { askDeaf, startWhole } from './support.ts'
import type { DeafReader, Whole } from './support.ts'

const MIB = 1024 * 1024
const BUDGET_BYTES = 16 * MIB
/** Of each kind. */
const READERS = 40
const MESSAGE_BYTES = 250_000
/** The system takes some megabytes for each reader before anything waits here. */
const MAX_MESSAGES = 200
const DEADLINE_MS = 90_000

let whole: Whole
let broker: Node
let channel: { device: Device; publisher: Device; path: string; topic: string }
beforeAll(async () => {
  whole = await startWhole({
    SKEIN_STREAM_BYTES: String(BUDGET_BYTES),
    SKEIN_STREAMS_PER_CLIENT: '1000',
    SKEIN_STREAMS_PER_USER: '1000',
  })
  broker = await startNode(whole.plant.api)
  const { channelId, ...device } = await whole.plant.newConnectedDevice()
  const topic = `m/${whole.plant.domainId}/c/${channelId}`
  // What a socket's own client publishes it is not sent.
  const publisher = await whole.plant.newDevice()
  await whole.plant.connect(publisher, channelId)
  channel = { device, publisher, path: `/${topic}`, topic }
})
afterAll(async () => {
  await broker.stop()
  await whole[Symbol.asyncDispose]()
})

const budget = () => whole.plant.api.infrastructure.streams.budget
const limits = () => whole.plant.api.infrastructure.streams.limits
const asDevice = () => ({ authorization: `Client ${channel.device.secret}` })
const asOwner = () => ({ authorization: `Bearer ${whole.plant.owner.accessToken}` })

async function publish(): Promise<void> {
  const headers = {
    authorization: `Client ${channel.publisher.secret}`,
    'content-type': 'application/octet-stream',
  }
  const body = new Uint8Array(randomBytes(MESSAGE_BYTES))
  const { status } = await fetch(`http://${whole.host}${channel.path}`, { method: 'POST', headers, body })
  expect(status).toBe(202)
}

type Kind = {
  name: string
  open(index: number): Promise<DeafReader>
  /** Makes more wait for all of them. */
  send(): Promise<void>
}

async function openMqtt(index: number, qos: 0 | 1): Promise<DeafReader> {
  const clientId = `deaf-${qos}-${index}`
  const peer = await connectPeer(broker.port, connectingAs(channel.device, { clientId, clean: true }))
  await subscribe(peer, `${channel.topic}/#`, qos)
  peer.socket.pause()
  return {
    socket: peer.socket,
    get isClosed() {
      return peer.isClosed
    },
    [Symbol.dispose]: () => peer.socket.destroy(),
  }
}

const UPGRADE = {
  connection: 'Upgrade',
  upgrade: 'websocket',
  'sec-websocket-version': '13',
  'sec-websocket-key': randomBytes(16).toString('base64'),
}

const KINDS: readonly Kind[] = [
  {
    name: 'live messages over server-sent events',
    open: () => askDeaf(whole.port, `${channel.path}/live`, asDevice()),
    send: publish,
  },
  {
    name: 'live messages over WebSocket',
    open: () => askDeaf(whole.port, channel.path, { ...asDevice(), ...UPGRADE }),
    send: publish,
  },
  { name: 'MQTT with QoS 0', open: (index) => openMqtt(index, 0), send: publish },
  { name: 'MQTT with QoS 1', open: (index) => openMqtt(index, 1), send: publish },
  {
    name: 'events of a domain',
    open: () => askDeaf(whole.port, `/${whole.plant.domainId}/events`, asOwner()),
    async send() {
      const { owner, domainId } = whole.plant
      const metadata = { text: randomBytes(MESSAGE_BYTES).toString('base64') }
      const answer = await owner.call('PATCH', `/${domainId}/clients/${channel.device.id}`, { metadata })
      expect(answer.status, answer.text).toBe(200)
    },
  },
  {
    name: 'events of tasks',
    open: () => askDeaf(whole.port, '/events', asOwner()),
    async send() {
      taskId ??= await whole.newTask({ name: 'x'.repeat(1000) })
      await sql`INSERT INTO task_events (events) SELECT json_agg(json_build_array('task', t.key, 0))
        FROM tasks t, generate_series(1, 50) WHERE t.id = ${taskId}`.execute(whole.plant.api.database.db)
    },
  },
  {
    name: 'answers',
    open: () => askDeaf(whole.port, `${channel.path}?limit=20&format=raw`, asDevice()),
    send: () => Promise.resolve(),
  },
]
let taskId: string | undefined

test.each(KINDS)('$name: readers that do not read are disconnected within the budget', async ({ name, open, send }) => {
  using readers = new DisposableStack()
  const opened: DeafReader[] = []
  const before = { cuts: budget().cuts, resident: process.memoryUsage.rss() }
  let most = 0
  let resident = before.resident
  // Between any two turns, not only where the test looks.
  const looking = setInterval(() => {
    most = Math.max(most, budget().waitingBytes)
    resident = Math.max(resident, process.memoryUsage.rss())
  }, 1)
  readers.defer(() => clearInterval(looking))
  for (let index = 0; index < READERS; index++) opened.push(readers.use(await open(index)))
  await untilAllFollow(whole.plant.api.api)
  const openedStreams = limits().size
  let sent = 0
  await until(
    async () => {
      if (sent < MAX_MESSAGES) await send()
      sent += 1
      // For the budget of all, or, where what waits is the same for all and counts once, for the bound of each.
      return Math.max(budget().cuts - before.cuts, openedStreams - limits().size) >= READERS / 4
    },
    'slow readers are disconnected',
    DEADLINE_MS,
  )
  // Nobody else is harmed: who reads is answered, and is given what comes.
  await using prompt = await openEvents(`http://${whole.host}${channel.path}/live`, asDevice())
  await publish()
  await prompt.next('message')
  expect((await fetch(`http://${whole.host}/health`)).status).toBe(200)
  // Twice the budget, for a second at the most.
  expect(most).toBeLessThanOrEqual(2 * BUDGET_BYTES)
  await until(() => budget().waitingBytes <= BUDGET_BYTES, 'no more waits than the budget')
  const figures = {
    readers: READERS,
    disconnected: Math.max(budget().cuts - before.cuts, openedStreams - limits().size),
    sent,
    mostWaitingMiB: Math.round(most / MIB),
    budgetMiB: BUDGET_BYTES / MIB,
    residentBeforeMiB: Math.round(before.resident / MIB),
    mostResidentMiB: Math.round(resident / MIB),
  }
  process.stdout.write(`slow readers, ${name}: ${JSON.stringify(figures)}\n`)
  readers.dispose()
  await until(() => budget().waitingBytes === 0, 'nothing waits for whoever is gone')
})

test('followed outputs: unread output is not read from the database', async () => {
  const id = await whole.newTask()
  const { owner, api } = whole.plant
  const started = await owner.call('POST', `/tasks/${id}/start`)
  const { run_id: runId } = started.json<{ run_id: string }>()
  const PARTS = 16
  const PART_BYTES = 64 * 1024
  using readers = new DisposableStack()
  const reached: DeafReader[] = []
  for (let index = 0; index < READERS; index++)
    reached.push(readers.use(await askDeaf(whole.port, `/tasks/${id}/logs?follow=true`, asOwner())))
  const before = budget().cuts
  for (let part = 0; part < PARTS; part++)
    await sql`INSERT INTO run_logs (run_key, stream, byte_offset, data, truncated)
      SELECT key, 1, ${part * PART_BYTES}, ${Buffer.alloc(PART_BYTES, 'x')}, false FROM runs WHERE id = ${runId}`.execute(
      api.database.db,
    )
  let most = 0
  const looking = setInterval(() => (most = Math.max(most, budget().waitingBytes)), 1)
  readers.defer(() => clearInterval(looking))
  await using prompt = await openEvents(`http://${whole.host}/tasks/${id}/logs?follow=true`, asOwner())
  const received = () =>
    prompt.events.reduce((sum, { data }) => sum + ((data['text'] as string | undefined)?.length ?? 0), 0)
  await until(() => received() === PARTS * PART_BYTES, 'the whole output', DEADLINE_MS)
  expect(most).toBeLessThanOrEqual(2 * BUDGET_BYTES)
  const figures = { readers: READERS, outputMiB: (PARTS * PART_BYTES) / MIB, mostWaitingMiB: Math.round(most / MIB) }
  process.stdout.write(
    `slow readers, followed outputs: ${JSON.stringify({ ...figures, disconnected: budget().cuts - before })}\n`,
  )
})

test('a response that is read more slowly than the minimum rate is ended, and one at that rate is not', async () => {
  const TIMES = { everyMs: 20, graceMs: 3000, bytesPerSecond: 1024 * MIB }
  const text = 'x'.repeat(32 * MIB)
  const app = createHttpApp({
    logger,
    health: {
      build: { version: '0', commit: 'none', buildTime: 'now' },
      metrics: createMetrics(),
      readiness: new Readiness(),
      serviceOf: () => '',
    },
    maxBodyBytes: MIB,
    corsOrigins: [],
    trustProxy: [],
    authenticate: () => Promise.resolve(),
  })
  /** Ports of readers whose connections the server has ended. */
  const ended = new Set<number | undefined>()
  app.get('/large', { config: { isPublic: true } }, async (request, reply) => {
    const { socket } = request.raw
    const { remotePort } = socket
    socket.once('close', () => ended.add(remotePort))
    return await reply.send(text as never)
  })
  const listeners = await listen(app, {
    host: '127.0.0.1',
    ports: [{ port: 0, isOptional: false, setting: 'TEST' }],
    logger,
    slowReaderTimes: TIMES,
  })
  const port = listeners.ports[0] as number
  try {
    using deaf = await askDeaf(port, '/large', {})
    expect((await (await fetch(`http://127.0.0.1:${port}/large`)).text()).length).toBe(text.length)
    await until(() => ended.has(deaf.socket.localPort), 'its connection is ended')
    let bytes = 0
    deaf.socket.on('data', (chunk: Buffer) => (bytes += chunk.length)).resume()
    await until(() => deaf.isClosed, 'the reader learns of it')
    expect(bytes).toBeLessThan(text.length)
  } finally {
    await listeners.stop(0)
  }
})
