/** WebSocket and server-sent events (contract section 7.2): publish and follow, for devices and for users. */
import { once } from 'node:events'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import type { ClientOptions } from 'ws'
import { listen } from '#http/index.ts'
import type { Listeners } from '#http/index.ts'
import { sql } from '#core/sql.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import type { Device } from './support.ts'
import { DOMAIN_ROUTE, startPlant, untilAllFollow } from './support.ts'

const MAX_BODY_BYTES = 1024 * 1024
/** A stream that begins now is looked at after fifteen seconds anyway. */
const BEFORE_HEARTBEAT_MS = 12_000

const plant = useWorld(() => startPlant())
let listeners: Listeners
let host: string

beforeAll(async () => {
  listeners = await listen(plant.api.app, {
    host: '127.0.0.1',
    ports: [{ port: 0, isOptional: false, setting: 'TEST' }],
    logger,
  })
  host = `127.0.0.1:${listeners.ports[0]}`
}, 60_000)
afterAll(async () => {
  await listeners.stop(100)
})

type Peer = { socket: WebSocket; got: string[]; kinds: boolean[]; closed: Promise<{ code: number; reason: string }> }

/** Resolves when the socket is open and sent what comes; rejects with the status and body of a refusal. */
async function open(path: string, options: ClientOptions = {}): Promise<Peer> {
  const socket = new WebSocket(`ws://${host}${path}`, options)
  const got: string[] = []
  const kinds: boolean[] = []
  socket.on('message', (data: Buffer, isBinary) => {
    got.push(data.toString())
    kinds.push(isBinary)
  })
  const closed = new Promise<{ code: number; reason: string }>((resolve) => {
    socket.on('close', (code, reason) => resolve({ code, reason: reason.toString() }))
  })
  await new Promise<void>((resolve, reject) => {
    socket.once('open', resolve)
    socket.once('error', reject)
    socket.once('unexpected-response', (_request, response) => {
      let text = ''
      response.on('data', (chunk: Buffer) => (text += chunk.toString()))
      response.on('end', () => reject(new Error(`${response.statusCode} ${text}`)))
    })
  })
  await untilAllFollow(plant.api.api)
  return { socket, got, kinds, closed }
}

const as = (device: Device): ClientOptions => ({ headers: { authorization: `Client ${device.secret}` } })
const bearer = () => ({ headers: { authorization: `Bearer ${plant.owner.accessToken}` } })

/** A channel and two devices connected to it both ways. */
async function aChannel() {
  const first = await plant.newConnectedDevice()
  const second = await plant.newDevice()
  await plant.connect(second, first.channelId)
  return { first, second, channelId: first.channelId, path: `/m/${plant.domainId}/c/${first.channelId}` }
}

async function publish(device: Device, path: string, body: string, contentType = 'application/senml+json') {
  const response = await fetch(`http://${host}${path}`, {
    method: 'POST',
    headers: { authorization: `Client ${device.secret}`, 'content-type': contentType },
    body,
  })
  expect(response.status).toBe(202)
}

