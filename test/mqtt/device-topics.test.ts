/** Topics of a device itself, `c/<domain>/<noun>/…`: who may use them, and how they behave as subscriptions of a session. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { DeviceNoun, DeviceSink } from '#api/devices/index.ts'
import { noSuchTopic } from '#api/devices/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { sql } from '#core/sql.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { DOMAIN_ROUTE, startPlant } from '../messages/support.ts'
import { publish, receive, subscribe } from './peer.ts'
import type { Node } from './support.ts'
import { aDevice, startNode } from './support.ts'

const plant = useWorld(() => startPlant())
let node: Node

/** What devices published, and their open subscriptions. */
const heard: string[] = []
const sinks = new Set<DeviceSink>()
const acknowledged: string[] = []

const ECHO: DeviceNoun = {
  noun: 'echo',
  publish: async (device, levels, { payload }) => {
    if (levels[0] !== 'said') throw noSuchTopic()
    if (payload.toString() === 'bad') throw new ServiceError('malformed', 'a bad word')
    heard.push(`${device.clientId} ${levels.join('/')} ${payload.toString()}`)
    await Promise.resolve()
  },
  checkFilter(levels) {
    if (levels[0] !== 'notified') throw noSuchTopic()
  },
  subscribe(sink) {
    sinks.add(sink)
    return { close: () => void sinks.delete(sink) }
  },
  request: () => Promise.reject(noSuchTopic()),
  observe: () => undefined,
}

function tell(clientId: string, text: string): void {
  for (const sink of sinks) {
    if (sink.device.clientId !== clientId) continue
    sink.send({
      levels: ['notified', 'a.b'],
      payload: Buffer.from(text),
      contentType: 'text/plain',
      onAcknowledged: () => acknowledged.push(text),
    })
  }
}

beforeAll(async () => {
  node = await startNode(plant.api)
  plant.api.api.devices.topics.register(ECHO)
}, 60_000)
afterAll(async () => {
  await node.stop()
})

test('a device publishes to its own topics, with the id and the alias of its domain', async () => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect({ protocolVersion: 5 })
  await publish(peer, `c/${plant.domainId}/echo/said/one`, 'hello')
  await publish(peer, `c/${DOMAIN_ROUTE}/echo/said`, 'again')
  expect(heard).toEqual([`${device.id} said/one hello`, `${device.id} said again`])
  expect(await publish(peer, `c/${plant.domainId}/echo/said`, 'bad')).toMatchObject({ reasonCode: 0x99 })
  for (const [topic, reasonCode] of [
    [`c/${plant.domainId}/echo/other`, 0x90],
    [`c/${plant.domainId}/unknown/said`, 0x90],
    [`c/${plant.domainId}/constructor/said`, 0x90],
    [`c/${plant.domainId}`, 0x90],
    ['c', 0x90],
    ['c/another-domain/echo/said', 0x87],
  ] as const)
    expect([topic, await publish(peer, topic, 'x')]).toMatchObject([topic, { reasonCode }])
})

test('an unknown domain and the domain of others are refused the same', async () => {
  const device = await aDevice(plant, node.port)
  const other = (await plant.owner.call('POST', '/domains', { name: 'other' })).json<{ id: string }>().id
  using peer = await device.connect({ protocolVersion: 5 })
  for (const domain of [other, 'no-such-domain'])
    expect(await subscribe(peer, `c/${domain}/echo/notified/#`)).toEqual([0x87])
  expect(await subscribe(peer, `c/${plant.domainId}/echo/said`)).not.toEqual([1])
  expect(await subscribe(peer, `c/+/echo/notified/#`)).toEqual([0x8f])
  expect(await subscribe(peer, `$share/g/c/${plant.domainId}/echo/notified/#`)).toEqual([0x8f])
  expect(sinks.size).toBe(0)
})

test.each([0, 1, 2] as const)('what a device is notified comes to a subscription with QoS %i', async (qos) => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect()
  expect(await subscribe(peer, `c/${plant.domainId}/echo/notified/#`, qos)).toEqual([Math.min(qos, 1)])
  const text = `notified ${qos}`
  tell(device.id, text)
  const message = await peer.next('publish')
  expect(message).toMatchObject({
    topic: `c/${plant.domainId}/echo/notified/a.b`,
    qos: Math.min(qos, 1),
    retain: false,
  })
  if (qos > 0) {
    expect(acknowledged).not.toContain(text)
    peer.send({ cmd: 'puback', messageId: message.messageId ?? 0 })
  }
  await until(() => acknowledged.includes(text), 'the message is acknowledged')
})

test('a subscription ends with its connection, and begins again with the stored session', async () => {
  const device = await aDevice(plant, node.port)
  const options = { clean: false, clientId: 'kept' }
  {
    using peer = await device.connect(options)
    await subscribe(peer, `c/${plant.domainId}/echo/notified/#`)
    tell(device.id, 'not acknowledged')
    await peer.next('publish')
  }
  const isOpen = () => [...sinks].some((sink) => sink.device.clientId === device.id)
  await until(() => !isOpen(), 'the subscription is closed')
  using peer = await device.connect(options)
  expect(peer.connack.sessionPresent).toBe(true)
  await until(isOpen, 'the subscription is open again')
  tell(device.id, 'again')
  // The message of the first connection is not kept: the service decides what is sent again.
  expect(await receive(peer)).toBe('again')
  peer.send({ cmd: 'unsubscribe', messageId: 3, unsubscriptions: [`c/${plant.domainId}/echo/notified/#`] })
  await peer.next('unsuback')
  expect(isOpen()).toBe(false)
})

test('while an older version runs, a stored session is refused what that version would remove', async () => {
  const device = await aDevice(plant, node.port)
  const { db } = plant.api.database
  const filter = `c/${plant.domainId}/echo/notified/#`
  await sql`INSERT INTO nodes (id, kind, version, migration) VALUES ('older', 'api', '0', 1)`.execute(db)
  try {
    using stored = await device.connect({ clean: false, clientId: 'older' })
    // What an earlier subscription has found is known for some seconds.
    await until(async () => (await subscribe(stored, filter))[0] === 0x80, 'the subscription is refused')
    using unstored = await device.connect({ clientId: 'passing' })
    expect(await subscribe(unstored, filter)).toEqual([1])
    await sql`DELETE FROM nodes WHERE id = 'older'`.execute(db)
    expect(await subscribe(stored, filter)).toEqual([1])
  } finally {
    await sql`DELETE FROM nodes WHERE id = 'older'`.execute(db)
  }
})

test('a will cannot be published to such a topic', async () => {
  const device = await aDevice(plant, node.port)
  const will = { topic: `c/${plant.domainId}/echo/said`, payload: Buffer.from('gone'), qos: 1 as const, retain: false }
  using peer = await device.connect({ protocolVersion: 5, will })
  expect(peer.connack.reasonCode).toBe(0x90)
})

test('a disabled device loses its subscription', async () => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect()
  await subscribe(peer, `c/${plant.domainId}/echo/notified/#`)
  await plant.owner.call('POST', `/${plant.domainId}/clients/${device.id}/disable`)
  await peer.closed()
  await until(() => ![...sinks].some((sink) => sink.device.clientId === device.id), 'the subscription is closed')
})
