/** The bare profile (contract section 15), the limits of a server, and whatever else comes over a connection. */
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { duplexPair } from 'node:stream'
import type { Duplex } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { generate } from 'mqtt-packet'
import type { Packet } from 'mqtt-packet'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ConformanceBackend, MQTT_METRICS, MqttServer, startMqtt } from '#api/adapters/mqtt/index.ts'
import type { MqttOptions } from '#api/adapters/mqtt/index.ts'
import { createMetrics } from '#http/index.ts'
import { kindOf } from '#core/errors/index.ts'
import { createStreamBudget } from '#core/streams/index.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { connectPeer, openPeer } from './peer.ts'
import type { Peer } from './peer.ts'

let server: MqttServer
let port: number
const metrics = createMetrics([MQTT_METRICS.set])
const errors: unknown[] = []

beforeAll(async () => {
  server = await MqttServer.start({
    host: '127.0.0.1',
    port: 0,
    maxPacketBytes: 64 * 1024,
    backend: (host) => new ConformanceBackend(host),
    budget: createStreamBudget(256 * 1024 * 1024),
    metrics,
    logger: Object.assign(Object.create(logger) as typeof logger, { error: (fault: unknown) => errors.push(fault) }),
  })
  await server.listen()
  port = server.port as number
})
afterAll(async () => {
  await server.stop()
  expect(errors).toEqual([])
})

/** What is kept for a subscriber that does not read, and what a server gathers beside it. */
const MAX_HELD_BYTES = 16 * 1024 * 1024

const publish = (topic: string, payload: string, qos: 0 | 1 | 2 = 1): Packet => ({
  cmd: 'publish',
  topic,
  payload,
  qos,
  dup: false,
  retain: false,
  messageId: 1,
})

test('the server refuses to start on an address that other machines reach', async () => {
  const options = {
    config: { mqttPort: 1, mqttsPort: 0, mqttProfile: 'conformance' },
    host: '0.0.0.0',
    logger,
  } as unknown as MqttOptions
  const refusal = await startMqtt(options).then(
    () => undefined,
    (error: unknown) => error,
  )
  expect(kindOf(refusal)).toBe('malformed')
})

test.each([
  ['+/b', 'a/b', true],
  ['a/#', 'a', true],
  ['a/+', 'a', false],
  ['+/+', '/x', true],
  ['#', '$SYS/x', false],
  ['+/x', '$SYS/x', false],
  ['a//b', 'a//b', true],
  ['a/+/b', 'a//b', true],
])('the filter %s and the topic %s: %s (section 4.7)', async (filter, topic, isMatching) => {
  using peer = await connectPeer(port)
  peer.send({
    cmd: 'subscribe',
    messageId: 1,
    subscriptions: [
      { topic: filter, qos: 0 },
      { topic: 'the/end', qos: 0 },
    ],
  })
  await peer.next('suback')
  // Topics that begin with $ are nobody's to publish to.
  if (!topic.startsWith('$')) peer.send(publish(topic, 'x', 0))
  peer.send(publish('the/end', 'x', 0))
  expect((await peer.next('publish')).topic).toBe(isMatching ? topic : 'the/end')
})

/** What a session must do, in a few lines: the model of the test below. */
type Model = { filters: Set<string>; waiting: string[]; isConnected: boolean }
const TOPICS = ['m/a', 'm/b', 'm/a/x'] as const
const FILTERS = ['m/a', 'm/+', 'm/#', 'm/a/#'] as const
const matching: Record<(typeof FILTERS)[number], readonly string[]> = {
  'm/a': ['m/a'],
  'm/+': ['m/a', 'm/b'],
  'm/#': ['m/a', 'm/b', 'm/a/x'],
  'm/a/#': ['m/a', 'm/a/x'],
}

const step = fc.oneof(
  fc.record({ kind: fc.constant('subscribe' as const), filter: fc.constantFrom(...FILTERS) }),
  fc.record({ kind: fc.constant('unsubscribe' as const), filter: fc.constantFrom(...FILTERS) }),
  fc.record({ kind: fc.constant('publish' as const), topic: fc.constantFrom(...TOPICS) }),
  fc.record({ kind: fc.constantFrom('drop' as const, 'reconnect' as const, 'clean' as const) }),
)

