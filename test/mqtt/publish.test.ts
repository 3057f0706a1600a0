/** PUBLISH of a client (contract sections 7.3 and 7.6): stored before it is acknowledged, in its order, refused with a reason. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { IPublishPacket } from 'mqtt-packet'
import { sql } from '#core/sql.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { DOMAIN_ROUTE, startPlant } from '../messages/support.ts'
import type { Node } from './support.ts'
import { MAX_PACKET_BYTES, aDevice, startNode } from './support.ts'

const plant = useWorld(() => startPlant())
let node: Node

beforeAll(async () => {
  node = await startNode(plant.api)
}, 60_000)
afterAll(async () => {
  await node.stop()
})

const PACK = '[{"n":"temperature","u":"Cel","v":21.5}]'

const publish = (topic: string, payload: string | Buffer, more: Partial<IPublishPacket> = {}): IPublishPacket => ({
  cmd: 'publish',
  topic,
  payload,
  qos: 1,
  dup: false,
  retain: false,
  messageId: 1,
  ...more,
})

describe.each([4, 5] as const)('protocol level %i', (protocolVersion) => {
  test('PUBACK comes after the commit: the record is in the next read', async () => {
    const device = await aDevice(plant, node.port)
    using peer = await device.connect({ protocolVersion })
    peer.send(publish(device.topic, PACK))
    expect((await peer.next('puback')).messageId).toBe(1)
    expect(await device.stored()).toMatchObject([{ name: 'temperature', value: 21.5, protocol: 'mqtt' }])
  })

  test('QoS 2 is stored once, however often it is sent before its PUBREL', async () => {
    const device = await aDevice(plant, node.port)
    using peer = await device.connect({ protocolVersion, clientId: 'two', clean: false })
    peer.send(publish(device.topic, PACK, { qos: 2, messageId: 7 }))
    peer.send(publish(device.topic, PACK, { qos: 2, messageId: 7, dup: true }))
    await peer.next('pubrec')
    await peer.next('pubrec')
    peer.send(publish(device.topic, PACK, { qos: 2, messageId: 7, dup: true }))
    await peer.next('pubrec')
    peer.send({ cmd: 'pubrel', messageId: 7 })
    await peer.next('pubcomp')
    expect(await device.stored()).toHaveLength(1)
    peer.send(publish(device.topic, PACK, { qos: 2, messageId: 7 }))
    await peer.next('pubrec')
    expect(await device.stored()).toHaveLength(2)
  })

  test('the identifier of a QoS 2 message stays in use over reconnections until PUBREL', async () => {
    const device = await aDevice(plant, node.port)
    const options = { protocolVersion, clientId: 'kept', clean: false } as const
    const properties = protocolVersion === 5 ? { properties: { sessionExpiryInterval: 100 } } : {}
    {
      using peer = await device.connect({ ...options, ...properties })
      peer.send(publish(device.topic, PACK, { qos: 2, messageId: 9 }))
      await peer.next('pubrec')
    }
    using again = await device.connect({ ...options, ...properties })
    expect(again.connack.sessionPresent).toBe(true)
    again.send(publish(device.topic, PACK, { qos: 2, messageId: 9, dup: true }))
    await again.next('pubrec')
    again.send({ cmd: 'pubrel', messageId: 9 })
    await again.next('pubcomp')
    expect(await device.stored()).toHaveLength(1)
  })

  test('PUBREL for an unknown identifier is completed', async () => {
    const device = await aDevice(plant, node.port)
    using peer = await device.connect({ protocolVersion })
    peer.send({ cmd: 'pubrel', messageId: 77 })
    const { messageId, reasonCode } = await peer.next('pubcomp')
    expect({ messageId, reasonCode }).toEqual({ messageId: 77, reasonCode: protocolVersion === 5 ? 0x92 : undefined })
  })

  test('a burst is acknowledged in the order of its packets, whatever their QoS [MQTT-4.6.0-2]', async () => {
    const device = await aDevice(plant, node.port)
    using peer = await device.connect({ protocolVersion })
    const ids = Array.from({ length: 500 }, (_, index) => index + 1)
    for (const messageId of ids) {
      const body = `[{"n":"v","v":${messageId},"t":${1_700_000_000 + messageId}}]`
      peer.send(publish(device.topic, body, { messageId, qos: messageId % 3 === 0 ? 2 : 1 }))
    }
    const answers = () => peer.inbox.filter(({ cmd }) => cmd === 'puback' || cmd === 'pubrec')
    await until(() => answers().length === ids.length, 'all are acknowledged')
    expect(answers().map(({ messageId }) => messageId)).toEqual(ids)
    expect((await device.stored()).map(({ value }) => value)).toEqual(ids)
  })
})

test('a valid pack is SenML, other JSON is JSON, anything else raw: no content is refused', async () => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect()
  const bodies = [PACK, '{"a":1}', '[{"n":', Buffer.from([0, 255, 1])]
  for (const [index, body] of bodies.entries()) {
    peer.send(publish(`${device.topic}/x`, body, { messageId: index + 1 }))
    await peer.next('puback')
  }
  expect(await device.stored()).toHaveLength(1)
  expect(await device.stored('x')).toMatchObject([{ payload: { a: 1 } }])
  expect(await device.stored('raw')).toMatchObject([
    { payload: Buffer.from('[{"n":').toString('base64'), subtopic: 'x' },
    { payload: Buffer.from([0, 255, 1]).toString('base64') },
  ])
})

test('content that resembles SenML or JSON but is stored in another format is counted, and the owner sees the last reason', async () => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect()
  const shown = async () => {
    const path = `/${plant.domainId}/journal/client/${device.id}/telemetry`
    const {
      unparsed_messages: messages,
      last_error: error,
      last_error_at: at,
    } = (await plant.owner.call('GET', path)).json<{
      unparsed_messages: number
      last_error: string
      last_error_at: string
    }>()
    return { messages, error, at }
  }
  const send = async (payload: string | Buffer) => {
    peer.send(publish(device.topic, payload))
    await peer.next('puback')
  }
  // What is meant to be nothing else.
  for (const payload of [PACK, '{"on":true}', '[{"on":true}]', 'on', '', '21.5', Buffer.from([0x81, 0xff, 0x00])])
    await send(payload)
  expect(await shown()).toEqual({ messages: 0, error: '', at: '0001-01-01T00:00:00Z' })
  const begun = new Date().toISOString()
  await send('[{"n":"t","v":21.5},]')
  await until(async () => (await shown()).messages === 1, 'it is counted')
  expect((await shown()).error).toMatch(/^stored as bytes, not as JSON: .*JSON/)
  await send(' {"n":"t",\u0000 "v":')
  await send('[{"n":"t","u":"Cel","v":"warm"}]')
  await until(async () => (await shown()).messages === 3, 'they are counted')
  const { error, at } = await shown()
  expect(error).toMatch(/^stored as JSON, not as SenML: .*\/0\/v/)
  expect([at >= begun, at <= new Date(Date.now() + 1000).toISOString()]).toEqual([true, true])
  expect((await device.stored('raw')).length).toBe(6)
})

test('both forms of topics and the route of the domain name the same stream', async () => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect()
  const topics = [
    `m/${plant.domainId}/c/${device.channelId}/a/b`,
    `m/${DOMAIN_ROUTE}/c/${device.channelId}/a/b`,
    `channels/${device.channelId}/messages/a/b`,
    `channels/${device.channelId}/messages/a.b`,
    `channels/${device.channelId}/messages//a//b/`,
  ]
  for (const [index, topic] of topics.entries()) {
    peer.send(publish(topic, PACK, { messageId: index + 1 }))
    await peer.next('puback')
  }
  expect((await device.stored()).map(({ subtopic }) => subtopic)).toEqual(topics.map(() => 'a.b'))
})

describe('publishing without permission', () => {
  const TOPICS = [
    ['a topic of no form', () => 'somewhere/else', 0x90],
    ['a channel that is not connected', async () => `channels/${await plant.newChannel()}/messages`, 0x87],
    ['an unknown channel', () => 'm/nowhere/c/unknown', 0x87],
    ['white space in the subtopic', (topic: string) => `${topic}/a b`, 0x90],
  ] as const

  test.each(TOPICS)(
    '%s: 5.0 gets the reason in PUBACK and PUBREC, and the connection continues',
    async (_what, topicOf, reasonCode) => {
      const device = await aDevice(plant, node.port)
      using peer = await device.connect({ protocolVersion: 5 })
      peer.send(publish(await topicOf(device.topic), PACK))
      expect((await peer.next('puback')).reasonCode).toBe(reasonCode)
      peer.send(publish(await topicOf(device.topic), PACK, { qos: 2 }))
      expect((await peer.next('pubrec')).reasonCode).toBe(reasonCode)
      peer.send(publish(device.topic, PACK))
      expect((await peer.next('puback')).reasonCode ?? 0).toBe(0)
    },
  )

  test('ends an exchange of QoS 2 with PUBREC: PUBREL finds none, and the identifier names a new message', async () => {
    const device = await aDevice(plant, node.port)
    using peer = await device.connect({ protocolVersion: 5 })
    const [channelId, messageId] = [await plant.newChannel(), 7]
    const forbidden = `channels/${channelId}/messages`
    const refuse = async (dup: boolean) => {
      peer.send(publish(forbidden, PACK, { qos: 2, messageId, dup }))
      expect(await peer.next('pubrec')).toMatchObject({ messageId, reasonCode: 0x87 })
    }
    await refuse(false)
    // Section 4.3.3: nothing is kept of it, so that a repetition is judged again.
    await refuse(true)
    for (let copy = 0; copy < 2; copy++) {
      peer.send({ cmd: 'pubrel', messageId })
      expect(await peer.next('pubcomp')).toMatchObject({ messageId, reasonCode: 0x92 })
    }
    // Without PUBREL between them too.
    await refuse(false)
    peer.send(publish(device.topic, PACK, { qos: 2, messageId }))
    expect(await peer.next('pubrec')).toMatchObject({ messageId, reasonCode: 0 })
    peer.send({ cmd: 'pubrel', messageId })
    expect(await peer.next('pubcomp')).toMatchObject({ messageId, reasonCode: 0 })
    expect(await device.stored()).toHaveLength(1)
    const { total } = (await plant.owner.call('GET', `/m/${plant.domainId}/c/${channelId}`)).json<{ total: number }>()
    expect(total).toBe(0)
  })

  test('ends an exchange of QoS 2 that counts against the receive maximum', async () => {
    const device = await aDevice(plant, node.port)
    using peer = await device.connect({ protocolVersion: 5 })
    const forbidden = `channels/${await plant.newChannel()}/messages`
    const maximum = peer.connack.properties?.receiveMaximum ?? 0
    // Together more than the maximum, and never as many at once.
    for (let round = 0; round < 3; round++) {
      const count = Math.ceil(maximum / 2)
      for (let index = 1; index <= count; index++)
        peer.send(publish(forbidden, PACK, { qos: 2, messageId: round * count + index }))
      await until(() => peer.inbox.length === count, 'all are refused')
      expect(peer.inbox.every((packet) => packet.cmd === 'pubrec' && packet.reasonCode === 0x87)).toBe(true)
      peer.inbox.length = 0
    }
  })

  test.each(TOPICS)(
    '%s with QoS 0: 5.0 is disconnected with the reason, because there is no acknowledgement',
    async (_what, topicOf, reasonCode) => {
      const device = await aDevice(plant, node.port)
      using peer = await device.connect({ protocolVersion: 5 })
      peer.send(publish(await topicOf(device.topic), PACK, { qos: 0 }))
      expect((await peer.next('disconnect')).reasonCode).toBe(reasonCode)
      await peer.closed()
    },
  )

  test.each(TOPICS)('%s: 3.1.1 is closed without a PUBACK', async (_what, topicOf) => {
    const device = await aDevice(plant, node.port)
    using peer = await device.connect()
    peer.send(publish(await topicOf(device.topic), PACK))
    await peer.closed()
    expect(peer.inbox).toEqual([])
  })
})

test('a packet above the limit is refused with 0x95 before its content arrives', async () => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect({ protocolVersion: 5 })
  peer.send(Buffer.from([0x32, 0xff, 0xff, 0xff, 0x7f]))
  expect((await peer.next('disconnect')).reasonCode).toBe(0x95)
  expect(peer.connack.properties?.maximumPacketSize).toBe(MAX_PACKET_BYTES)
})

test('topic aliases are replaced by their topics; an unknown one, or one above the maximum, is an error', async () => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect({ protocolVersion: 5 })
  peer.send(publish(`${device.topic}/al`, PACK, { properties: { topicAlias: 3 } }))
  await peer.next('puback')
  peer.send(publish('', PACK, { properties: { topicAlias: 3 }, messageId: 2 }))
  await peer.next('puback')
  expect((await device.stored()).map(({ subtopic }) => subtopic)).toEqual(['al', 'al'])
  peer.send(publish('', PACK, { properties: { topicAlias: 4 }, messageId: 2 }))
  expect((await peer.next('disconnect')).reasonCode).toBe(0x82)
  using other = await device.connect({ protocolVersion: 5 })
  other.send(publish(device.topic, PACK, { properties: { topicAlias: 101 } }))
  expect((await other.next('disconnect')).reasonCode).toBe(0x94)
})

test('while messages cannot be stored the socket is not read, and all are stored in order afterwards', async () => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect()
  peer.send(publish(device.topic, '[{"n":"v","v":0,"t":1700000000}]', { messageId: 1000 }))
  await peer.next('puback')
  const lock = await plant.api.database.dedicated('a lock of the test')
  try {
    await lock.query('BEGIN; LOCK TABLE ingest_batches IN ACCESS EXCLUSIVE MODE')
    for (let messageId = 1; messageId <= 50; messageId++) {
      const body = `[{"n":"v","v":${messageId},"t":${1_700_000_000 + messageId}}]`
      peer.send(publish(device.topic, body, { messageId }))
    }
    peer.send({ cmd: 'pingreq' })
    await peer.next('pingresp')
    expect(peer.inbox).toEqual([])
  } finally {
    await lock.query('ROLLBACK')
    await lock.end()
  }
  await until(() => peer.inbox.length === 50, 'all are acknowledged')
  expect((await device.stored()).map(({ value }) => value)).toEqual(Array.from({ length: 51 }, (_, index) => index))
})

test('more messages with QoS 1 than the receive maximum that wait for their commit end a connection of 5.0 (section 4.9)', async () => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect({ protocolVersion: 5 })
  using older = await device.connect({ protocolVersion: 4, clientId: 'older' })
  const maximum = peer.connack.properties?.receiveMaximum ?? 0
  const lock = await plant.api.database.dedicated('a lock of the test')
  try {
    await lock.query('BEGIN; LOCK TABLE ingest_batches IN ACCESS EXCLUSIVE MODE')
    for (let messageId = 1; messageId <= maximum; messageId++) {
      peer.send(publish(device.topic, PACK, { messageId }))
      older.send(publish(device.topic, PACK, { messageId }))
    }
    older.send(publish(device.topic, PACK, { messageId: maximum + 1 }))
    peer.send(publish(device.topic, PACK, { messageId: maximum + 1 }))
    expect((await peer.next('disconnect')).reasonCode).toBe(0x93)
  } finally {
    await lock.query('ROLLBACK')
    await lock.end()
  }
  await until(() => older.inbox.length === maximum + 1, 'all are acknowledged')
})

test('the properties of MQTT messages are stored once per batch, and not at all if there are none', async () => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect()
  peer.send(publish(device.topic, PACK))
  await peer.next('puback')
  const count = async () =>
    (await sql<{ count: number }>`SELECT count(envelopes) AS count FROM ingest_batches`.execute(plant.api.database.db))
      .rows[0]?.count ?? 0
  const before = await count()
  peer.send(publish(device.topic, PACK, { messageId: 2 }))
  await peer.next('puback')
  expect(await count()).toBe(before)
  peer.send(publish(device.topic, PACK, { messageId: 3, qos: 2 }))
  await peer.next('pubrec')
  expect(await count()).toBe(before + 1)
})
