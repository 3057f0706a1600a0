/** Sessions (contract section 7.3; MQTT 5.0 section 4.1): kept without a connection, over restarts, on every node; wills. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { IPublishPacket } from 'mqtt-packet'
import type { TestApi } from '../harness/api.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import type { Connecting, Peer } from './peer.ts'
import { publish, receive, subscribe } from './peer.ts'
import type { Node } from './support.ts'
import { REVOKED_WITHIN_MS, aDevice, anotherProcess, leave, startNode } from './support.ts'

const plant = useWorld(() => startPlant())
let otherApi: TestApi
let node: Node
let other: Node

beforeAll(async () => {
  otherApi = await anotherProcess(plant)
  node = await startNode(plant.api)
  other = await startNode(otherApi)
}, 60_000)
afterAll(async () => {
  await other.stop()
  await node.stop()
  await otherApi[Symbol.asyncDispose]()
})

const KEPT: Record<4 | 5, Connecting> = {
  4: { protocolVersion: 4, clean: false },
  5: { protocolVersion: 5, clean: false, properties: { sessionExpiryInterval: 1000 } },
}

/** Acknowledges everything that comes, until so many messages were there. */
async function receiveAll(peer: Peer, count: number): Promise<string[]> {
  const seen: string[] = []
  while (seen.length < count) seen.push(await receive(peer))
  return seen
}

describe.each([4, 5] as const)('protocol level %i', (version) => {
  test('messages that arrive while the client is offline are delivered in order when it is back', async () => {
    const device = await aDevice(plant, node.port)
    {
      using peer = await device.connect({ ...KEPT[version], clientId: 'away' })
      await subscribe(peer, `${device.topic}/#`)
      await leave(peer)
    }
    using sender = await device.connect({ clientId: 'sender' })
    for (let index = 0; index < 5; index++) await publish(sender, `${device.topic}/a`, `${index}`)
    using back = await device.connect({ ...KEPT[version], clientId: 'away' })
    expect(back.connack.sessionPresent).toBe(true)
    expect(await receiveAll(back, 5)).toEqual(['0', '1', '2', '3', '4'])
    await publish(sender, `${device.topic}/a`, 'live')
    expect(await receiveAll(back, 1)).toEqual(['live'])
    expect(back.inbox).toEqual([])
  })

  test('unacknowledged messages are sent again with their identifiers and the DUP flag [MQTT-4.4.0-1]', async () => {
    const device = await aDevice(plant, node.port)
    using sender = await device.connect({ clientId: 'sender' })
    let first: IPublishPacket
    {
      using peer = await device.connect({ ...KEPT[version], clientId: 'away' })
      await subscribe(peer, `${device.topic}/#`)
      await publish(sender, device.topic, 'unacknowledged')
      first = await peer.next('publish')
      peer.socket.destroy()
    }
    await publish(sender, device.topic, 'later')
    using back = await device.connect({ ...KEPT[version], clientId: 'away' })
    const again = await back.next('publish')
    expect({ ...again, dup: first.dup }).toEqual(first)
    expect(again.dup).toBe(true)
    expect((await back.next('publish')).payload.toString()).toBe('later')
  })

  test('QoS 2: after PUBREC only PUBREL is repeated, before it the message', async () => {
    const device = await aDevice(plant, node.port)
    using sender = await device.connect({ clientId: 'sender' })
    {
      using peer = await device.connect({ ...KEPT[version], clientId: 'away' })
      await subscribe(peer, `${device.topic}/#`, 2)
      await publish(sender, device.topic, 'one', { qos: 2 })
      await publish(sender, device.topic, 'two', { qos: 2 })
      const one = await peer.next('publish')
      await peer.next('publish')
      peer.send({ cmd: 'pubrec', messageId: one.messageId ?? 0 })
      await peer.next('pubrel')
      peer.socket.destroy()
    }
    using back = await device.connect({ ...KEPT[version], clientId: 'away' })
    const { messageId } = await back.next('pubrel')
    const message = await back.next('publish')
    expect(message).toMatchObject({ dup: true, qos: 2 })
    expect(message.payload.toString()).toBe('two')
    back.send({ cmd: 'pubcomp', messageId: messageId ?? 0 })
    back.send({ cmd: 'pubrec', messageId: message.messageId ?? 0 })
    await back.next('pubrel')
    back.send({ cmd: 'pubcomp', messageId: message.messageId ?? 0 })
    back.send({ cmd: 'pingreq' })
    await back.next('pingresp')
    expect(back.inbox).toEqual([])
  })

  test('another node takes over the whole session, and the first one closes its connection', async () => {
    const device = await aDevice(plant, node.port)
    using peer = await device.connect({ ...KEPT[version], clientId: 'moving' })
    await subscribe(peer, `${device.topic}/#`)
    using sender = await device.connect({ clientId: 'sender' })
    await publish(sender, device.topic, 'unacknowledged')
    await peer.next('publish')
    using moved = await device.connect({ ...KEPT[version], clientId: 'moving' }, other.port)
    expect(moved.connack.sessionPresent).toBe(true)
    await peer.closed()
    expect(await receiveAll(moved, 1)).toEqual(['unacknowledged'])
    await publish(sender, device.topic, 'live')
    expect(await receiveAll(moved, 1)).toEqual(['live'])
  })
})

