/** The stream of a domain: events, tasks and channels over one WebSocket that changes while it is open. */
import { parseSetCookie } from 'cookie'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import type { ClientOptions } from 'ws'
import { listen } from '#http/index.ts'
import type { Listeners } from '#http/index.ts'
import { sql } from '#core/sql.ts'
import { newMember, newTenant, revokeRoles } from '../api/support.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from './support.ts'

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

type Frame = {
  type: string
  id?: string
  position?: string
  event?: string
  data?: Record<string, unknown>
  error?: string
  message?: string
  domain_id?: string
}

class Peer {
  readonly frames: Frame[] = []
  readonly closed: Promise<{ code: number; reason: string }>
  readonly socket: WebSocket

  constructor(socket: WebSocket) {
    this.socket = socket
    socket.on('message', (data: Buffer) => this.frames.push(JSON.parse(data.toString()) as Frame))
    this.closed = new Promise((resolve) => {
      socket.on('close', (code, reason) => resolve({ code, reason: reason.toString() }))
    })
  }

  send(frame: object): void {
    this.socket.send(JSON.stringify(frame))
  }

  until(what: string, isWanted: (frame: Frame) => boolean): Promise<Frame> {
    return until(
      () => Promise.resolve(this.frames.find(isWanted)),
      `${what} among ${JSON.stringify(this.frames).slice(0, 2_000)}`,
    )
  }

  async subscribe(id: string, frame: object): Promise<void> {
    this.send({ type: 'subscribe', id, ...frame })
    const answer = await this.until(`an answer to ${id}`, (one) => one.id === id && /subscribed|error/.test(one.type))
    if (answer.type === 'error') throw new Error(JSON.stringify(answer))
  }

  events(id: string): Frame[] {
    return this.frames.filter((frame) => frame.type === 'event' && frame.id === id)
  }

  lastPosition(id: string): string {
    return this.frames.findLast((frame) => frame.id === id && frame.position !== undefined)?.position ?? ''
  }
}

async function connect(domain = plant.domainId, options: ClientOptions = {}): Promise<Peer> {
  const socket = new WebSocket(`ws://${host}/${domain}/stream`, options)
  const peer = new Peer(socket)
  await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject))
  return peer
}

async function connected(token = plant.owner.accessToken, domain = plant.domainId): Promise<Peer> {
  const peer = await connect(domain)
  peer.send({ type: 'authenticate', token })
  expect(await peer.until('authenticated', ({ type }) => type !== '')).toMatchObject({ type: 'authenticated' })
  return peer
}

async function publish(channelId: string, value: number, subtopic = ''): Promise<void> {
  const answer = await plant.owner.call('POST', `/m/${plant.domainId}/c/${channelId}${subtopic}`, { v: value })
  expect(answer.status).toBe(202)
}

const newClient = async (name: string) =>
  (await plant.owner.call('POST', `/${plant.domainId}/clients`, { name })).json<{ id: string }>().id

async function newTask(domainId: string): Promise<number> {
  const { rows } = await sql<{ key: number }>`
    INSERT INTO tasks (id, domain_key, domain_id, name, inputs, env, labels, priority, timeout_ms, memory_limit_bytes, backoff_ms, on_lost, metadata)
    SELECT gen_random_uuid(), d.key, d.id, 'add', '[]', '{}', '{}', 0, 1000, 65536, 0, 'fail', '{}'
      FROM domains d WHERE d.id = ${domainId} RETURNING key`.execute(plant.api.database.db)
  return rows[0]?.key ?? 0
}

const noteTask = async (key: number, state: number) =>
  sql`INSERT INTO task_events (events) VALUES (${JSON.stringify([['task', key, state]])}::json)`.execute(
    plant.api.database.db,
  )

