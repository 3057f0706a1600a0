/** SUBSCRIBE, delivery and what 5.0 adds to them (contract section 7.3; MQTT 5.0 sections 3.8, 3.3 and 4.8). */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { IPublishPacket, ISubscription } from 'mqtt-packet'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import type { Peer } from './peer.ts'
import type { Node } from './support.ts'
import { REVOKED_WITHIN_MS, aDevice, startNode } from './support.ts'

const plant = useWorld(() => startPlant())
let node: Node

beforeAll(async () => {
  node = await startNode(plant.api)
}, 60_000)
afterAll(async () => {
  await node.stop()
})

const PACK = '[{"n":"t","v":1}]'

async function subscribe(peer: Peer, topic: string, options: Partial<ISubscription> = {}, identifier?: number) {
  const properties = identifier === undefined ? {} : { properties: { subscriptionIdentifier: identifier } }
  peer.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos: 1, ...options }], ...properties })
  return (await peer.next('suback')).granted
}

async function publish(peer: Peer, topic: string, payload: string = PACK, more: Partial<IPublishPacket> = {}) {
  peer.send({ cmd: 'publish', topic, payload, qos: 1, dup: false, retain: false, messageId: 99, ...more })
  const { qos = 1 } = more
  if (qos === 1) await peer.next('puback')
  if (qos !== 2) return
  await peer.next('pubrec')
  peer.send({ cmd: 'pubrel', messageId: 99 })
  await peer.next('pubcomp')
}

/** A device and another that are connected to the same channel. */
async function two() {
  const sender = await aDevice(plant, node.port)
  const device = await plant.newDevice()
  await plant.connect(device, sender.channelId)
  const receiver = { ...sender, ...device }
  const connectReceiver: typeof sender.connect = async (more) =>
    await sender.connect({ ...more, username: device.id, password: Buffer.from(device.secret) })
  return { sender, receiver, connectReceiver, topic: sender.topic }
}