test('random subscriptions, publications, disconnections and reconnections deliver what a simple model predicts', async () => {
  using sender = await connectPeer(port, { clientId: 'model-sender' })
  let number = 0
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 25 }), async (steps) => {
      const clientId = `model-${number++}`
      const model: Model = { filters: new Set(), waiting: [], isConnected: true }
      let peer: Peer = await connectPeer(port, { clientId, clean: false })
      const expectWaiting = async () => {
        for (const wanted of model.waiting) {
          const message = await peer.next('publish')
          expect(message.payload.toString()).toBe(wanted)
          peer.send({ cmd: 'puback', messageId: message.messageId ?? 0 })
        }
        model.waiting = []
        peer.send({ cmd: 'pingreq' })
        await peer.next('pingresp')
        expect(peer.inbox).toEqual([])
      }
      try {
        for (const one of steps) {
          if (one.kind === 'publish') {
            const payload = `${number}-${one.topic}-${Math.random()}`
            sender.send(publish(one.topic, payload))
            await sender.next('puback')
            const isWanted = [...model.filters].some((filter) => matching[filter as 'm/a'].includes(one.topic))
            if (isWanted) model.waiting.push(payload)
            if (model.isConnected) await expectWaiting()
          } else if (one.kind === 'subscribe' || one.kind === 'unsubscribe') {
            if (!model.isConnected) continue
            if (one.kind === 'subscribe') {
              peer.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic: one.filter, qos: 1 }] })
              await peer.next('suback')
              model.filters.add(one.filter)
            } else {
              peer.send({ cmd: 'unsubscribe', messageId: 1, unsubscriptions: [one.filter] })
              await peer.next('unsuback')
              model.filters.delete(one.filter)
            }
          } else if (one.kind === 'drop') {
            peer.send({ cmd: 'disconnect' })
            await peer.closed()
            model.isConnected = false
          } else {
            const isClean = one.kind === 'clean'
            const connected = await connectPeer(port, { clientId, clean: isClean })
            peer.socket.destroy()
            peer = connected
            // The session before a clean one was not clean: it is there, and ends.
            expect(connected.connack.sessionPresent).toBe(!isClean)
            if (isClean) {
              model.filters.clear()
              model.waiting = []
              using _again = peer
              peer.send({ cmd: 'disconnect' })
              await peer.closed()
              peer = await connectPeer(port, { clientId, clean: false })
            }
            model.isConnected = true
            await expectWaiting()
          }
        }
      } finally {
        peer.socket.destroy()
      }
    }),
    { numRuns: 40 },
  )
}, 240_000)

test('any input of a client is answered as the standard requires or closed, and the server continues', async () => {
  const packets: Packet[] = [
    publish('a', 'x'),
    publish('a', 'x', 2),
    { cmd: 'subscribe', messageId: 2, subscriptions: [{ topic: 'a/#', qos: 2 }] },
    { cmd: 'unsubscribe', messageId: 3, unsubscriptions: ['a/#'] },
    { cmd: 'pubrel', messageId: 1 },
    { cmd: 'puback', messageId: 9 },
    { cmd: 'pubrec', messageId: 9 },
    { cmd: 'pubcomp', messageId: 9 },
    { cmd: 'pingreq' },
    { cmd: 'disconnect' },
  ]
  const change = fc.record({ at: fc.nat(), value: fc.nat({ max: 255 }) })
  const drawn = fc.record({
    version: fc.constantFrom(4 as const, 5 as const),
    order: fc.array(fc.nat({ max: packets.length - 1 }), { maxLength: 8 }),
    changes: fc.array(change, { maxLength: 4 }),
    junk: fc.uint8Array({ maxLength: 40 }),
  })
  await fc.assert(
    fc.asyncProperty(drawn, async ({ version, order, changes, junk }) => {
      using peer = await openPeer(port, version)
      const connecting = generate({
        cmd: 'connect',
        protocolId: 'MQTT',
        protocolVersion: version,
        clientId: 'fuzz',
        clean: true,
        keepalive: 0,
      })
      const sent = order.map((index) => generate(packets[index] as Packet, { protocolVersion: version }))
      const bytes = Buffer.concat([connecting, ...sent, Buffer.from(junk)])
      for (const { at, value } of changes) bytes[at % bytes.length] = value
      peer.send(bytes)
      peer.socket.end()
      await peer.closed()
    }),
    { numRuns: 400 },
  )
  using peer = await connectPeer(port, { clientId: 'fuzz' })
  peer.send({ cmd: 'pingreq' })
  await peer.next('pingresp')
})

