/** Publishing over connections of its own: whole answers, refusals, and requests that come in pieces or behind one another. */
import { once } from 'node:events'
import { connect } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { listen } from '#http/index.ts'
import type { Listeners } from '#http/index.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import type { Plant } from './support.ts'
import { startPlant } from './support.ts'

const plant = useWorld(() => startPlant())
let listeners: Listeners
let device: Awaited<ReturnType<Plant['newConnectedDevice']>>

beforeAll(async () => {
  listeners = await listen(plant.api.app, {
    host: '127.0.0.1',
    ports: [{ port: 0, isOptional: false, setting: 'SKEIN_HTTP_PORT' }],
    logger,
  })
  device = await plant.newConnectedDevice()
})
afterAll(async () => {
  await listeners.stop()
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

test('a response has exactly the headers of the edge, whether the message is stored or refused', async () => {
  const base = `/m/${plant.domainId}/c/${device.channelId}`
  for (const [path, body, type, status] of [
    [base, PACK, 'application/senml+json', 202],
    [`${base}/a/b`, PACK, 'application/senml+json', 202],
    [`/http${base}/a.b`, '{"a":1}', 'application/json', 202],
    [base, 'bytes', 'application/octet-stream', 202],
    [base, '', 'application/senml+json', 400],
    [base, '[{"n":"t"}]', 'application/senml+json', 400],
    [base, '{', 'application/json', 400],
    [base, Buffer.from([0xff, 0xfe]), 'application/senml+json', 400],
    [`${base}/*`, PACK, 'application/senml+json', 400],
  ] as const) {
    const answer = await post(path, body, { 'content-type': type })
    const { date, 'x-request-id': requestId, ...headers } = answer.headers
    expect(date).toBeDefined()
    expect(requestId).toMatch(/^[0-9a-f-]{36}$/)
    expect([path, answer.status, headers]).toEqual([
      path,
      status,
      {
        'access-control-expose-headers': 'Location',
        'x-content-type-options': 'nosniff',
        connection: 'keep-alive',
        'keep-alive': 'timeout=65',
        'content-length': String(Buffer.byteLength(answer.body)),
        ...(status === 202 ? {} : { 'content-type': 'application/json' }),
      },
    ])
    expect(answer.body).toMatch(status === 202 ? /^$/ : /^{"error":"malformed","message":".+"/)
  }
})

test('a plain publish is stored, under its name and subtopic, and counted under its route', async () => {
  const path = `/m/${plant.domainId}/c/${device.channelId}/pump/one`
  const route = 'skein_requests_total{protocol="http",route="POST /m/:domain_id/c/:channel_id/*",outcome="202"}'
  const counted = async () => {
    const metrics = await fetch(`http://127.0.0.1:${listeners.ports[0]}/metrics`).then((answer) => answer.text())
    return Number(
      metrics
        .split('\n')
        .find((line) => line.startsWith(route))
        ?.slice(route.length) ?? 0,
    )
  }
  const before = await counted()
  expect((await post(path, '[{"n":"pump","v":7}]')).status).toBe(202)
  const read = await plant.owner.call(
    'GET',
    `/${plant.domainId}/channels/${device.channelId}/messages?name=pump&limit=1`,
  )
  expect(read.json<{ messages: unknown[] }>().messages).toMatchObject([
    { name: 'pump', value: 7, subtopic: 'pump.one' },
  ])
  await until(async () => (await counted()) === before + 1, 'it is counted')
})

test('each form of a publish is authorized separately', async () => {
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
    const answer = await post(target, PACK, headers as unknown as Record<string, string>)
    expect([target, headers, answer.status]).toEqual([target, headers, status])
  }
})

test('a body above the bound is refused', async () => {
  const answer = await post(`/m/${plant.domainId}/c/${device.channelId}`, Buffer.alloc(1024 * 1024 + 1, 0x20))
  expect(answer.status).toBe(413)
})

test('a device that is disconnected is refused by the next request', async () => {
  const other = await plant.newConnectedDevice()
  const path = `/m/${plant.domainId}/c/${other.channelId}`
  const authorization = `Client ${other.secret}`
  expect((await post(path, PACK, { authorization })).status).toBe(202)
  await plant.owner.call('POST', `/${plant.domainId}/channels/disconnect`, {
    client_ids: [other.id],
    channel_ids: [other.channelId],
    types: ['publish', 'subscribe'],
  })
  await until(async () => (await post(path, PACK, { authorization })).status === 403, 'the device is refused')
})

test('requests are answered when they are pipelined, split, or aborted', async () => {
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

test('requests of several devices on one connection, as of a proxy, are authorized separately', async () => {
  const [other, disconnected] = [await plant.newConnectedDevice(), await plant.newConnectedDevice()]
  const socket = connect(listeners.ports[0] ?? 0, '127.0.0.1')
  let text = ''
  socket.on('data', (chunk: Buffer) => (text += chunk.toString())).on('error', () => undefined)
  await once(socket, 'connect')
  const statusOf = async (secret: string, channelId: string) => {
    text = ''
    socket.write(
      `POST /m/${plant.domainId}/c/${channelId} HTTP/1.1\r\nHost: x\r\nAuthorization: Client ${secret}\r\n` +
        `Content-Type: application/senml+json\r\nContent-Length: ${PACK.length}\r\n\r\n${PACK}`,
    )
    await until(() => text.includes('\r\n\r\n'), 'the answer')
    return Number(text.slice('HTTP/1.1 '.length, 'HTTP/1.1 202'.length))
  }
  for (const [secret, channelId, status] of [
    [device.secret, device.channelId, 202],
    [device.secret, device.channelId, 202],
    [device.secret, other.channelId, 403],
    [device.secret, device.channelId, 202],
    [other.secret, device.channelId, 403],
    [other.secret, other.channelId, 202],
    ['wrong', other.channelId, 401],
    [other.secret, other.channelId, 202],
    [disconnected.secret, disconnected.channelId, 202],
    [disconnected.secret, disconnected.channelId, 202],
  ] as const)
    expect([secret, channelId, await statusOf(secret, channelId)]).toEqual([secret, channelId, status])
  await plant.owner.call('POST', `/${plant.domainId}/channels/disconnect`, {
    client_ids: [disconnected.id],
    channel_ids: [disconnected.channelId],
    types: ['publish', 'subscribe'],
  })
  const isRefused = async () => (await statusOf(disconnected.secret, disconnected.channelId)) === 403
  await until(isRefused, 'the device is refused on its connection')
  socket.destroy()
})

test('a publish passes few hooks, because each costs every message', () => {
  const routes = plant.api.app.printRoutes({ method: 'POST', includeHooks: true, commonPrefix: false })
  const publish = routes.split('/m/:domain_id/c/:channel_id (POST)')[1]?.split('(POST)', 1)[0] ?? ''
  const hooks = [...publish.matchAll(/\((\w+)\) (\[[^\]]*\])/g)].map(([, name, functions]) => [
    name,
    (JSON.parse(functions ?? '') as string[]).length,
  ])
  expect(Object.fromEntries(hooks)).toMatchObject({ onRequest: 3, onResponse: 1, preValidation: 2 })
})