describe('one connection', () => {
  // contract decision 86
  test('a subscription without a publisher or subtopic receives only such messages', async () => {
    const channel = await plant.newChannel()
    const peer = await connected()
    const source = 'messages'
    await peer.subscribe('plain', { source, channel, without: ['publisher', 'subtopic'] })
    await expect(peer.subscribe('both', { source, channel, subtopic: 'a', without: ['subtopic'] })).rejects.toThrow(
      'together with the filter',
    )
    await publish(channel, 1, '/a')
    await publish(channel, 2)
    await peer.until('a message', ({ event }) => event === 'message')
    expect(peer.events('plain')).toMatchObject([{ data: { subtopic: '', payload: { v: 2 } } }])
    peer.socket.close()
  })

  test('carries the events of the domain, its tasks and channels, and changes while it is open', async () => {
    const [one, other] = [await plant.newChannel(), await plant.newChannel()]
    const task = await newTask(plant.domainId)
    const peer = await connected()
    await peer.subscribe('journal', { source: 'events' })
    await peer.subscribe('runs', { source: 'tasks' })
    await peer.subscribe('one', { source: 'messages', channel: one })
    const id = await newClient('pump')
    await noteTask(task, 2)
    await publish(one, 1)
    await publish(other, 2)
    expect(await peer.until('the event', ({ event }) => event === 'client.create')).toMatchObject({
      type: 'event',
      id: 'journal',
      data: { operation: 'client.create', id, name: 'pump', domain: plant.domainId },
    })
    expect(await peer.until('the task', ({ event }) => event === 'task')).toMatchObject({
      id: 'runs',
      data: { type: 'task', name: 'add', domain_id: plant.domainId, state: 2 },
    })
    expect(await peer.until('the message', ({ event }) => event === 'message')).toMatchObject({
      id: 'one',
      data: { channel: one, protocol: 'http', content_type: 'application/json', payload: { v: 1 } },
    })
    await peer.subscribe('other', { source: 'messages', channel: other, subtopic: 'hall/#' })
    peer.send({ type: 'unsubscribe', id: 'one' })
    await peer.until('the end', ({ type }) => type === 'unsubscribed')
    await publish(one, 3)
    await publish(other, 4)
    await publish(other, 5, '/hall/a')
    await peer.until('the other message', (frame) => frame.id === 'other' && frame.event === 'message')
    expect(peer.events('one')).toHaveLength(1)
    expect(peer.events('other').map(({ data }) => data?.['payload'])).toEqual([{ v: 5 }])
    peer.socket.terminate()
  })

  test('continues after the position of each subscription', async () => {
    const channel = await plant.newChannel()
    const task = await newTask(plant.domainId)
    const first = await connected()
    const wanted = {
      journal: { source: 'events' },
      runs: { source: 'tasks' },
      messages: { source: 'messages', channel },
    }
    for (const [id, frame] of Object.entries(wanted)) await first.subscribe(id, frame)
    await publish(channel, 1)
    await first.until('the message', ({ event }) => event === 'message')
    const positions = Object.fromEntries(Object.keys(wanted).map((id) => [id, first.lastPosition(id)]))
    first.socket.terminate()
    const id = await newClient('missed')
    await noteTask(task, 3)
    await publish(channel, 2)
    const second = await connected()
    for (const [name, frame] of Object.entries(wanted))
      await second.subscribe(name, { ...frame, position: positions[name] })
    await second.until('the event', (frame) => frame.event === 'client.create' && frame.data?.['id'] === id)
    await second.until('the task', (frame) => frame.event === 'task' && frame.data?.['state'] === 3)
    await second.until('the message', ({ event }) => event === 'message')
    expect(second.events('messages').map(({ data }) => data?.['payload'])).toEqual([{ v: 2 }])
    second.socket.terminate()
  })

  test('refuses invalid frames, too many subscriptions and repeated ids, and stays open', async () => {
    const channel = await plant.newChannel()
    const peer = await connected()
    const refused = async (frame: object | string) => {
      const before = peer.frames.length
      peer.socket.send(typeof frame === 'string' ? frame : JSON.stringify(frame))
      return await until(() => Promise.resolve(peer.frames[before]), 'an answer')
    }
    for (const frame of [
      'no JSON',
      '[]',
      { type: 'shout' },
      { type: 'subscribe', id: 'a' },
      { type: 'subscribe', id: 'a', source: 'weather' },
      { type: 'subscribe', id: 'a', source: 'messages' },
      { type: 'subscribe', id: 'a', source: 'events', channel },
      { type: 'subscribe', id: '', source: 'events' },
      { type: 'subscribe', id: 'a', source: 'events', position: 'here' },
      { type: 'subscribe', id: 'a', source: 'tasks', position: 'here' },
      { type: 'subscribe', id: 'a', source: 'messages', channel, position: 'here' },
    ])
      expect([frame, await refused(frame)]).toEqual([
        frame,
        expect.objectContaining({ type: 'error', error: 'malformed' }),
      ])
    expect(await refused({ type: 'unsubscribe', id: 'a' })).toMatchObject({ error: 'not_found', id: 'a' })
    expect(await refused({ type: 'subscribe', id: 'a', source: 'messages', channel: 'none' })).toMatchObject({
      type: 'error',
      id: 'a',
    })
    for (let index = 0; index < 64; index++) await peer.subscribe(`s${index}`, { source: 'messages', channel })
    expect(await refused({ type: 'subscribe', id: 's0', source: 'events' })).toMatchObject({ error: 'conflict' })
    expect(await refused({ type: 'subscribe', id: 'a', source: 'events' })).toMatchObject({ error: 'rate_limited' })
    await publish(channel, 1)
    await until(
      () => Promise.resolve(peer.frames.filter(({ event }) => event === 'message').length === 64),
      'all of them',
    )
    peer.socket.terminate()
  })
})