test('a peer that connects and sends nothing, or half a packet, uses only its socket', async () => {
  const sockets: Socket[] = []
  for (let index = 0; index < 200; index++) {
    const socket = connect({ port, host: '127.0.0.1' })
    socket.on('error', () => undefined)
    await new Promise((resolve) => socket.once('connect', resolve))
    if (index % 2 === 0) socket.write(Buffer.from([0x10, 0xff, 0x7f, 0]))
    sockets.push(socket)
  }
  await until(() => server.connections >= 200, 'they are there')
  for (const socket of sockets) socket.destroy()
  await until(() => server.connections < 50, 'they are gone')
})

test('10,000 idle connections stay open, and messages are delivered', { timeout: 240_000 }, async () => {
  const count = 10_000
  const connecting = generate({
    cmd: 'connect',
    protocolId: 'MQTT',
    protocolVersion: 4,
    clientId: 'idle-00000',
    clean: true,
    keepalive: 0,
  })
  const streams: Duplex[] = []
  let accepted = 0
  // Pairs of streams in place of sockets: both ends of so many would be too many open files for one process.
  for (let index = 0; index < count; index++) {
    const [client, served] = duplexPair()
    client.on('data', () => accepted++)
    server.accept(served, 'test')
    const packet = Buffer.from(connecting)
    packet.write(String(index).padStart(5, '0'), packet.length - 5)
    client.write(packet)
    streams.push(client)
  }
  await until(() => accepted === count, 'all are accepted', 60_000)
  using peer = await connectPeer(port, { clientId: 'busy' })
  peer.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic: 'busy', qos: 1 }] })
  await peer.next('suback')
  peer.send(publish('busy', 'x'))
  await peer.next('publish')
  const text = await metrics.registry.metrics()
  expect(Number(/^skein_mqtt_connections (\d+)/m.exec(text)?.[1])).toBeGreaterThanOrEqual(count)
  const connects = async () =>
    Number(/^skein_mqtt_packets_total\{type="connect"\} (\d+)/m.exec(await metrics.registry.metrics())?.[1])
  await until(async () => (await connects()) >= count, 'every CONNECT is counted', 60_000)
  for (const stream of streams) stream.destroy()
  await until(() => server.connections < 100, 'they are gone', 60_000)
})

/** What this process still needs. Memory beside the heap is given back in the turn after a collection, and counted by the next one. */
async function heldBytes(): Promise<number> {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  collect()
  await setImmediate()
  collect()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

test('a subscriber that reads a byte now and then does not increase the memory of the server', async () => {
  using slow = await connectPeer(port, { clientId: 'byte' })
  slow.send({
    cmd: 'subscribe',
    messageId: 1,
    subscriptions: [
      { topic: 'flood', qos: 0 },
      { topic: 'flood1', qos: 1 },
    ],
  })
  await slow.next('suback')
  slow.socket.pause()
  using sender = await connectPeer(port, { clientId: 'flooder' })
  const payload = 'x'.repeat(32 * 1024)
  const before = await heldBytes()
  for (let round = 0; round < 1000; round++) {
    sender.send(publish('flood', payload, 0))
    sender.send(publish('flood1', payload, 1))
    await sender.next('puback')
  }
  // 64 MiB were published to it; a few are kept for it.
  await until(async () => (await heldBytes()) - before < MAX_HELD_BYTES, 'nothing but that is held')
  const text = await metrics.registry.metrics()
  expect(text).toMatch(/^skein_mqtt_dropped_messages_total\{reason="slow"\} [1-9]/m)
})
