/** Sessions that were away for long (contract section 7.3): what they missed, its bound, and how they come back among the others. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { sql } from '#core/sql.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { untilSettled } from '../messages/consumers-support.ts'
import { startPlant } from '../messages/support.ts'
import type { Node } from './support.ts'
import { aDevice, leave, startNode } from './support.ts'

/** More batches than any step of the fan-out takes at once. */
const BATCHES = 450
/** Of a channel that nobody of these tests follows. */
const FOREIGN = 300

const plant = useWorld(() => startPlant())
let node: Node

beforeAll(async () => {
  node = await startNode(plant.api)
}, 60_000)
afterAll(async () => {
  await node.stop()
})

const kept = { clientId: 'kept', clean: false }

async function sendOneByOne(device: Awaited<ReturnType<typeof aDevice>>, count: number, retain = false) {
  using publisher = await device.connect()
  for (let number = 1; number <= count; number++) {
    const messageId = number
    publisher.send({ cmd: 'publish', topic: device.topic, payload: `${number}`, qos: 1, messageId, dup: false, retain })
    await publisher.next('puback')
  }
}

test('a session that missed very many batches gets all of them once and in order, and then new messages', async () => {
  const device = await aDevice(plant, node.port)
  const other = await aDevice(plant, node.port)
  {
    using before = await device.connect(kept)
    before.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic: `${device.topic}/#`, qos: 1 }] })
    await before.next('suback')
    await leave(before)
  }
  await sendOneByOne(other, FOREIGN)
  await sendOneByOne(device, BATCHES)
  const followersBefore = plant.api.api.messages.followers
  using back = await device.connect(kept)
  expect(back.connack.sessionPresent).toBe(true)
  const got: number[] = []
  for (let number = 1; number <= BATCHES; number++) {
    const { payload, messageId = 0 } = await back.next('publish')
    got.push(Number(payload.toString()))
    back.send({ cmd: 'puback', messageId })
  }
  expect(got).toEqual(Array.from({ length: BATCHES }, (_, index) => index + 1))
  // It shares the follower of the channel again.
  await until(() => plant.api.api.messages.followers === followersBefore + 1, 'one follower is left')
  await sendOneByOne(device, 1)
  expect((await back.next('publish')).payload.toString()).toBe('1')
}, 120_000)

test('beyond the newest 100,000 messages of a channel older ones are skipped and counted', async () => {
  const device = await aDevice(plant, node.port)
  {
    using before = await device.connect(kept)
    before.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic: device.topic, qos: 1 }] })
    await before.next('suback')
    await leave(before)
  }
  await sendOneByOne(device, 3)
  await untilSettled(plant)
  // As if each of the first two were a batch of very many: they cannot be sent here one by one.
  const { database } = plant.api
  await sql`
    INSERT INTO payloads (channel_key, publisher_key, time, arrived_at, batch_seq, message, ordinal, retention_days, protocol, publisher_id,
                          subtopic, format, content_type, document, body)
    SELECT p.channel_key, p.publisher_key, p.time, p.arrived_at, p.batch_seq, n, 0, p.retention_days, p.protocol, p.publisher_id, 'elsewhere',
           p.format, p.content_type, p.document, p.body
      FROM payloads p JOIN channels c ON c.key = p.channel_key, generate_series(1, 60000) n
     WHERE c.id = ${device.channelId} AND p.body IN ('\\x31', '\\x32')`.execute(database.db)
  using back = await device.connect(kept)
  const got: string[] = []
  for (const messageId of [1, 2]) {
    got.push((await back.next('publish')).payload.toString())
    back.send({ cmd: 'puback', messageId })
  }
  // The first two together are too many, the last two are not.
  expect(got).toEqual(['2', '3'])
  const skipped = async () => {
    const answer = await plant.owner.call('GET', `/${plant.domainId}/clients/${device.id}/sessions`)
    const { sessions } = answer.json<{ sessions: { skipped_messages: number }[] }>()
    return sessions[0]?.skipped_messages
  }
  await until(async () => (await skipped()) === 60_001, 'they are counted')
}, 120_000)

test('an offline session receives the message that cleared a retained message', async () => {
  const device = await aDevice(plant, node.port)
  {
    using before = await device.connect(kept)
    before.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic: `${device.topic}/#`, qos: 1 }] })
    await before.next('suback')
    await leave(before)
  }
  using publisher = await device.connect()
  const publish = { cmd: 'publish', topic: `${device.topic}/state`, qos: 1, dup: false, retain: true } as const
  publisher.send({ ...publish, payload: 'on', messageId: 1 })
  publisher.send({ ...publish, payload: '', messageId: 2 })
  await publisher.next('puback')
  await publisher.next('puback')
  using back = await device.connect(kept)
  expect((await back.next('publish')).payload.toString()).toBe('on')
  const second = await back.next('publish')
  expect([second.topic, second.payload.length]).toEqual([`${device.topic}/state`, 0])
})