describe('credentials', () => {
  test('are in the first frame; without valid ones the connection ends', async () => {
    for (const frame of [
      { type: 'subscribe', id: 'a', source: 'events' },
      { type: 'authenticate', token: 'wrong' },
    ]) {
      const peer = await connect()
      peer.send(frame)
      expect(await peer.closed).toMatchObject({ code: 1008 })
      expect(peer.frames).toMatchObject([{ type: 'error', error: 'unauthenticated' }])
    }
  })

  test('for the domain of another tenant and for an unknown one are refused with the same message', async () => {
    const stranger = await newTenant(plant.api)
    const texts = []
    for (const domain of [plant.domainId, '00000000-0000-4000-8000-000000000000']) {
      const peer = await connect(domain)
      peer.send({ type: 'authenticate', token: stranger.user.accessToken })
      expect(await peer.closed).toMatchObject({ code: 1008 })
      texts.push(JSON.stringify(peer.frames).replaceAll(domain, ''))
    }
    expect(texts[0]).toBe(texts[1])
    const peer = await connected(stranger.user.accessToken, stranger.domainId)
    const channel = await plant.newChannel()
    await expect(peer.subscribe('a', { source: 'messages', channel })).rejects.toThrow(/not_found|forbidden/)
    peer.socket.terminate()
  })

  test('of a browser session require no frame, and pages of another origin cannot use them', async () => {
    const { username, secret } = plant.owner
    const answer = await plant.api.anonymous(
      'POST',
      '/console/session',
      { identity: username, secret },
      { host, origin: `http://${host}`, 'x-skein-console': '1' },
    )
    expect(answer.status).toBe(201)
    const { name, value } = parseSetCookie(String(answer.headers['set-cookie']))
    const cookie = `${name}=${value}`
    const own = await connect(plant.domainId, { headers: { cookie }, origin: `http://${host}` })
    await own.subscribe('a', { source: 'events' })
    for (const origin of ['http://elsewhere.example', undefined]) {
      const foreign = await connect(plant.domainId, {
        headers: { cookie },
        ...(origin === undefined ? {} : { origin }),
      })
      foreign.send({ type: 'subscribe', id: 'a', source: 'events' })
      expect(await foreign.closed).toMatchObject({ code: 1008 })
      expect(foreign.frames).toMatchObject([{ error: 'forbidden' }])
    }
    // The end of the session ends the stream.
    const ended = await plant.api.anonymous('DELETE', '/console/session', undefined, {
      host,
      origin: `http://${host}`,
      'x-skein-console': '1',
      cookie,
    })
    expect(ended.status).toBe(204)
    expect(await own.closed).toMatchObject({ code: 1008 })
  })

  test('that are revoked end the connection within a second, also without subscriptions', async () => {
    const tenant = await newTenant(plant.api)
    const member = await newMember(plant.api, tenant, ['read', 'task_read'])
    const [idle, busy] = [
      await connected(member.user.accessToken, tenant.domainId),
      await connected(member.user.accessToken, tenant.domainId),
    ]
    await busy.subscribe('a', { source: 'events' })
    await busy.subscribe('b', { source: 'tasks' })
    const beganMs = performance.now()
    await revokeRoles(plant.api, member.user.id, { type: 'domain', domainId: tenant.domainId, id: tenant.domainId })
    expect(await idle.closed).toMatchObject({ code: 1008 })
    expect(await busy.closed).toMatchObject({ code: 1008 })
    expect(performance.now() - beganMs).toBeLessThan(1_500)
  })

  test('can be renewed by the same user, and by no other', async () => {
    const peer = await connected()
    peer.send({ type: 'authenticate', token: (await newTenant(plant.api)).user.accessToken })
    expect(await peer.until('an error', ({ type }) => type === 'error')).toMatchObject({ error: 'forbidden' })
    peer.send({ type: 'authenticate', token: plant.owner.accessToken })
    await until(() => Promise.resolve(peer.frames.filter(({ type }) => type === 'authenticated').length === 2), 'both')
    peer.socket.terminate()
  })

  test('limit the stream to their rights: no tasks without task_read', async () => {
    const tenant = await newTenant(plant.api)
    const member = await newMember(plant.api, tenant, ['read'])
    const peer = await connected(member.user.accessToken, tenant.domainId)
    await expect(peer.subscribe('a', { source: 'tasks' })).rejects.toThrow('forbidden')
    const watcher = await newMember(plant.api, tenant, ['read', 'task_read'])
    const other = await connected(watcher.user.accessToken, tenant.domainId)
    await other.subscribe('a', { source: 'tasks' })
    await noteTask(await newTask(plant.domainId), 2)
    const own = await newTask(tenant.domainId)
    await noteTask(own, 3)
    await other.until('the own task', ({ event }) => event === 'task')
    expect(other.events('a')).toMatchObject([{ data: { state: 3, domain_id: tenant.domainId } }])
    for (const { socket } of [peer, other]) socket.terminate()
  })
})

