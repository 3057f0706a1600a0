// Contract decision 76 over MQTT: amounts are refused with 0x97, and no message of a device is lost.
import { generate } from 'mqtt-packet'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { projectPending } from '#api/messages/projections/project.ts'
import { newTenant } from '../api/support.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi } from '../harness/api.ts'
import { createTestDatabase } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { connectPeer, publish, subscribe } from './peer.ts'
import type { Connecting } from './peer.ts'
import type { Node } from './support.ts'
import { startNode } from './support.ts'

const QUOTA_EXCEEDED = 0x97
/** "Server unavailable", the only code of 3.1.1 that fits. */
const UNAVAILABLE = 3

let database: Awaited<ReturnType<typeof createTestDatabase>>
let api: TestApi
let node: Node

beforeAll(async () => {
  database = await createTestDatabase()
  api = await startTestApi({ database })
  node = await startNode(api)
}, 60_000)
afterAll(async () => {
  await node.stop()
  await api[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

type Usage = { quotas: Record<string, { limit: number | null; used: number | null }> }

async function newPlant() {
  const tenant = await newTenant(api)
  const [{ id, credentials }, channel] = [await tenant.newClient(), await tenant.newChannel()]
  await tenant.connect(id, channel.id)
  const path = `/m/${tenant.domainId}/c/${channel.id}`
  const login = { username: id, password: Buffer.from(credentials.secret) }
  return {
    topic: path.slice(1),
    device: api.as(`Client ${credentials.secret}`),
    connect: (options: Connecting = {}, port = node.port) =>
      connectPeer(port, { protocolVersion: 5, ...login, ...options }),
    limit: async (own: Record<string, number>) => {
      const answer = await api.admin('PUT', `/domains/${tenant.domainId}/quotas`, { own })
      expect(answer.status, answer.text).toBe(200)
    },
    used: async (name: string) =>
      (await tenant.call('GET', `/domains/${tenant.domainId}/usage`)).json<Usage>().quotas[name]?.used,
    stored: async () => (await tenant.call('GET', `${path}?limit=1`)).json<{ total: number }>().total,
    removeAll: async () => {
      const url = `/${tenant.domainId}/channels/${channel.id}/messages?from=0`
      expect((await tenant.call('DELETE', url)).status).toBe(204)
    },
  }
}

const codeOf = ({ connack }: { connack: { reasonCode?: number; returnCode?: number } }) =>
  connack.reasonCode ?? connack.returnCode

test('connections: one too many is refused with 0x97; one that ends or is taken over makes room', async () => {
  const plant = await newPlant()
  await plant.limit({ mqtt_connections: 2 })
  using first = await plant.connect({ clientId: 'first' })
  const second = await plant.connect({ clientId: 'second' })
  expect([codeOf(first), codeOf(second)]).toEqual([0, 0])
  using third = await plant.connect({ clientId: 'third' })
  expect(codeOf(third)).toBe(QUOTA_EXCEEDED)
  using older = await plant.connect({ clientId: 'third', protocolVersion: 4 })
  expect(codeOf(older)).toBe(UNAVAILABLE)
  using again = await plant.connect({ clientId: 'first' })
  expect(codeOf(again)).toBe(0)
  expect(await plant.used('mqtt_connections')).toBe(2)
  second.send({ cmd: 'disconnect' })
  await second.closed()
  await until(async () => (await plant.used('mqtt_connections')) === 1, 'the end of the second')
  await until(async () => {
    using fourth = await plant.connect({ clientId: 'fourth' })
    return codeOf(fourth) === 0
  }, 'a connection that finds room')
})

test('sessions: a stored one counts until it expires, and is resumed beyond the quota', async () => {
  const plant = await newPlant()
  await plant.limit({ mqtt_sessions: 1 })
  const kept = { clientId: 'kept', clean: false, properties: { sessionExpiryInterval: 3600 } }
  const first = await plant.connect(kept)
  first.send({ cmd: 'disconnect' })
  await first.closed()
  using other = await plant.connect({ clientId: 'other' })
  expect(codeOf(other)).toBe(QUOTA_EXCEEDED)
  using resumed = await plant.connect(kept)
  expect(codeOf(resumed)).toBe(0)
  expect(resumed.connack.sessionPresent).toBe(true)
  expect(await plant.used('mqtt_sessions')).toBe(1)
})

test('subscriptions: beyond the quota a filter is refused with 0x97, and a repeated one is not', async () => {
  const plant = await newPlant()
  await plant.limit({ mqtt_subscriptions: 2 })
  using peer = await plant.connect({ clientId: 'first' })
  expect(await subscribe(peer, `${plant.topic}/a`)).toEqual([1])
  peer.send({
    cmd: 'subscribe',
    messageId: 2,
    subscriptions: [
      { topic: `${plant.topic}/a`, qos: 0 },
      { topic: `${plant.topic}/b`, qos: 0 },
      { topic: `${plant.topic}/c`, qos: 0 },
    ],
  })
  expect((await peer.next('suback')).granted).toEqual([0, 0, QUOTA_EXCEEDED])
  using older = await plant.connect({ clientId: 'second', protocolVersion: 4 })
  expect(await subscribe(older, `${plant.topic}/d`)).toEqual([0x80])
  expect(await plant.used('mqtt_subscriptions')).toBe(2)
  peer.send({ cmd: 'unsubscribe', messageId: 3, unsubscriptions: [`${plant.topic}/a`] })
  await peer.next('unsuback')
  await until(async () => (await subscribe(older, `${plant.topic}/d`))[0] === 1, 'a subscription that finds room')
})

test('connections at another node count too', async () => {
  const plant = await newPlant()
  const elsewhere = await startTestApi({ database })
  const otherNode = await startNode(elsewhere)
  try {
    await plant.limit({ mqtt_connections: 1 })
    using first = await plant.connect({ clientId: 'first' })
    expect(codeOf(first)).toBe(0)
    await until(async () => {
      using second = await plant.connect({ clientId: 'second' }, otherNode.port)
      return codeOf(second) === QUOTA_EXCEEDED
    }, 'a refusal by the other node')
  } finally {
    await otherNode.stop()
    await elsewhere[Symbol.asyncDispose]()
  }
})

/** Fills the quota, and waits until this is known. */
async function fill(plant: Awaited<ReturnType<typeof newPlant>>): Promise<void> {
  await plant.limit({ stored_records: 1 })
  await until(async () => {
    await plant.device('POST', `/${plant.topic}`, [{ n: 'a', v: 1 }])
    await projectPending(api.database)
    return (await plant.device('POST', `/${plant.topic}`, [{ n: 'a', v: 1 }])).status === 422
  }, 'a full domain')
}

test('stored records: QoS 1 and 2 of 5.0 are refused with 0x97, and the connection stays', async () => {
  const plant = await newPlant()
  await fill(plant)
  const before = await plant.stored()
  using peer = await plant.connect({ clientId: 'device' })
  expect((await publish(peer, plant.topic, '[{"n":"a","v":2}]')).reasonCode).toBe(QUOTA_EXCEEDED)
  peer.send({ cmd: 'publish', topic: plant.topic, payload: '[]', qos: 2, dup: false, retain: false, messageId: 7 })
  expect((await peer.next('pubrec')).reasonCode).toBe(QUOTA_EXCEEDED)
  expect(await subscribe(peer, plant.topic)).toEqual([1])
  expect(await plant.stored()).toBe(before)
  await plant.removeAll()
  await until(
    async () => ((await publish(peer, plant.topic, '[{"n":"a","v":3}]')).reasonCode ?? 0) === 0,
    'a message that finds room',
  )
})

test.each([
  ['QoS 0 of 5.0', 5, 0],
  ['QoS 0 of 3.1.1', 4, 0],
  ['QoS 1 of 3.1.1', 4, 1],
] as const)(
  'stored records: %s is read slowly and stored, every message',
  async (_name, protocolVersion, qos) => {
    const plant = await newPlant()
    await fill(plant)
    const before = await plant.stored()
    using peer = await plant.connect({ clientId: 'device', protocolVersion })
    const packets = Array.from({ length: 6 }, (_, index) =>
      generate(
        {
          cmd: 'publish',
          topic: plant.topic,
          payload: `[{"n":"b","v":${index}}]`,
          qos,
          dup: false,
          retain: false,
          ...(qos === 0 ? {} : { messageId: index + 1 }),
        },
        { protocolVersion },
      ),
    )
    peer.send(Buffer.concat(packets))
    await until(async () => (await plant.stored()) > before, 'the first')
    expect(await plant.stored()).toBeLessThan(before + 6)
    // With room the others follow.
    await plant.limit({})
    await until(async () => (await plant.stored()) === before + 6, 'all messages')
    expect(peer.isClosed).toBe(false)
    if (qos === 1) expect(peer.inbox.filter(({ cmd }) => cmd === 'puback')).toHaveLength(6)
  },
  60_000,
)
