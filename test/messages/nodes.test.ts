/**
 * Two nodes over one PostgreSQL and one Redis: a message that arrives at one reaches the followers of both, a revocation
 * is in force on both within a second, and a Redis that is gone takes nothing but speed.
 */
import { createClient } from 'redis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { TAIL_INTERVAL_MS } from '#core/changelog/index.ts'
import { RedisServer, hasRedisServer } from '../core/redis-server.ts'
import type { TestApi } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'
import type { TestDatabase } from '../harness/database.ts'
import { createTestDatabase } from '../harness/database.ts'
import type { EventReader } from '../harness/event-stream.ts'
import { openEvents } from '../harness/event-stream.ts'
import { untilInForce } from '../harness/in-force.ts'
import { until } from '../harness/until.ts'
import type { Node as MqttNode } from '../mqtt/support.ts'
import { startNode } from '../mqtt/support.ts'
import { SENML, behaveAsNodes, messagesOf, numbered, payloads } from './several-nodes.ts'
import type { SeveralNodes } from './several-nodes.ts'
import type { Device, Plant } from './support.ts'
import { startPlant } from './support.ts'

describe.skipIf(!hasRedisServer())('two nodes (needs redis-server)', { timeout: 60_000 }, () => {
  let database: TestDatabase
  let redis: RedisServer
  let plant: Plant
  let first: TestApi
  let second: TestApi
  let secondUrl: string
  let mqtt: MqttNode[]
  let nodes: SeveralNodes

  beforeAll(async () => {
    database = await createTestDatabase()
    redis = await RedisServer.start()
    // The real interval: what holds here holds in production.
    const options = { database, environment: { SKEIN_REDIS_URL: redis.url }, tailIntervalMs: TAIL_INTERVAL_MS }
    plant = await startPlant(options)
    first = plant.api
    second = await startTestApi(options)
    secondUrl = await second.app.listen({ host: '127.0.0.1', port: 0 })
    const urls = [await first.app.listen({ host: '127.0.0.1', port: 0 }), secondUrl]
    mqtt = [await startNode(first), await startNode(second)]
    nodes = {
      domainId: plant.domainId,
      owner: plant.owner.call,
      as: (node, authorization) => {
        const { anonymous, as } = node === 0 ? first : second
        return authorization === undefined ? anonymous : as(authorization)
      },
      follow: (node, path, authorization) => openEvents(`${urls[node]}${path}/live`, { authorization }),
      mqttPort: (node) => mqtt[node]?.port ?? 0,
      [Symbol.asyncDispose]: () => Promise.resolve(),
    }
  }, 60_000)
  afterAll(async () => {
    for (const node of mqtt) await node.stop()
    await second[Symbol.asyncDispose]()
    await plant[Symbol.asyncDispose]()
    await redis[Symbol.asyncDispose]()
    await database[Symbol.asyncDispose]()
  })

  const pathOf = (channelId: string) => `/m/${plant.domainId}/c/${channelId}`
  const publish = async (node: TestApi, { secret }: Device, channelId: string, body: string) =>
    (await node.as(`Client ${secret}`)('POST', pathOf(channelId), body, SENML)).status
  const follow = (device: Device, channelId: string): Promise<EventReader> =>
    openEvents(`${secondUrl}${pathOf(channelId)}/live`, { authorization: `Client ${device.secret}` })

  const untilRefused = (node: TestApi, device: Device, channelId: string, status: number) =>
    untilInForce(() => publish(node, device, channelId, numbered(2)), { from: 202, to: status }, 'the node refuses')

  /** What Redis carries on its channels from now on. */
  async function listen() {
    const client = createClient({ url: redis.url })
    client.on('error', () => undefined)
    await client.connect()
    const heard: string[] = []
    await client.pSubscribe('*', (message) => heard.push(message))
    return { heard, close: () => client.destroy() }
  }

  test('hints contain the messages that other nodes follow and no others', async () => {
    const [followed, other] = [await plant.newConnectedDevice(), await plant.newConnectedDevice()]
    const ear = await listen()
    await using reader = await follow(followed, followed.channelId)
    await until(async () => {
      await publish(first, followed, followed.channelId, '[{"n":"followed","v":1}]')
      return ear.heard.some((text) => text.includes('followed","v"'))
    }, 'a hint is sent')
    await publish(first, other, other.channelId, '[{"n":"private","v":1}]')
    await publish(first, followed, followed.channelId, '[{"n":"last","v":1}]')
    await until(() => payloads(reader).some((text) => text.includes('last')), 'the last one arrives')
    expect(ear.heard.filter((text) => text.includes('private'))).toEqual([])
    ear.close()
  })

  test('an invalid hint is ignored', async () => {
    const device = await plant.newConnectedDevice()
    await using reader = await follow(device, device.channelId)
    const client = createClient({ url: redis.url })
    await client.connect()
    for (const junk of ['', 'x', '\u0001', '\u0001\u0000\u0000\u0000\u0001{', '{"node":1}'])
      for (const topic of ['skein.messages', 'skein.messages.followed'])
        await client.publish(topic, `0123456789abcdef${junk}`)
    client.destroy()
    await publish(first, device, device.channelId, numbered(1))
    await until(() => messagesOf(reader).length === 1, 'the message arrives')
  })

  describe('with Redis', () => {
    behaveAsNodes(() => nodes)
  })

  describe('without Redis', () => {
    beforeAll(() => redis.kill())

    test('publishing and reading continue at both nodes, and messages of one reach the followers of the other', async () => {
      const device = await plant.newConnectedDevice()
      const { channelId } = device
      await using reader = await follow(device, channelId)
      for (let number = 0; number < 20; number++)
        expect(await publish(number % 2 === 0 ? first : second, device, channelId, numbered(number))).toBe(202)
      await until(() => messagesOf(reader).length === 20, 'every message arrives')
      for (const node of [first, second]) {
        const read = await node.as(`Client ${device.secret}`)('GET', pathOf(channelId))
        expect(read.json<{ total: number }>().total).toBe(20)
      }
    })

    test('a removed connection is invalid on both nodes within a second, open streams included', async () => {
      const device = await plant.newConnectedDevice()
      const { channelId } = device
      await using reader = await follow(device, channelId)
      for (const node of [first, second]) expect(await publish(node, device, channelId, numbered(1))).toBe(202)
      const body = { client_ids: [device.id], channel_ids: [channelId] }
      const taken = await plant.owner.call('POST', `/${plant.domainId}/channels/disconnect`, body)
      expect(taken.status).toBe(204)
      expect(await publish(first, device, channelId, numbered(2))).toBe(403)
      await untilRefused(second, device, channelId, 403)
      await until(reader.isEnded, 'the second node has ended the stream')
      expect(reader.events.at(-1)?.data).toMatchObject({ reason: 'forbidden' })
    })

    test('a client that is disabled at one node is refused by the other within a second', async () => {
      const device = await plant.newConnectedDevice()
      expect(await publish(second, device, device.channelId, numbered(1))).toBe(202)
      const disabled = await plant.owner.call('POST', `/${plant.domainId}/clients/${device.id}/disable`)
      expect(disabled.status).toBe(200)
      await untilRefused(second, device, device.channelId, 401)
    })
  })

  test('hints flow again when Redis is back', async () => {
    await redis.begin()
    const device = await plant.newConnectedDevice()
    await using reader = await follow(device, device.channelId)
    await until(async () => {
      await publish(first, device, device.channelId, numbered(-2))
      return payloads(reader).includes(numbered(-2))
    }, 'a message arrives by a hint')
  })
})