test('a clean session ends with its connection, and deletes the stored session', async () => {
  const device = await aDevice(plant, node.port)
  {
    using kept = await device.connect({ clean: false, clientId: 'c' })
    await subscribe(kept, `${device.topic}/#`)
    await leave(kept)
  }
  {
    using clean = await device.connect({ clean: true, clientId: 'c' })
    expect(clean.connack.sessionPresent).toBe(false)
    await leave(clean)
  }
  using after = await device.connect({ clean: false, clientId: 'c' })
  expect(after.connack.sessionPresent).toBe(false)
})

test('a session of 5.0 ends after its expiry, which DISCONNECT may shorten', async () => {
  const device = await aDevice(plant, node.port)
  const sessions = async () =>
    (await plant.owner.call('GET', `/${plant.domainId}/clients/${device.id}/sessions`)).json<{ total: number }>().total
  using peer = await device.connect({ ...KEPT[5], clientId: 'short' })
  expect(await sessions()).toBe(1)
  peer.send({ cmd: 'disconnect', reasonCode: 0, properties: { sessionExpiryInterval: 1 } })
  await peer.closed()
  await until(async () => (await sessions()) === 0, 'the session is over')
  using raised = await device.connect({ protocolVersion: 5, clientId: 'raised' })
  raised.send({ cmd: 'disconnect', reasonCode: 0, properties: { sessionExpiryInterval: 10 } })
  expect((await raised.next('disconnect')).reasonCode).toBe(0x82)
})

test('a disabled client loses its connections and its sessions on every node', async () => {
  const device = await aDevice(plant, node.port)
  using here = await device.connect({ ...KEPT[5], clientId: 'here' })
  using there = await device.connect({ ...KEPT[5], clientId: 'there' }, other.port)
  for (const peer of [here, there]) await subscribe(peer, `${device.topic}/#`)
  expect(await device.connections()).toBe(2)
  expect((await plant.owner.call('POST', `/${plant.domainId}/clients/${device.id}/disable`)).status).toBe(200)
  for (const peer of [here, there]) {
    expect((await peer.next('disconnect', REVOKED_WITHIN_MS)).reasonCode).toBe(0x87)
    await peer.closed()
  }
  await until(async () => (await device.connections()) === 0, 'its sessions are gone', REVOKED_WITHIN_MS)
})

test('sessions are listed with their subscriptions', async () => {
  const device = await aDevice(plant, node.port)
  using peer = await device.connect({ ...KEPT[5], clientId: 'listed' })
  await subscribe(peer, `${device.topic}/#`, 2)
  const path = `/${plant.domainId}/clients/${device.id}/sessions`
  expect((await plant.owner.call('GET', path)).json()).toMatchObject({
    total: 1,
    sessions: [
      {
        client_identifier: 'listed',
        connected: true,
        protocol_version: 5,
        expiry_seconds: 1000,
        subscriptions: [{ filter: `${device.topic}/#`, qos: 2 }],
      },
    ],
  })
  const stranger = await plant.api.newUser()
  expect((await stranger.call('GET', path)).status).toBe(403)
})

