/** The states of devices over MQTT: reports that are stored before PUBACK, and differences that are sent at once, later, and from any node. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { sleep } from '#core/time.ts'
import type { TestApi } from '../harness/api.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { DOMAIN_ROUTE, startPlant } from '../messages/support.ts'
import type { Device } from '../messages/support.ts'
import type { Peer } from './peer.ts'
import { connectPeer, publish, receive, subscribe } from './peer.ts'
import type { Node } from './support.ts'
import { anotherProcess, as, leave, startNode } from './support.ts'

type Notified = { version: number; delta: Record<string, unknown> }

const plant = useWorld(() => startPlant())
let node: Node
let other: TestApi
let otherNode: Node

beforeAll(async () => {
  node = await startNode(plant.api)
  other = await anotherProcess(plant)
  otherNode = await startNode(other)
}, 60_000)
afterAll(async () => {
  await otherNode.stop()
  await other[Symbol.asyncDispose]()
  await node.stop()
})

const topic = (rest: string, domain = plant.domainId) => `c/${domain}/state/${rest}`
const connect = (device: Device, options: Parameters<typeof as>[1] = {}, port = node.port) =>
  connectPeer(port, as(device, options))

async function desire(device: Device, body: unknown, name = '') {
  const path = `/${plant.domainId}/clients/${device.id}/desired-state${name && `/${name}`}`
  const response = await plant.owner.call('PATCH', path, body)
  expect(response.status).toBe(200)
  return response.json<Notified & { reported: Record<string, unknown> }>()
}
const stateOf = async (device: Device) => await desire(device, {})
const notified = async (peer: Peer) => JSON.parse(await receive(peer)) as Notified

/** Nothing comes: what is published afterwards is the next message. */
async function expectNothing(device: Device, peer: Peer, rest = 'desired') {
  const { version } = await desire(device, { probe: Math.random() }, rest.split('/')[1] ?? '')
  expect((await notified(peer)).version).toBe(version)
}

describe('a report', () => {
  test('is stored when PUBACK comes, of a named document too, with the alias of the domain', async () => {
    const device = await plant.newDevice()
    using peer = await connect(device)
    await publish(peer, topic('reported'), '{"battery":87}')
    expect((await stateOf(device)).reported).toEqual({ battery: 87 })
    await publish(peer, topic('reported/config', DOMAIN_ROUTE), '{"rate":5}', { qos: 2 })
    expect((await desire(device, {}, 'config')).reported).toEqual({ rate: 5 })
    peer.send({ cmd: 'publish', topic: topic('reported'), payload: '{"zero":0}', qos: 0, dup: false, retain: false })
    await until(async () => 'zero' in (await stateOf(device)).reported, 'a report with QoS 0 is stored')
  })

  test('those that cannot be written for now are written in the order in which they came', async () => {
    const device = await plant.newDevice()
    using peer = await connect(device)
    await publish(peer, topic('reported'), '{"a":0}')
    const options = { cmd: 'publish', topic: topic('reported'), qos: 1, dup: false, retain: false } as const
    await plant.api.database.transaction(async (tx) => {
      await sql`SELECT FROM device_states WHERE client_key = (SELECT key FROM clients WHERE id = ${device.id}) FOR UPDATE`.execute(
        tx,
      )
      for (let a = 1; a <= 5; a++) peer.send({ ...options, payload: `{"a":${a}}`, messageId: 100 + a })
      // Longer than a report waits for its document: the first one is repeated.
      await sleep(600)
    })
    for (let a = 1; a <= 5; a++) expect((await peer.next('puback')).messageId).toBe(100 + a)
    expect((await stateOf(device)).reported).toEqual({ a: 5 })
  })

  test('reports are written in the order in which they came, without waiting for PUBACK', async () => {
    const device = await plant.newDevice()
    using peer = await connect(device)
    const count = 300
    for (let value = 1; value <= count; value++)
      peer.send({
        cmd: 'publish',
        topic: topic('reported'),
        payload: JSON.stringify({ value, [`f${value % 7}`]: value }),
        qos: 1,
        dup: false,
        retain: false,
        messageId: value,
      })
    for (let value = 1; value <= count; value++) expect((await peer.next('puback')).messageId).toBe(value)
    const { reported } = await stateOf(device)
    expect(reported).toEqual({ value: 300, f0: 294, f1: 295, f2: 296, f3: 297, f4: 298, f5: 299, f6: 300 })
  })

  test.each([
    ['no JSON', 'x', 0x99],
    ['a list', '[1]', 0x99],
    ['nothing', '', 0x99],
    ['a key __proto__', '{"__proto__":{"a":1}}', 0x99],
    ['bytes that are no UTF-8', Buffer.from([0x7b, 0xff, 0x7d]), 0x99],
    ['deep nesting', `${'{"a":'.repeat(40)}1${'}'.repeat(40)}`, 0x99],
    ['very deep nesting', `${'['.repeat(30_000)}`, 0x99],
    ['too many bytes', JSON.stringify({ a: 'x'.repeat(70_000) }), 0x80],
  ] as const)('%s is refused with a reason, and changes nothing', async (_what, payload, reasonCode) => {
    const device = await plant.newDevice()
    using peer = await connect(device, { protocolVersion: 5 })
    peer.send({ cmd: 'publish', topic: topic('reported'), payload, qos: 1, dup: false, retain: false, messageId: 5 })
    expect(await peer.next('puback')).toMatchObject({ reasonCode })
    await publish(peer, topic('reported'), '{"a":1}')
    expect((await stateOf(device)).reported).toEqual({ a: 1 })
  })

  test.each(['reported/a/b', 'reported/$x', 'reported/', 'desired', 'desired/config', '', 'delta'])(
    'nothing is published to %s',
    async (rest) => {
      const device = await plant.newDevice()
      using peer = await connect(device, { protocolVersion: 5 })
      const { reasonCode } = (await publish(peer, topic(rest), '{"a":1}')) as { reasonCode?: number }
      // Topic name invalid
      expect(reasonCode).toBe(0x90)
      expect((await stateOf(device)).reported).toEqual({})
    },
  )
})