describe.each([4, 5] as const)('protocol level %i', (protocolVersion) => {
  test.each([
    [0, 0, 0],
    [1, 0, 0],
    [0, 1, 0],
    [1, 1, 1],
    [2, 1, 1],
    [1, 2, 1],
    [2, 2, 2],
  ] as const)('a message with QoS %i to a subscription with QoS %i is delivered with %i', async (qos, asked, got) => {
    const { sender, connectReceiver, topic } = await two()
    using receiver = await connectReceiver({ protocolVersion })
    expect(await subscribe(receiver, `${topic}/#`, { qos: asked })).toEqual([asked])
    using peer = await sender.connect({ protocolVersion })
    await publish(peer, `${topic}/a`, PACK, { qos })
    const message = await receiver.next('publish')
    expect({ topic: message.topic, qos: message.qos, payload: message.payload.toString() }).toEqual({
      topic: `${topic}/a`,
      qos: got,
      payload: PACK,
    })
    if (got === 1) receiver.send({ cmd: 'puback', messageId: message.messageId ?? 0 })
    if (got !== 2) return
    receiver.send({ cmd: 'pubrec', messageId: message.messageId ?? 0 })
    await receiver.next('pubrel')
    receiver.send({ cmd: 'pubcomp', messageId: message.messageId ?? 0 })
  })

  test('the topic of a delivery is in the form of the filter that matched', async () => {
    const { sender, connectReceiver, topic } = await two()
    using older = await connectReceiver({ protocolVersion })
    await subscribe(older, `channels/${sender.channelId}/messages/+/b`)
    using peer = await sender.connect({ protocolVersion })
    await publish(peer, `${topic}/a/b`)
    expect((await older.next('publish')).topic).toBe(`channels/${sender.channelId}/messages/a/b`)
  })

  test('overlapping filters deliver once, with the highest QoS', async () => {
    const { sender, connectReceiver, topic } = await two()
    using receiver = await connectReceiver({ protocolVersion })
    await subscribe(receiver, `${topic}/#`, { qos: 0 })
    await subscribe(receiver, `${topic}/a`, { qos: 1 })
    using peer = await sender.connect({ protocolVersion })
    await publish(peer, `${topic}/a`)
    await publish(peer, `${topic}/b`)
    await until(() => receiver.inbox.length >= 2, 'both messages')
    expect(receiver.inbox).toMatchObject([
      { cmd: 'publish', topic: `${topic}/a`, qos: 1 },
      { cmd: 'publish', topic: `${topic}/b`, qos: 0 },
    ])
  })

  test.each([
    ['a channel that is not connected', async () => `m/${plant.domainId}/c/${await plant.newChannel()}/#`, 0x87],
    ['a wildcard for the channel', () => `m/${plant.domainId}/c/+/x`, 0x8f],
    ['a wildcard for the domain', (topic: string) => topic.replace(plant.domainId, '+'), 0x8f],
    ['everything', () => '#', 0x8f],
    ['a wildcard inside an element', (topic: string) => `${topic}/a#`, 0x8f],
  ])('%s is refused for that filter alone', async (_what, filterOf, code) => {
    const device = await aDevice(plant, node.port)
    using peer = await device.connect({ protocolVersion })
    const subscriptions = [
      { topic: await filterOf(device.topic), qos: 1 as const },
      { topic: device.topic, qos: 1 as const },
    ]
    peer.send({ cmd: 'subscribe', messageId: 5, subscriptions })
    const { granted } = await peer.next('suback')
    expect(granted).toEqual([protocolVersion === 5 ? code : 0x80, 1])
  })

  test('nothing is delivered after UNSUBACK, and a missing filter is reported in 5.0', async () => {
    const { sender, connectReceiver, topic } = await two()
    using receiver = await connectReceiver({ protocolVersion })
    await subscribe(receiver, `${topic}/#`)
    receiver.send({ cmd: 'unsubscribe', messageId: 6, unsubscriptions: [`${topic}/#`, `${topic}/never`] })
    const { granted } = await receiver.next('unsuback')
    if (protocolVersion === 5) expect(granted).toEqual([0, 0x11])
    await subscribe(receiver, `${topic}/end`)
    using peer = await sender.connect({ protocolVersion })
    await publish(peer, `${topic}/a`)
    await publish(peer, `${topic}/end`)
    expect((await receiver.next('publish')).topic).toBe(`${topic}/end`)
  })
})

test('a session has at most 1,000 subscriptions, those of one packet included', async () => {
  const { sender, topic } = await two()
  using peer = await sender.connect({ protocolVersion: 5 })
  const filters = Array.from({ length: 1005 }, (_, index) => ({ topic: `${topic}/s${index}`, qos: 0 as const }))
  peer.send({ cmd: 'subscribe', messageId: 1, subscriptions: [...filters, { topic: `${topic}/s0`, qos: 0 }] })
  const { granted } = await peer.next('suback')
  expect(granted.slice(0, 1000).every((code) => code === 0)).toBe(true)
  // Quota exceeded; the repeated filter has its place already.
  expect(granted.slice(1000)).toEqual([0x97, 0x97, 0x97, 0x97, 0x97, 0])
})

test('a message from HTTP reaches subscribers of MQTT, and one from MQTT a reader of HTTP', async () => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect()
  await subscribe(peer, `${device.topic}/#`)
  const response = await plant.api.as(`Client ${device.secret}`)('POST', `/${device.topic}/from/http`, PACK, {
    'content-type': 'application/senml+json',
  })
  expect(response.status).toBe(202)
  expect(await peer.next('publish')).toMatchObject({ topic: `${device.topic}/from/http`, qos: 1 })
})