test('the changes of a session are in the journal of its client', async () => {
  const device = await aDevice(plant, node.port)
  {
    using peer = await device.connect({ clientId: 'seen' })
    peer.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic: `${device.topic}/#`, qos: 1 }] })
    await peer.next('suback')
    peer.send({ cmd: 'unsubscribe', messageId: 2, unsubscriptions: [`${device.topic}/#`] })
    await peer.next('unsuback')
    // Another connection takes the session over: the first one ends by that.
    using other = await device.connect({ clientId: 'seen' })
    await peer.closed()
    other.send({ cmd: 'disconnect' })
    await other.closed()
  }
  const path = `/${plant.domainId}/journal/client/${device.id}?with_attributes=true&dir=asc&limit=100`
  type Entry = { operation: string; attributes: Record<string, unknown> }
  const entries = async () =>
    (await plant.owner.call('GET', path))
      .json<{ journals: Entry[] }>()
      .journals.filter(({ operation }) => operation.startsWith('mqtt.'))
  const found = await until(async () => {
    const all = await entries()
    return all.length >= 6 && all
  }, 'all of it is in the journal')
  expect(found.map(({ operation }) => operation)).toEqual([
    'mqtt.connect',
    'mqtt.subscribe',
    'mqtt.unsubscribe',
    'mqtt.disconnect',
    'mqtt.connect',
    'mqtt.disconnect',
  ])
  expect(found[1]?.attributes).toMatchObject({
    client_id: device.id,
    subscriber_id: 'seen',
    topics: [`${device.topic}/#`],
  })
})

test('changes of sessions invalidate no caches', async () => {
  const { journal } = plant.api.api.identity
  const [observed, changed] = [Number.MAX_SAFE_INTEGER - 1, Number.MAX_SAFE_INTEGER - 2]
  const forgotten: number[] = []
  journal.listen({ invalidate: (keys) => void forgotten.push(...keys), invalidateAll: () => undefined })
  for (const [operation, key] of [
    ['mqtt.connect', observed],
    ['client.update', changed],
  ] as const)
    await journal.change('system', (_tx, record) => Promise.resolve(record({ operation, entityKeys: [key] })))
  // By the process that wrote it, and by the tail, which reads the other record in front of it.
  await until(() => forgotten.filter((key) => key === changed).length >= 2, 'the change is heard of twice')
  expect(forgotten).not.toContain(observed)
})

test('a client with an open session is online, and offline after its end', async () => {
  const device = await aDevice(plant, node.port)
  const path = `/${plant.domainId}/journal/client/${device.id}/telemetry`
  const telemetry = async () =>
    (await plant.owner.call('GET', path)).json<{ online: boolean; subscriptions: number; outbound_messages: number }>()
  {
    using peer = await device.connect()
    peer.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic: device.topic, qos: 1 }] })
    await peer.next('suback')
    peer.send({ cmd: 'publish', topic: device.topic, payload: 'x', qos: 1, messageId: 1, dup: false, retain: false })
    await peer.next('publish')
    await until(async () => (await telemetry()).outbound_messages === 1, 'what it was handed is counted')
    expect(await telemetry()).toMatchObject({ online: true, subscriptions: 1 })
  }
  await until(async () => !(await telemetry()).online, 'it is offline')
  expect((await telemetry()).subscriptions).toBe(0)
})

test('sessions survive a stop of the server, and the next server delivers messages from in between', async () => {
  const device = await aDevice(plant, node.port)
  const stopping = await startNode(plant.api)
  using peer = await device.connect({ ...KEPT[5], clientId: 'restart' }, stopping.port)
  await subscribe(peer, `${device.topic}/#`)
  await stopping.stop()
  expect((await peer.next('disconnect')).reasonCode).toBe(0x8b)
  using sender = await device.connect({ clientId: 'sender' })
  await publish(sender, device.topic, 'between')
  using back = await device.connect({ ...KEPT[5], clientId: 'restart' })
  expect(back.connack.sessionPresent).toBe(true)
  expect(await receiveAll(back, 1)).toEqual(['between'])
})