describe('WebSocket', () => {
  test('every frame is published and stored, and reaches the other sockets of the channel, not its own', async () => {
    const { first, second, path } = await aChannel()
    const [sender, receiver, user] = [
      await open(path, as(first)),
      await open(path, as(second)),
      await open(path, bearer()),
    ]
    const pack = '[{"n":"temperature","u":"Cel","v":21.5}]'
    sender.socket.send(pack)
    sender.socket.send(Buffer.from([0, 255, 1]))
    sender.socket.send('just text')
    await expect.poll(() => receiver.got.length).toBe(3)
    expect(receiver.got[0]).toBe(pack)
    expect(receiver.kinds).toEqual([false, true, false])
    await expect.poll(() => user.got.length).toBe(3)
    user.socket.send('{"from":"a user"}')
    await expect.poll(() => receiver.got.at(3)).toBe('{"from":"a user"}')
    await expect.poll(() => sender.got).toEqual(['{"from":"a user"}'])
    expect(user.got).toHaveLength(3)
    const page = await plant.owner.call('GET', path)
    expect(page.json<{ messages: unknown[] }>().messages).toMatchObject([
      { name: 'temperature', value: 21.5, protocol: 'ws', publisher: first.id },
    ])
    for (const peer of [sender, receiver, user]) peer.socket.close()
  })

  test('messages over HTTP are delivered over WebSocket, on every path and with every form of credentials', async () => {
    const { first, second, channelId, path } = await aChannel()
    const { secret } = second
    const peers = await Promise.all([
      open(`${path}`, { headers: { authorization: secret } }),
      open(`/m/${DOMAIN_ROUTE}/c/${channelId}?authorization=${secret}`),
      open(`/ws/m/${plant.domainId}/c/${channelId}`, as(second)),
      open(`/api/ws/channels/${channelId}/messages`, as(second)),
      open(`/channels/${channelId}/messages?authorization=Bearer%20${plant.owner.accessToken}`),
      open(path, {
        headers: { authorization: `Basic ${Buffer.from(`${second.id}:${secret}`).toString('base64')}` },
      }),
    ])
    await publish(first, path, '[{"n":"a","v":1}]')
    for (const peer of peers) {
      await expect.poll(() => peer.got).toEqual(['[{"n":"a","v":1}]'])
      peer.socket.close()
    }
  })

  test('the subtopic of the path is published to, and may have wildcards as a filter', async () => {
    const { first, second, path } = await aChannel()
    const [exact, any, all, root] = await Promise.all(
      ['/a/b', '/a/%2B', '/%23', ''].map((rest) => open(`${path}${rest}`, as(second))),
    )
    const sender = await open(`${path}/a/b`, as(first))
    sender.socket.send('[{"n":"a","v":1}]')
    for (const peer of [exact, any, all]) await expect.poll(() => peer?.got.length).toBe(1)
    expect(root?.got).toEqual([])
    const wildcard = await open(`${path}/a/%2B`, as(first))
    wildcard.socket.send('x')
    expect(await wildcard.closed).toMatchObject({ code: 1007 })
    for (const peer of [exact, any, all, root, sender]) peer?.socket.close()
  })

  test('with ack=1 each frame is acknowledged in order, after its commit', async () => {
    const { first, path } = await aChannel()
    const sender = await open(`${path}?ack=1`, as(first))
    for (let frame = 1; frame <= 300; frame++) sender.socket.send(`[{"n":"a","v":${frame}}]`)
    await expect.poll(() => sender.got.length).toBe(300)
    expect(sender.got).toEqual(Array.from({ length: 300 }, (_, index) => `{"ack":${index + 1}}`))
    const page = await plant.owner.call('GET', `${path}?limit=300&dir=asc`)
    const values = page.json<{ messages: { value: number }[] }>().messages.map((message) => message.value)
    expect(values).toEqual(Array.from({ length: 300 }, (_, index) => index + 1))
    sender.socket.close()
  })

  test('with ack=1 no frame is acknowledged while its commit waits', async () => {
    const { first, path } = await aChannel()
    const sender = await open(`${path}?ack=1`, as(first))
    const waiting = async () => {
      const { rows } = await sql`SELECT 1 FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'`.execute(plant.api.database.db)
      return rows.length > 0
    }
    await plant.api.database.transaction(async (tx) => {
      await sql`LOCK TABLE ingest_batches IN ACCESS EXCLUSIVE MODE`.execute(tx)
      sender.socket.send('[{"n":"a","v":1}]')
      await until(waiting, 'the batch waits for the lock')
      expect(sender.got).toEqual([])
    })
    await expect.poll(() => sender.got).toEqual(['{"ack":1}'])
    sender.socket.close()
  })

  test('a device that may only publish sends and receives nothing; one that may only subscribe is closed when it sends', async () => {
    const { path, channelId, second } = await aChannel()
    const [writer, reader] = [await plant.newDevice(), await plant.newDevice()]
    await plant.connect(writer, channelId, ['publish'])
    await plant.connect(reader, channelId, ['subscribe'])
    const [writing, reading, other] = [
      await open(path, as(writer)),
      await open(path, as(reader)),
      await open(path, as(second)),
    ]
    writing.socket.send('one')
    await expect.poll(() => reading.got).toEqual(['one'])
    other.socket.send('two')
    await expect.poll(() => reading.got).toEqual(['one', 'two'])
    expect(writing.got).toEqual([])
    reading.socket.send('three')
    expect(await reading.closed).toMatchObject({ code: 1008 })
    for (const peer of [writing, other]) peer.socket.close()
  })

  test('a client that is disconnected from the channel is closed within a second, and not before', async () => {
    const { second, channelId, path } = await aChannel()
    const peer = await open(path, as(second))
    const body = { client_ids: [second.id], channel_ids: [channelId], types: ['publish', 'subscribe'] }
    expect((await plant.owner.call('POST', `/${plant.domainId}/channels/disconnect`, body)).status).toBe(204)
    expect(await peer.closed).toMatchObject({ code: 1008 })
  })

  test('a frame above the limit closes the socket with 1009', async () => {
    const { first, path } = await aChannel()
    const sender = await open(path, as(first))
    sender.socket.on('error', () => undefined)
    sender.socket.send(Buffer.alloc(MAX_BODY_BYTES + 1))
    expect(await sender.closed).toMatchObject({ code: 1009 })
  })

  test('errors precede the upgrade, with the error body of the contract', async () => {
    const { first, path } = await aChannel()
    const stranger = await plant.newDevice()
    const refusal = (url: string, options?: ClientOptions) =>
      open(url, options).then(
        () => 'open',
        (error: Error) => error.message,
      )
    expect(await refusal(path)).toMatch(/^401 \{"error":"unauthenticated"/)
    expect(await refusal(path, { headers: { authorization: 'Client wrong-secret-of-nobody' } })).toMatch(/^401 /)
    expect(await refusal(path, { headers: { authorization: 'Bearer nonsense' } })).toMatch(/^401 /)
    expect(await refusal(path, as(stranger))).toMatch(/^403 \{"error":"forbidden"/)
    expect(await refusal(`/m/${plant.domainId}/c/unknown`, as(first))).toMatch(/^403 /)
    expect(await refusal(`${path}/a%20b`, as(first))).toMatch(/^400 \{"error":"malformed"/)
    expect(await refusal(`${path}/%E0%A4%A`, as(first))).toMatch(/^400 /)
    expect(await refusal('//', as(first))).toMatch(/^404 \{"error":"not_found"/)
    expect(await refusal('/nowhere', as(first))).toMatch(/^404 /)
  })
})

type Stream = { text: () => string; events: () => { id: string; data: Record<string, unknown> }[]; close(): void }

async function live(path: string, headers: Record<string, string>): Promise<Stream> {
  const abort = new AbortController()
  const response = await fetch(`http://${host}${path}`, { headers, signal: abort.signal })
  expect(response.status).toBe(200)
  expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8')
  let text = ''
  const reading = (async () => {
    for await (const chunk of response.body ?? []) text += Buffer.from(chunk).toString()
  })()
  reading.catch(() => undefined)
  return {
    text: () => text,
    events: () =>
      [...text.matchAll(/id: (.+)\nevent: message\ndata: (.+)\n\n/g)].map(([, id, data]) => ({
        id: id as string,
        data: JSON.parse(data as string) as Record<string, unknown>,
      })),
    close: () => abort.abort(),
  }
}

describe('server-sent events', () => {
  // contract decision 86
  test('with without= streams and sockets deliver only what lacks a publisher or a subtopic', async () => {
    const { first, second, path } = await aChannel()
    const authorization = `Client ${second.secret}`
    const [ofUsers, plain, both] = [
      await live(`${path}/live?without=publisher`, { authorization }),
      await live(`${path}/live?without=subtopic`, { authorization }),
      await live(`${path}/live?without=publisher,subtopic`, { authorization }),
    ]
    const socket = await open(`${path}/%23?without=publisher`, as(second))
    await publish(first, path, '"device"', 'text/plain')
    await publish(first, `${path}/a`, '"device a"', 'text/plain')
    const publishAsUser = (rest: string) => plant.owner.call('POST', `${path}${rest}`, { user: rest })
    await publishAsUser('/a')
    await publishAsUser('')
    const seen = ({ events }: Stream) => events().map(({ data }) => [data['publisher'], data['subtopic']])
    await expect
      .poll(() => seen(ofUsers))
      .toEqual([
        ['', 'a'],
        ['', ''],
      ])
    await expect
      .poll(() => seen(plain))
      .toEqual([
        [first.id, ''],
        ['', ''],
      ])
    await expect.poll(() => seen(both)).toEqual([['', '']])
    await expect.poll(() => socket.got).toEqual(['{"user":"/a"}', '{"user":""}'])
    for (const stream of [ofUsers, plain, both]) stream.close()
    socket.socket.close()
  })

  test('messages of any protocol are sent when they are committed, for devices and for users', async () => {
    const { first, second, path, channelId } = await aChannel()
    const streams = [
      await live(`${path}/live`, { authorization: `Client ${second.secret}` }),
      await live(`${path}/live?authorization=Bearer%20${plant.owner.accessToken}`, {}),
      await live(`${path}/live?subtopic=a/%2B`, { authorization: `Client ${second.secret}` }),
    ]
    await publish(first, path, '[{"n":"v","v":1.10}]')
    await publish(first, `${path}/a/b`, 'raw', 'text/plain')
    const socket = await open(`${path}/a/c`, as(first))
    socket.socket.send('{"precise": 12345678901234567890}')
    for (const stream of streams.slice(0, 2)) {
      await expect.poll(() => stream.events().length).toBe(3)
      expect(stream.events().map(({ data }) => data)).toMatchObject([
        { channel: channelId, subtopic: '', publisher: first.id, protocol: 'http', payload: [{ n: 'v', v: 1.1 }] },
        { subtopic: 'a.b', content_type: 'text/plain', payload: Buffer.from('raw').toString('base64') },
        { subtopic: 'a.c', protocol: 'ws', content_type: 'application/json' },
      ])
      expect(stream.text()).toContain('"payload":{"precise": 12345678901234567890}')
    }
    await expect.poll(() => streams[2]?.events().map(({ data }) => data['subtopic'])).toEqual(['a.b', 'a.c'])
    for (const stream of streams) stream.close()
    socket.socket.close()
  })

  test('with Last-Event-ID nothing is missed while reconnecting', async () => {
    const { first, path } = await aChannel()
    const authorization = `Client ${first.secret}`
    const before = await live(`${path}/live`, { authorization })
    await publish(first, path, '[{"n":"v","v":1}]')
    await expect.poll(() => before.events().length).toBe(1)
    const id = before.events()[0]?.id as string
    before.close()
    for (const value of [2, 3, 4]) await publish(first, path, `[{"n":"v","v":${value}}]`)
    const after = await live(`${path}/live`, { authorization, 'last-event-id': id })
    await publish(first, path, '[{"n":"v","v":5}]')
    const values = () => after.events().map(({ data }) => (data['payload'] as { v: number }[])[0]?.v)
    await expect.poll(values).toEqual([2, 3, 4, 5])
    after.close()
  })

  test('a device that leaves its stream is offline, although no message was due to it', async () => {
    const { second, path } = await aChannel()
    const isOnline = async () => {
      const shown = await plant.owner.call('GET', `/${plant.domainId}/journal/client/${second.id}/telemetry`)
      return shown.json<{ online: boolean }>().online
    }
    const stream = await live(`${path}/live`, { authorization: `Client ${second.secret}` })
    await expect.poll(isOnline).toBe(true)
    stream.close()
    await expect.poll(isOnline, { timeout: BEFORE_HEARTBEAT_MS }).toBe(false)
  })

  test('a stream ends with the reason when its user loses the right to follow', async () => {
    const { second, channelId, path } = await aChannel()
    const stream = await live(`${path}/live`, { authorization: `Client ${second.secret}` })
    const disabled = await plant.owner.call('POST', `/${plant.domainId}/clients/${second.id}/disable`)
    expect([disabled.status, channelId]).toEqual([200, channelId])
    await expect.poll(stream.text).toContain('event: end\ndata: {"reason":"forbidden"')
  })

  test('errors are 401 without credentials, 403 for an unconnected device or a non-member, and 400', async () => {
    const { first, path } = await aChannel()
    const stranger = await plant.newDevice()
    const get = async (url: string, headers: Record<string, string>) =>
      (await fetch(`http://${host}${url}`, { headers })).status
    const outsider = await plant.api.newUser()
    expect(await get(`${path}/live`, {})).toBe(401)
    expect(await get(`${path}/live`, { authorization: `Client ${stranger.secret}` })).toBe(403)
    expect(await get(`${path}/live`, { authorization: `Bearer ${outsider.accessToken}` })).toBe(403)
    const authorization = `Client ${first.secret}`
    expect(await get(`${path}/live?subtopic=a%20b`, { authorization })).toBe(400)
    expect(await get(`${path}/live`, { authorization, 'last-event-id': 'nonsense' })).toBe(400)
  })
})

test('sockets and streams end when the process stops', async () => {
  const other = await startPlant()
  const ports = await listen(other.api.app, {
    host: '127.0.0.1',
    ports: [{ port: 0, isOptional: false, setting: 'TEST' }],
    logger,
  })
  const device = await other.newConnectedDevice()
  const url = `127.0.0.1:${ports.ports[0]}/m/${other.domainId}/c/${device.channelId}`
  const socket = new WebSocket(`ws://${url}`, { headers: { authorization: `Client ${device.secret}` } })
  await once(socket, 'open')
  const stream = await fetch(`http://${url}/live`, { headers: { authorization: `Client ${device.secret}` } })
  const closed = once(socket, 'close')
  const text = stream.text()
  await other[Symbol.asyncDispose]()
  await ports.stop(100)
  expect((await closed)[0]).toBe(1001)
  expect(await text).toContain('event: end\ndata: {"reason":"stopping"')
})