test('messages of one publisher are delivered in order', async () => {
  const { sender, connectReceiver, topic } = await two()
  using receiver = await connectReceiver()
  await subscribe(receiver, `${topic}/#`)
  using peer = await sender.connect()
  const count = 300
  for (let messageId = 1; messageId <= count; messageId++)
    peer.send({ cmd: 'publish', topic, payload: `${messageId}`, qos: 1, dup: false, retain: false, messageId })
  const seen: string[] = []
  while (seen.length < count) {
    const message = await receiver.next('publish')
    seen.push(message.payload.toString())
    receiver.send({ cmd: 'puback', messageId: message.messageId ?? 0 })
  }
  expect(seen).toEqual(Array.from({ length: count }, (_, index) => `${index + 1}`))
})

test('the receive maximum of the client limits the messages in flight to it', async () => {
  const { sender, connectReceiver, topic } = await two()
  using receiver = await connectReceiver({ protocolVersion: 5, properties: { receiveMaximum: 2 } })
  await subscribe(receiver, `${topic}/#`)
  using peer = await sender.connect()
  for (let index = 0; index < 5; index++) await publish(peer, topic, `${index}`)
  const first = await receiver.next('publish')
  await receiver.next('publish')
  receiver.send({ cmd: 'pingreq' })
  await receiver.next('pingresp')
  expect(receiver.inbox).toEqual([])
  receiver.send({ cmd: 'puback', messageId: first.messageId ?? 0 })
  expect((await receiver.next('publish')).payload.toString()).toBe('2')
})

test('properties of a message are delivered unchanged and in order, with the rest of its expiry', async () => {
  const { sender, connectReceiver, topic } = await two()
  using receiver = await connectReceiver({ protocolVersion: 5 })
  await subscribe(receiver, `${topic}/#`, {}, 42)
  using peer = await sender.connect({ protocolVersion: 5 })
  const properties = {
    payloadFormatIndicator: true,
    contentType: 'application/x',
    responseTopic: `${topic}/answers`,
    correlationData: Buffer.from([1, 2, 3]),
    userProperties: { b: ['1', '2'], a: '3' },
    messageExpiryInterval: 100,
  }
  await publish(peer, topic, PACK, { properties })
  const { properties: got = {} } = await receiver.next('publish')
  const { messageExpiryInterval, subscriptionIdentifier, ...rest } = got
  expect(rest).toEqual({
    payloadFormatIndicator: true,
    contentType: 'application/x',
    responseTopic: `${topic}/answers`,
    correlationData: Buffer.from([1, 2, 3]),
    userProperties: { b: ['1', '2'], a: '3' },
  })
  expect(subscriptionIdentifier).toBe(42)
  expect(messageExpiryInterval).toBeGreaterThan(90)
  using older = await connectReceiver({ clientId: 'older' })
  await subscribe(older, `${topic}/#`)
  await publish(peer, topic, PACK, { properties })
  expect((await older.next('publish')).properties).toBeUndefined()
})

test('no local excludes the own messages of a client, and those of others are delivered', async () => {
  const { sender, connectReceiver, topic } = await two()
  using peer = await sender.connect({ protocolVersion: 5, clientId: 'local' })
  await subscribe(peer, `${topic}/#`, { nl: true })
  await publish(peer, `${topic}/own`)
  using other = await connectReceiver({ protocolVersion: 5 })
  await publish(other, `${topic}/other`)
  expect((await peer.next('publish')).topic).toBe(`${topic}/other`)
})

test('each message of a shared subscription goes to one of its members', async () => {
  const { sender, connectReceiver, topic } = await two()
  using one = await connectReceiver({ protocolVersion: 5, clientId: 'one' })
  using other = await connectReceiver({ protocolVersion: 5, clientId: 'other' })
  for (const member of [one, other]) expect(await subscribe(member, `$share/g/${topic}/#`)).toEqual([1])
  using all = await connectReceiver({ protocolVersion: 5, clientId: 'all' })
  await subscribe(all, `${topic}/#`)
  using peer = await sender.connect()
  for (let index = 0; index < 10; index++) await publish(peer, topic, `${index}`)
  const of = (member: Peer) =>
    member.inbox.flatMap((packet) => (packet.cmd === 'publish' ? [packet.payload.toString()] : []))
  await until(() => of(one).length + of(other).length === 10 && of(all).length === 10, 'all messages')
  expect([...of(one), ...of(other)].toSorted()).toEqual(of(all).toSorted())
  expect(of(one)).toHaveLength(5)
})