describe('a will', () => {
  const will = (topic: string, more = {}) => ({
    will: { topic, payload: Buffer.from('gone'), qos: 1 as const, retain: false, ...more },
  })

  async function watcher(device: Awaited<ReturnType<typeof aDevice>>) {
    const peer = await device.connect({ clientId: 'watcher' })
    await subscribe(peer, `${device.topic}/#`)
    return peer
  }

  test.each([
    ['the connection breaks', (peer: Peer) => void peer.socket.destroy()],
    ['the client breaks the protocol', (peer: Peer) => peer.send(Buffer.from([0xf0, 0]))],
    ['the client asks for it in DISCONNECT', (peer: Peer) => peer.send({ cmd: 'disconnect', reasonCode: 4 })],
  ])('is sent when %s', async (_what, end) => {
    const device = await aDevice(plant, node.port)
    using watching = await watcher(device)
    using peer = await device.connect({ protocolVersion: 5, clientId: 'mortal', ...will(`${device.topic}/will`) })
    end(peer)
    expect((await watching.next('publish')).topic).toBe(`${device.topic}/will`)
  })

  test('is not sent after DISCONNECT', async () => {
    const device = await aDevice(plant, node.port)
    using watching = await watcher(device)
    using peer = await device.connect({ clientId: 'polite', ...will(`${device.topic}/will`) })
    await leave(peer)
    using sender = await device.connect({ clientId: 'sender' })
    await publish(sender, `${device.topic}/end`, 'end')
    expect((await watching.next('publish')).topic).toBe(`${device.topic}/end`)
  })

  test('may be retained', async () => {
    const device = await aDevice(plant, node.port)
    using watching = await watcher(device)
    using peer = await device.connect({ clientId: 'mortal', ...will(`${device.topic}/will`, { retain: true }) })
    peer.socket.destroy()
    await watching.next('publish')
    using late = await device.connect({ clientId: 'late' })
    await subscribe(late, `${device.topic}/will`)
    expect(await late.next('publish')).toMatchObject({ retain: true })
  })

  test('with a delay is not sent if the client is back in time', async () => {
    const device = await aDevice(plant, node.port)
    using watching = await watcher(device)
    const delayed = will(`${device.topic}/will`, { properties: { willDelayInterval: 100 } })
    {
      using peer = await device.connect({ ...KEPT[5], clientId: 'back', ...delayed })
      peer.socket.destroy()
    }
    using back = await device.connect({ ...KEPT[5], clientId: 'back' })
    expect(back.connack.sessionPresent).toBe(true)
    using sender = await device.connect({ clientId: 'sender' })
    await publish(sender, `${device.topic}/end`, 'end')
    expect((await watching.next('publish')).topic).toBe(`${device.topic}/end`)
  })

  test('with a delay is sent if the session ends before', async () => {
    const device = await aDevice(plant, node.port)
    using watching = await watcher(device)
    const delayed = will(`${device.topic}/will`, { properties: { willDelayInterval: 100 } })
    {
      using peer = await device.connect({ ...KEPT[5], clientId: 'ends', ...delayed })
      peer.socket.destroy()
    }
    using clean = await device.connect({ clientId: 'ends', protocolVersion: 5 })
    expect(clean.connack.sessionPresent).toBe(false)
    expect((await watching.next('publish')).topic).toBe(`${device.topic}/will`)
  })

  test('is authorised like a publish at CONNECT', async () => {
    const device = await aDevice(plant, node.port)
    using peer = await device.connect({ protocolVersion: 5, ...will(`channels/${await plant.newChannel()}/messages`) })
    expect(peer.connack.reasonCode).toBe(0x87)
    await peer.closed()
  })

  test('is authorised again when it is sent', async () => {
    const device = await aDevice(plant, node.port)
    const watchingDevice = await plant.newDevice()
    await plant.connect(watchingDevice, device.channelId)
    using watching = await device.connect({
      clientId: 'watcher',
      username: watchingDevice.id,
      password: Buffer.from(watchingDevice.secret),
    })
    await subscribe(watching, `${device.topic}/#`)
    using peer = await device.connect({ clientId: 'revoked', ...will(`${device.topic}/will`) })
    const body = { client_ids: [device.id], channel_ids: [device.channelId], types: ['publish'] }
    await plant.owner.call('POST', `/${plant.domainId}/channels/disconnect`, body)
    peer.socket.destroy()
    await until(
      async () =>
        (await plant.owner.call('GET', `/${plant.domainId}/clients/${device.id}/sessions`)).json<{ total: number }>()
          .total === 0,
      'the session is over, and its will with it',
    )
    const response = await plant.api.as(`Client ${watchingDevice.secret}`)(
      'POST',
      `/${device.topic}/end`,
      '[{"n":"a","v":1}]',
    )
    expect(response.status).toBe(202)
    expect((await watching.next('publish')).topic).toBe(`${device.topic}/end`)
  })
})

test('a subscriber that does not read falls behind without cost to others, and reads everything later', async () => {
  const device = await aDevice(plant, node.port)
  using slow = await device.connect({ clientId: 'slow', clean: false })
  await subscribe(slow, `${device.topic}/#`)
  slow.socket.pause()
  using sender = await device.connect({ clientId: 'sender' })
  const count = 3000
  const filler = 'x'.repeat(2000)
  for (let messageId = 1; messageId <= count; messageId++) {
    const payload = `${messageId} ${filler}`
    sender.send({ cmd: 'publish', topic: device.topic, payload, qos: 1, dup: false, retain: false, messageId })
  }
  await until(() => sender.inbox.length === count, 'all are stored', 30_000)
  slow.socket.resume()
  const seen = await receiveAll(slow, count)
  expect(seen.map((text) => Number(text.split(' ')[0]))).toEqual(Array.from({ length: count }, (_, index) => index + 1))
})