test('a reader that does not read loses its connection, and costs the server little memory', async () => {
  const channel = await plant.newChannel()
  const peer = await connected()
  await peer.subscribe('a', { source: 'messages', channel })
  ;(peer.socket as unknown as { _socket: { pause(): void } })._socket.pause()
  const payload = { text: 'x'.repeat(200_000) }
  let most = 0
  const path = `/m/${plant.domainId}/c/${channel}`
  for (let index = 0; index < 60; index++) {
    expect((await plant.owner.call('POST', path, payload)).status).toBe(202)
    most = Math.max(most, plant.api.infrastructure.streams.budget.waitingBytes)
  }
  expect(most).toBeLessThan(6 * 1024 * 1024)
  ;(peer.socket as unknown as { _socket: { resume(): void } })._socket.resume()
  expect(await peer.closed).toMatchObject({ code: 1013 })
  expect(peer.events('a').length).toBeLessThan(60)
})

test('a request without an upgrade gets an error, and strangers are refused before', async () => {
  const path = `/${plant.domainId}/stream`
  const answer = await plant.owner.call('GET', path)
  expect([answer.status, answer.json<{ message: string }>().message]).toEqual([
    400,
    expect.stringContaining('WebSocket'),
  ])
  expect((await plant.api.anonymous('GET', path)).status).toBe(401)
  expect((await (await newTenant(plant.api)).call('GET', path)).status).toBe(403)
})

test('a path that is not percent-encoded UTF-8 is refused as wrong', async () => {
  const socket = new WebSocket(`ws://${host}/%zz/stream`)
  socket.on('error', () => undefined)
  const status = await new Promise<number>((resolve) =>
    socket.once('unexpected-response', (_request, response) => resolve(response.statusCode ?? 0)),
  )
  expect(status).toBeGreaterThanOrEqual(400)
  expect(status).toBeLessThan(500)
})
