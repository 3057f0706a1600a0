// Contract decision 76: a message rate slows the reading of a connection, and no reading is lost. Order and shares, never times.
import { generate } from 'mqtt-packet'
import type { IPublishPacket } from 'mqtt-packet'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { RECEIVE_MAXIMUM } from '#api/adapters/mqtt/publishing.ts'
import { createTestDatabase } from '../harness/database.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestApi } from '../harness/api.ts'
import { until } from '../harness/until.ts'
import { newTenant } from '../api/support.ts'
import { connectPeer } from './peer.ts'
import type { Peer } from './peer.ts'
import type { Node } from './support.ts'
import { startNode } from './support.ts'

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

const PACK = '[{"n":"temperature","v":21.5}]'

/** A tenant with one channel and a client that is connected to it. */
async function newPlant() {
  const tenant = await newTenant(api)
  const [{ id, credentials }, channel] = [await tenant.newClient(), await tenant.newChannel()]
  await tenant.connect(id, channel.id)
  const path = `/m/${tenant.domainId}/c/${channel.id}`
  return {
    path,
    topic: path.slice(1),
    device: api.as(`Client ${credentials.secret}`),
    connect: () => connectPeer(node.port, { username: id, password: Buffer.from(credentials.secret) }),
    limit: async (own: Record<string, number>) => {
      expect((await api.admin('PUT', `/domains/${tenant.domainId}/quotas`, { own })).status).toBe(200)
    },
    stored: async () => (await tenant.call('GET', `${path}?limit=1`)).json<{ total: number }>().total,
    values: async () =>
      (await tenant.call('GET', `${path}?limit=1000&dir=asc`))
        .json<{ messages: { value: number }[] }>()
        .messages.map(({ value }) => value),
  }
}

const publish = (topic: string, messageId: number, qos: 0 | 1 = 1, payload = PACK): IPublishPacket => ({
  cmd: 'publish',
  topic,
  payload,
  qos,
  dup: false,
  retain: false,
  ...(qos === 0 ? {} : { messageId }),
})

const acknowledged = (peer: Peer) => peer.inbox.filter(({ cmd }) => cmd === 'puback').length

test('a connection above the rate is read slowly: every message is stored in order, also with QoS 0', async () => {
  const plant = await newPlant()
  await plant.limit({ messages_per_second: 20 })
  const peer = await plant.connect()
  for (let sent = 0; sent < 60; sent++)
    peer.send(publish(plant.topic, 0, 0, `[{"n":"temperature","v":${sent},"t":${1_700_000_000 + sent}}]`))
  // The device leaves before its messages are read.
  peer.send({ cmd: 'disconnect' })
  await until(async () => (await plant.stored()) > 0, 'the first message')
  expect(await plant.stored()).toBeLessThan(60)
  await until(async () => (await plant.stored()) === 60, 'all messages')
  expect(await plant.values()).toEqual(Array.from({ length: 60 }, (_, index) => index))
}, 60_000)

test('connections of a domain take turns at its rate', async () => {
  const plant = await newPlant()
  await plant.limit({ messages_per_second: 10 })
  using many = await plant.connect()
  using few = await plant.connect()
  for (let sent = 1; sent <= 100; sent++) many.send(publish(plant.topic, sent))
  await until(() => acknowledged(many) >= 10, 'the first of many')
  const before = acknowledged(many)
  few.send(publish(plant.topic, 1))
  await few.next('puback')
  // One message of the other connection was before it; the next chunk may have been admitted with it.
  expect(acknowledged(many) - before).toBeLessThanOrEqual(5)
  expect(acknowledged(many)).toBeLessThan(100)
}, 60_000)

test('bytes are limited like messages', async () => {
  const plant = await newPlant()
  await plant.limit({ message_bytes_per_second: PACK.length * 10 })
  using peer = await plant.connect()
  for (let sent = 1; sent <= 30; sent++) peer.send(publish(plant.topic, sent))
  await until(() => acknowledged(peer) > 0, 'the first')
  expect(acknowledged(peer)).toBeLessThan(30)
  await until(() => acknowledged(peer) === 30, 'all')
}, 60_000)

test('a message over HTTP waits for a second, and is then refused with 429 and Retry-After', async () => {
  const plant = await newPlant()
  await plant.limit({ messages_per_second: 1 })
  const send = () => plant.device('POST', plant.path, JSON.parse(PACK))
  const answers = await Promise.all(Array.from({ length: 8 }, send))
  const refused = answers.filter(({ status }) => status === 429)
  expect(refused.length).toBeGreaterThan(0)
  expect(answers.filter(({ status }) => status === 202).length).toBe(answers.length - refused.length)
  expect(await plant.stored()).toBe(answers.length - refused.length)
  expect(refused[0]?.json()).toMatchObject({
    error: 'rate_limited',
    message: 'the quota of the domain is 1 messages per second',
  })
  expect(Number(refused[0]?.headers['retry-after'])).toBeGreaterThan(0)
  await plant.limit({})
  expect((await send()).status).toBe(202)
})

test.each([
  ['another domain', true],
  ['the same domain', false],
])(
  'the messages of a connection of %s without quotas overtake a flood',
  async (_name, isForeign) => {
    const flooding = await newPlant()
    const quiet = isForeign ? await newPlant() : flooding
    using flood = await flooding.connect()
    using peer = await quiet.connect()
    const sentByFlood = 16 * RECEIVE_MAXIMUM
    const packets = Array.from({ length: sentByFlood }, (_, index) => generate(publish(flooding.topic, index + 1)))
    flood.send(Buffer.concat(packets))
    await until(() => acknowledged(flood) > 0, 'the first of the flood')
    const passed: number[] = []
    for (let sent = 1; sent <= 3; sent++) {
      const before = acknowledged(flood)
      peer.send(publish(quiet.topic, sent))
      await peer.next('puback')
      passed.push(acknowledged(flood) - before)
    }
    // A message waits for the messages that are being committed, for those that were read before it, and for those that are
    // committed with it: the receive maximum of a connection limits each. Some more are acknowledged before the test looks.
    expect(Math.max(...passed)).toBeLessThanOrEqual(4 * RECEIVE_MAXIMUM)
    expect(acknowledged(flood)).toBeLessThan(sentByFlood)
    await until(() => acknowledged(flood) === sentByFlood, 'the whole flood')
  },
  60_000,
)