test('a malformed shared subscription is refused, and no local on one is a protocol error', async () => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect({ protocolVersion: 5 })
  expect(await subscribe(peer, '$share/g')).toEqual([0x8f])
  expect(await subscribe(peer, `$share/+/${device.topic}`)).toEqual([0x8f])
  peer.send({
    cmd: 'subscribe',
    messageId: 2,
    subscriptions: [{ topic: `$share/g/${device.topic}`, qos: 1, nl: true }],
  })
  expect((await peer.next('disconnect')).reasonCode).toBe(0x82)
})

describe('retained messages', () => {
  test('the last one is sent to a new subscription with the flag, and an empty one clears it', async () => {
    const { sender, connectReceiver, topic } = await two()
    using peer = await sender.connect()
    await publish(peer, `${topic}/r`, 'first', { retain: true })
    await publish(peer, `${topic}/r`, 'second', { retain: true })
    using receiver = await connectReceiver()
    await subscribe(receiver, `${topic}/+`)
    expect(await receiver.next('publish')).toMatchObject({ topic: `${topic}/r`, retain: true, qos: 1 })
    await publish(peer, `${topic}/r`, 'third', { retain: true })
    expect(await receiver.next('publish')).toMatchObject({ retain: false })
    peer.send({
      cmd: 'publish',
      topic: `${topic}/r`,
      payload: 'fourth',
      qos: 1,
      dup: false,
      retain: true,
      messageId: 1,
    })
    peer.send({ cmd: 'publish', topic: `${topic}/r`, payload: '', qos: 1, dup: false, retain: true, messageId: 2 })
    await peer.next('puback')
    await peer.next('puback')
    using late = await connectReceiver({ clientId: 'late' })
    await subscribe(late, `${topic}/+`)
    await publish(peer, `${topic}/end`)
    expect((await late.next('publish')).topic).toBe(`${topic}/end`)
    const listed = await plant.owner.call('GET', `/${plant.domainId}/channels/${sender.channelId}/retained`)
    expect(listed.json()).toMatchObject({ total: 0, messages: [] })
  })

  test('an empty one is sent to current subscribers of any protocol, and stored nowhere [MQTT-3.3.1-10]', async () => {
    const device = await aDevice(plant, node.port)
    using subscriber = await device.connect()
    subscriber.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic: `${device.topic}/#`, qos: 1 }] })
    await subscriber.next('suback')
    const topic = `${device.topic}/state`
    subscriber.send({ cmd: 'publish', topic, payload: 'on', qos: 1, messageId: 7, dup: false, retain: true })
    subscriber.send({ cmd: 'publish', topic, payload: '', qos: 2, messageId: 8, dup: false, retain: true })
    await subscriber.next('pubrec')
    expect((await subscriber.next('publish')).payload.toString()).toBe('on')
    const cleared = await subscriber.next('publish')
    expect([cleared.topic, cleared.payload.length, cleared.retain]).toEqual([topic, 0, false])
    expect(await device.stored('raw')).toHaveLength(1)
    using late = await device.connect()
    late.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic, qos: 1 }] })
    await late.next('suback')
    late.send({ cmd: 'publish', topic, payload: 'end', qos: 1, messageId: 1, dup: false, retain: false })
    expect((await late.next('publish')).payload.toString()).toBe('end')
  })

  test('one that replaces another has its own expiry [MQTT-3.3.2-5]', async () => {
    const { sender, connectReceiver, topic } = await two()
    using peer = await sender.connect({ protocolVersion: 5 })
    const expiring = { retain: true, properties: { messageExpiryInterval: 1 } }
    await publish(peer, `${topic}/kept`, 'expires', expiring)
    await publish(peer, `${topic}/kept`, 'stays', { retain: true })
    await publish(peer, `${topic}/gone`, 'stays', { retain: true })
    await publish(peer, `${topic}/gone`, 'expires', expiring)
    const published = Date.now()
    await until(() => Date.now() - published > 1000, 'a second is over')
    using receiver = await connectReceiver({ protocolVersion: 5 })
    await subscribe(receiver, `${topic}/+`)
    await publish(peer, `${topic}/end`)
    const first = await receiver.next('publish')
    expect([first.topic, first.payload.toString()]).toEqual([`${topic}/kept`, 'stays'])
    expect((await receiver.next('publish')).topic).toBe(`${topic}/end`)
  })

  test('retain handling and retain as published are obeyed', async () => {
    const { sender, connectReceiver, topic } = await two()
    using peer = await sender.connect({ protocolVersion: 5 })
    await publish(peer, `${topic}/r`, 'kept', { retain: true })
    using never = await connectReceiver({ protocolVersion: 5, clientId: 'never' })
    await subscribe(never, `${topic}/#`, { rh: 2, rap: true })
    using once = await connectReceiver({ protocolVersion: 5, clientId: 'once' })
    await subscribe(once, `${topic}/#`, { rh: 1 })
    expect((await once.next('publish')).retain).toBe(true)
    await subscribe(once, `${topic}/#`, { rh: 1 })
    await publish(peer, `${topic}/r`, 'live', { retain: true })
    expect(await never.next('publish')).toMatchObject({ retain: true })
    expect(await once.next('publish')).toMatchObject({ retain: false })
    expect(once.inbox).toEqual([])
  })

  test('are listed and deleted over HTTP', async () => {
    const { sender, topic } = await two()
    using peer = await sender.connect()
    for (const name of ['a', 'b', 'c']) await publish(peer, `${topic}/${name}`, name, { retain: true })
    const path = `/${plant.domainId}/channels/${sender.channelId}/retained`
    const listed = async () =>
      (await plant.owner.call('GET', path)).json<{ total: number; messages: { subtopic: string }[] }>()
    expect((await listed()).messages.map(({ subtopic }) => subtopic)).toEqual(['a', 'b', 'c'])
    expect((await plant.owner.call('DELETE', `${path}?subtopic=b`)).status).toBe(204)
    expect((await listed()).messages.map(({ subtopic }) => subtopic)).toEqual(['a', 'c'])
    expect((await plant.owner.call('DELETE', path)).status).toBe(204)
    expect((await listed()).total).toBe(0)
    const stranger = await plant.api.newUser()
    expect((await stranger.call('GET', path)).status).toBe(403)
    expect((await stranger.call('DELETE', path)).status).toBe(403)
  })
})

test('a client that is disconnected from the channel loses its subscription and its connection within a second', async () => {
  const { sender, receiver, connectReceiver, topic } = await two()
  using peer = await connectReceiver({ protocolVersion: 5, clientId: 'cut', clean: false })
  await subscribe(peer, `${topic}/#`)
  const body = { client_ids: [receiver.id], channel_ids: [sender.channelId], types: ['publish', 'subscribe'] }
  expect((await plant.owner.call('POST', `/${plant.domainId}/channels/disconnect`, body)).status).toBe(204)
  expect((await peer.next('disconnect', REVOKED_WITHIN_MS)).reasonCode).toBe(0x87)
  using again = await connectReceiver({ protocolVersion: 5, clientId: 'cut', clean: false })
  expect(await subscribe(again, `${topic}/#`)).toEqual([0x87])
})