describe('a subscribed device', () => {
  test('receives the difference at once, and then each change', async () => {
    const device = await plant.newDevice()
    const first = await desire(device, { a: 1 })
    using peer = await connect(device)
    expect(await subscribe(peer, topic('desired'))).toEqual([1])
    expect(await notified(peer)).toEqual({ version: first.version, delta: { a: 1 } })
    const second = await desire(device, { b: 2 })
    expect(await notified(peer)).toEqual({ version: second.version, delta: { a: 1, b: 2 } })
    const none = await desire(device, { a: null, b: null })
    expect(await notified(peer)).toEqual({ version: none.version, delta: {} })
  })

  test('receives a difference of any size whole, also one that the database compresses to little', async () => {
    const device = await plant.newDevice()
    const texts = [60_000, 10, 3_000, 500].map((length) => 'x'.repeat(length))
    await desire(device, { text: texts[0] })
    using peer = await connect(device)
    await subscribe(peer, topic('desired'))
    expect((await notified(peer)).delta).toEqual({ text: texts[0] })
    for (const text of texts.slice(1)) {
      const { version } = await desire(device, { text })
      expect(await notified(peer)).toEqual({ version, delta: { text } })
    }
  })

  test('is not notified of its own reports, and is notified again when it leaves what is desired', async () => {
    const device = await plant.newDevice()
    await desire(device, { led: true, rate: 5 })
    using peer = await connect(device)
    await subscribe(peer, topic('desired'))
    await notified(peer)
    await publish(peer, topic('reported'), '{"led":true}')
    await publish(peer, topic('reported'), '{"rate":5,"battery":3}')
    await publish(peer, topic('reported'), '{"led":false}')
    expect((await notified(peer)).delta).toEqual({ led: true })
  })

  test('without a difference receives nothing when it subscribes', async () => {
    const device = await plant.newDevice()
    await desire(device, { a: 1 })
    using peer = await connect(device)
    await publish(peer, topic('reported'), '{"a":1}')
    await subscribe(peer, topic('desired'))
    await expectNothing(device, peer)
  })

  test('is notified of the documents that its filter selects', async () => {
    const device = await plant.newDevice()
    await desire(device, { a: 1 })
    await desire(device, { rate: 1 }, 'config')
    using all = await connect(device)
    await subscribe(all, topic('desired/#'))
    const topics = [(await all.next('publish')).topic, (await all.next('publish')).topic]
    expect(topics.toSorted()).toEqual([topic('desired'), topic('desired/config')])
    using named = await connect(device)
    await subscribe(named, topic('desired/+'))
    expect((await named.next('publish')).topic).toBe(topic('desired/config'))
    using unnamed = await connect(device)
    await subscribe(unnamed, topic('desired'))
    expect((await unnamed.next('publish')).topic).toBe(topic('desired'))
    for (const wrong of ['reported', '#', '+', 'desired/config/#', 'desired/$x', 'desired/a/b'])
      expect([wrong, await subscribe(unnamed, topic(wrong))]).toEqual([wrong, [0x80]])
  })

  test('receives it on another node as well', async () => {
    const device = await plant.newDevice()
    using peer = await connect(device, {}, otherNode.port)
    await subscribe(peer, topic('desired'))
    const { version } = await desire(device, { a: 1 })
    expect(await notified(peer)).toEqual({ version, delta: { a: 1 } })
    using reporting = await connect(device)
    await publish(reporting, topic('reported'), '{"a":1}')
    await publish(reporting, topic('reported'), '{"a":2}')
    expect((await notified(peer)).delta).toEqual({ a: 1 })
  })

  test('that does not acknowledge receives the newest difference alone when it does', async () => {
    const device = await plant.newDevice()
    using peer = await connect(device)
    await subscribe(peer, topic('desired'))
    await desire(device, { a: 1 })
    const first = await peer.next('publish')
    for (let value = 2; value <= 20; value++) await desire(device, { a: value })
    peer.send({ cmd: 'puback', messageId: first.messageId ?? 0 })
    expect((await notified(peer)).delta).toEqual({ a: 20 })
    await expectNothing(device, peer)
  })

  test('that was away receives the newest difference once, with a stored session on another node', async () => {
    const device = await plant.newDevice()
    const options = { clean: false, clientId: 'stays' }
    {
      using peer = await connect(device, options)
      await subscribe(peer, topic('desired'))
      await leave(peer)
    }
    for (let value = 1; value <= 5; value++) await desire(device, { a: value })
    using peer = await connect(device, options, otherNode.port)
    expect(peer.connack.sessionPresent).toBe(true)
    expect((await notified(peer)).delta).toEqual({ a: 5 })
    await expectNothing(device, peer)
  })

  test('with QoS 0 and a stored session is notified when it is back', async () => {
    const device = await plant.newDevice()
    const options = { clean: false, clientId: 'zero' }
    {
      using peer = await connect(device, options)
      await subscribe(peer, topic('desired'), 0)
      await leave(peer)
    }
    await desire(device, { a: 1 })
    using peer = await connect(device, options)
    expect((await notified(peer)).delta).toEqual({ a: 1 })
  })

  test.each([0, 1] as const)(
    'with QoS %i does not get a delta that is larger than its packets, and gets the next one',
    async (qos) => {
      const device = await plant.newDevice()
      using peer = await connect(device, { protocolVersion: 5, properties: { maximumPacketSize: 1000 } })
      await subscribe(peer, topic('desired'), qos)
      await desire(device, { large: 'x'.repeat(2000) })
      await desire(device, { large: 'y'.repeat(2000) })
      await desire(device, { large: null, a: 1 })
      expect((await notified(peer)).delta).toEqual({ a: 1 })
    },
  )

  test('of another domain is refused, and receives nothing', async () => {
    const device = await plant.newDevice()
    const domain = (await plant.owner.call('POST', '/domains', { name: 'other' })).json<{ id: string }>().id
    const made = (await plant.owner.call('POST', `/${domain}/clients`, { name: 'x' })).json<{
      id: string
      credentials: { secret: string }
    }>()
    const stranger = { id: made.id, secret: made.credentials.secret }
    using peer = await connect(stranger, { protocolVersion: 5 })
    const refusals = [
      await subscribe(peer, topic('desired')),
      await subscribe(peer, topic('desired', 'no-such-domain')),
    ]
    expect(refusals).toEqual([[0x87], [0x87]])
    expect(await publish(peer, topic('reported'), '{"a":1}')).toMatchObject({ reasonCode: 0x87 })
    expect(await subscribe(peer, topic('desired', domain))).toEqual([1])
    await desire(device, { a: 1 })
    await plant.owner.call('PATCH', `/${domain}/clients/${stranger.id}/desired-state`, { own: true })
    expect((await notified(peer)).delta).toEqual({ own: true })
  })

  test('is notified of a change of many clients', async () => {
    const device = await plant.newDevice()
    await plant.owner.call('PATCH', `/${plant.domainId}/clients/${device.id}/tags`, { tags: ['notified'] })
    using peer = await connect(device)
    await subscribe(peer, topic('desired/#'))
    await plant.owner.call('PATCH', `/${plant.domainId}/clients/desired-state?tag=notified&name=firmware`, { v: '2' })
    expect((await notified(peer)).delta).toEqual({ v: '2' })
  })
})
