/** The express lane of publishing: it answers as the route does, and leaves to the route what it does not know. */
import { once } from 'node:events'
import { connect } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { listen } from '#core/http/index.ts'
import type { Listeners } from '#core/http/index.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import type { Plant } from './support.ts'
import { startPlant } from './support.ts'

let plant: Plant
let listeners: Listeners
let device: Awaited<ReturnType<Plant['newConnectedDevice']>>

beforeAll(async () => {
  plant = await startPlant()
  listeners = await listen(plant.api.app, {
    host: '127.0.0.1',
    ports: [{ port: 0, isOptional: false, setting: 'SKEIN_HTTP_PORT' }],
    logger,
  })
  device = await plant.newConnectedDevice()
  // From here on the gate knows the device, as the lane needs it to.
  expect((await post(`/m/${plant.domainId}/c/${device.channelId}`, PACK)).status).toBe(202)
})
afterAll(async () => {
  await listeners.stop()
  await plant[Symbol.asyncDispose]()
})

const PACK = '[{"n":"t","v":1}]'

type Answer = { status: number; headers: Record<string, string>; body: string }

async function post(path: string, body: string | Buffer, headers: Record<string, string> = {}): Promise<Answer> {
  const response = await fetch(`http://127.0.0.1:${listeners.ports[0]}${path}`, {
    method: 'POST',
    body,
    headers: { authorization: `Client ${device.secret}`, 'content-type': 'application/senml+json', ...headers },
  })
  return { status: response.status, headers: Object.fromEntries(response.headers), body: await response.text() }
}

/** How often the lane took a request: the router looks at each of the others. */
async function viaLane(send: () => Promise<unknown>): Promise<boolean> {
  const { app } = plant.api
  const routing = app.routing.bind(app)
  let isRouted = false
  app.routing = (request, response) => {
    isRouted = true
    routing(request, response)
  }
  try {
    await send()
  } finally {
    app.routing = routing
  }
  return !isRouted
}

const comparable = ({ status, headers, body }: Answer) => {
  const { date, 'x-request-id': requestId, ...rest } = headers
  expect(date).toBeDefined()
  expect(requestId).toMatch(/^[0-9a-f-]{36}$/)
  return { status, headers: rest, body }
}

test('an answer of the lane is, to the last header, the answer of the route', async () => {
  const base = `/m/${plant.domainId}/c/${device.channelId}`
  for (const [path, body, type] of [
    [base, PACK, 'application/senml+json'],
    [`${base}/a/b`, PACK, 'application/senml+json'],
    [`/http${base}/a.b`, '{"a":1}', 'application/json'],
    [base, 'bytes', 'application/octet-stream'],
    [base, '', 'application/senml+json'],
    [base, '[{"n":"t"}]', 'application/senml+json'],
    [base, '{', 'application/json'],
    [base, Buffer.from([0xff, 0xfe]), 'application/senml+json'],
    [`${base}/*`, PACK, 'application/senml+json'],
  ] as const) {
    const lane = await post(path, body, { 'content-type': type })
    const route = await post(`${path}?by=route`, body, { 'content-type': type })
    expect(comparable(lane)).toEqual(comparable(route))
  }
})

test('the lane takes the plain publish, and stores it', async () => {
  const path = `/m/${plant.domainId}/c/${device.channelId}`
  let value = 0
  // A gate that is held up knows nobody for a moment, and leaves it to the route.
  const send = () => viaLane(() => post(`${path}/lane/one`, `[{"n":"lane","v":${++value}}]`))
  await until(send, 'the lane takes it')
  const read = await plant.owner.call(
    'GET',
    `/${plant.domainId}/channels/${device.channelId}/messages?name=lane&limit=1`,
  )
  expect(read.json<{ messages: unknown[] }>().messages).toMatchObject([{ name: 'lane', value, subtopic: 'lane.one' }])
})

test('what is not plain is left to the route, which decides', async () => {
  const path = `/m/${plant.domainId}/c/${device.channelId}`
  for (const [target, headers, status] of [
    [`${path}?x=1`, {}, 202],
    [`${path}/a%20b`, {}, 400],
    [`/channels/${device.channelId}/messages`, {}, 202],
    [path, { 'idempotency-key': 'once' }, 202],
    [path, { 'content-type': 'application/senml+json; charset=utf-8' }, 202],
    [path, { 'content-type': 'image/png' }, 415],
    [path, { 'content-encoding': 'gzip' }, 400],
    [path, { origin: 'https://elsewhere.example' }, 403],
    [path, { authorization: `Basic ${Buffer.from(`:${device.secret}`).toString('base64')}` }, 202],
    [path, { authorization: 'Client wrong' }, 401],
    [path, { 'x-request-id': 'mine' }, 202],
    [`/m/${plant.domainId}/c/unknown`, {}, 403],
  ] as const) {
    let answer: Answer | undefined
    const send = async () => void (answer = await post(target, PACK, headers as unknown as Record<string, string>))
    expect([target, headers, await viaLane(send)]).toEqual([target, headers, false])
    expect([target, headers, answer?.status]).toEqual([target, headers, status])
  }
})

test('a body above the bound is refused by the route', async () => {
  const path = `/m/${plant.domainId}/c/${device.channelId}`
  let answer: Answer | undefined
  expect(await viaLane(async () => void (answer = await post(path, Buffer.alloc(1024 * 1024 + 1, 0x20))))).toBe(false)
  expect(answer?.status).toBe(413)
})

test('a device that is disconnected is refused by the next request', async () => {
  const other = await plant.newConnectedDevice()
  const path = `/m/${plant.domainId}/c/${other.channelId}`
  const authorization = `Client ${other.secret}`
  await until(() => viaLane(() => post(path, PACK, { authorization })), 'the gate knows the device')
  await plant.owner.call('POST', `/${plant.domainId}/channels/disconnect`, {
    client_ids: [other.id],
    channel_ids: [other.channelId],
    types: ['publish', 'subscribe'],
  })
  await until(async () => (await post(path, PACK, { authorization })).status === 403, 'the device is refused')
})

test('requests behind one another on a connection, in pieces, and one that breaks off', async () => {
  const head = (length: number) =>
    `POST /m/${plant.domainId}/c/${device.channelId} HTTP/1.1\r\nHost: x\r\nAuthorization: Client ${device.secret}\r\n` +
    `Content-Type: application/senml+json\r\nContent-Length: ${length}\r\n\r\n`
  const socket = connect(listeners.ports[0] ?? 0, '127.0.0.1')
  let text = ''
  socket.on('data', (chunk: Buffer) => (text += chunk.toString())).on('error', () => undefined)
  await once(socket, 'connect')
  socket.write(head(PACK.length) + PACK + head(PACK.length) + PACK.slice(0, 5))
  await until(() => text.split('HTTP/1.1 202').length === 2, 'the first is answered')
  socket.write(`${PACK.slice(5, 9)}`)
  socket.write(PACK.slice(9))
  await until(() => text.split('HTTP/1.1 202').length === 3, 'the second is answered')
  socket.write(head(PACK.length) + PACK.slice(0, 3))
  socket.destroy()
  expect((await post(`/m/${plant.domainId}/c/${device.channelId}`, PACK)).status).toBe(202)
})
