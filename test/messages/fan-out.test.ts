/**
 * A message of one protocol is delivered by all: once per subscriber, in order per publisher. A slow reader affects no other
 * (contract sections 7.2 to 7.4).
 */
import { once } from 'node:events'
import mqtt from 'mqtt'
import type { MqttClient } from 'mqtt'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import { CoapServer } from '#api/adapters/coap/index.ts'
import { listen } from '#http/index.ts'
import type { Listeners } from '#http/index.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { openEvents } from '../harness/event-stream.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startNode } from '../mqtt/support.ts'
import type { Node } from '../mqtt/support.ts'
import { openPeer } from './coap-peer.ts'
import type { Device } from './support.ts'
import { startPlant, untilAllFollow } from './support.ts'

const MAX_BODY_BYTES = 1024 * 1024
/** A stream that its reader left is noticed with the next heartbeat, after 15 s. */
const DELIVERY_DEADLINE_MS = 60_000

const plant = useWorld(() =>
  startPlant({ environment: { SKEIN_STREAMS_PER_CLIENT: '2000', SKEIN_STREAMS_PER_DOMAIN: '2000' } }),
)
let listeners: Listeners
let coap: CoapServer
let broker: Node
let host: string

beforeAll(async () => {
  listeners = await listen(plant.api.app, {
    host: '127.0.0.1',
    ports: [{ port: 0, isOptional: false, setting: 'TEST' }],
    logger,
  })
  host = `127.0.0.1:${listeners.ports[0]}`
  const { devices, messages } = plant.api.api
  coap = await CoapServer.start({
    host: '127.0.0.1',
    port: 0,
    gate: devices.gate,
    topics: devices.topics,
    messages,
    maxBodyBytes: MAX_BODY_BYTES,
    metrics: undefined,
    logger,
  })
  broker = await startNode(plant.api)
}, 60_000)
afterAll(async () => {
  await listeners.stop(100)
  await coap.stop()
  await broker.stop()
})

type Subscriber = Disposable & { payloads: () => string[] }
type Publisher = Disposable & { publish(body: string): Promise<void> }
type Protocol = {
  name: string
  publisher(device: Device, path: string): Promise<Publisher>
  subscriber(device: Device, path: string): Promise<Subscriber>
}

const as = ({ secret }: Device) => ({ authorization: `Client ${secret}` })

async function openSocket(device: Device, path: string) {
  const socket = new WebSocket(`ws://${host}${path}`, { headers: as(device) })
  const got: string[] = []
  socket.on('message', (data: Buffer) => got.push(data.toString())).on('error', () => undefined)
  await once(socket, 'open')
  return { socket, got }
}

function openMqtt({ id, secret }: Device): Promise<MqttClient> {
  return mqtt.connectAsync(`mqtt://127.0.0.1:${broker.port}`, { username: id, password: secret, reconnectPeriod: 0 })
}

/** One row for each protocol. */
const PROTOCOLS: readonly Protocol[] = [
  {
    name: 'http',
    publisher: (device, path) =>
      Promise.resolve({
        async publish(body) {
          const headers = { ...as(device), 'content-type': 'application/senml+json' }
          const { status } = await fetch(`http://${host}${path}`, { method: 'POST', headers, body })
          expect(status).toBe(202)
        },
        [Symbol.dispose]: () => undefined,
      }),
    async subscriber(device, path) {
      const reader = await openEvents(`http://${host}${path}/live`, as(device))
      return {
        payloads: () =>
          reader.events.filter(({ event }) => event === 'message').map(({ data }) => JSON.stringify(data['payload'])),
        [Symbol.dispose]: reader.close,
      }
    },
  },
  {
    name: 'ws',
    async publisher(device, path) {
      const { socket, got } = await openSocket(device, `${path}?ack=1`)
      let frames = 0
      return {
        async publish(body) {
          const ack = `{"ack":${++frames}}`
          socket.send(body)
          await until(() => got.includes(ack), ack, DELIVERY_DEADLINE_MS)
        },
        [Symbol.dispose]: () => socket.terminate(),
      }
    },
    async subscriber(device, path) {
      const { socket, got } = await openSocket(device, path)
      return {
        payloads: () => got,
        [Symbol.dispose]: () => socket.terminate(),
      }
    },
  },
  {
    name: 'coap',
    async publisher({ secret }, path) {
      const peer = await openPeer(coap.port)
      return {
        async publish(payload) {
          const options = [{ name: 'Content-Format', value: Buffer.from([110]) }]
          const answer = await peer.request({ code: 'POST', path: `${path}?auth=${secret}`, options, payload })
          expect(answer.code).toBe('2.04')
        },
        [Symbol.dispose]: () => peer[Symbol.dispose](),
      }
    },
    async subscriber({ secret }, path) {
      const peer = await openPeer(coap.port)
      const observe = [{ name: 'Observe', value: Buffer.alloc(0) }]
      const { token } = peer.ask({ path: `${path}?auth=${secret}`, options: observe })
      await peer.answers(token, 1)
      const acknowledged = new Set<number>()
      const mine = () => peer.got.filter((packet) => packet.code !== '0.00' && packet.token.equals(token))
      // As it comes: an observer that says nothing for long is given up.
      const acknowledging = setInterval(() => {
        for (const packet of mine()) {
          if (!packet.confirmable || acknowledged.has(packet.messageId)) continue
          acknowledged.add(packet.messageId)
          peer.acknowledge(packet)
        }
      }, 10)
      return {
        payloads() {
          // The first answer is what was there before; an acknowledgement that was late is asked for twice.
          const seen = new Set<number>()
          const once = mine().filter(({ messageId }) => !seen.has(messageId) && seen.add(messageId))
          return once.slice(1).map(({ payload }) => payload.toString())
        },
        // A socket that is closed tells nobody: the observation is ended first, and that is answered.
        [Symbol.dispose]() {
          clearInterval(acknowledging)
          const answers = peer.got.length
          peer.ask({ path: `${path}?auth=${secret}`, options: [{ name: 'Observe', value: Buffer.from([1]) }], token })
          const ended = until(() => peer.got.length > answers, 'the end of an observation is answered')
          void ended.catch(() => undefined).finally(() => peer[Symbol.dispose]())
        },
      }
    },
  },
  {
    name: 'mqtt',
    async publisher(device, path) {
      const client = await openMqtt(device)
      return {
        async publish(body) {
          await client.publishAsync(path.slice(1), body, { qos: 1 })
        },
        [Symbol.dispose]: () => void client.end(true),
      }
    },
    async subscriber(device, path) {
      const client = await openMqtt(device)
      const got: string[] = []
      client.on('message', (_topic, payload) => got.push(payload.toString()))
      await client.subscribeAsync(path.slice(1), { qos: 1 })
      return {
        payloads: () => got,
        [Symbol.dispose]: () => void client.end(true),
      }
    },
  },
]

async function aChannel() {
  const channelId = await plant.newChannel()
  return {
    path: `/m/${plant.domainId}/c/${channelId}`,
    async newDevice() {
      const device = await plant.newDevice()
      await plant.connect(device, channelId)
      return device
    },
  }
}

/** A socket is open before it follows. */
async function followersAre(count: number): Promise<void> {
  await until(() => plant.api.api.messages.followers === count, `${count} followers`, DELIVERY_DEADLINE_MS)
  await untilAllFollow(plant.api.api)
}

test('a message over one protocol is delivered over all, once per subscriber, in order per publisher', async () => {
  const MESSAGES = 40
  const channel = await aChannel()
  using stack = new DisposableStack()
  const before = plant.api.api.messages.followers
  const subscribers: { name: string; subscriber: Subscriber }[] = []
  for (const { name, subscriber } of [...PROTOCOLS, ...PROTOCOLS])
    subscribers.push({ name, subscriber: stack.use(await subscriber(await channel.newDevice(), channel.path)) })
  const publishers = await Promise.all(
    PROTOCOLS.map(async ({ name, publisher }) => ({
      name,
      publisher: stack.use(await publisher(await channel.newDevice(), channel.path)),
    })),
  )
  // A socket that publishes follows too; the sessions of MQTT share one follower.
  const shared = subscribers.filter(({ name }) => name === 'mqtt').length - 1
  await followersAre(before + subscribers.length + 1 - shared)
  await Promise.all(
    publishers.map(async ({ name, publisher }) => {
      for (let number = 0; number < MESSAGES; number++) await publisher.publish(`[{"n":"${name}","v":${number}}]`)
    }),
  )
  for (const { name: by, subscriber } of subscribers) {
    const total = publishers.length * MESSAGES
    await until(() => subscriber.payloads().length >= total, `all of them by ${by}`, DELIVERY_DEADLINE_MS)
    for (const { name: from } of publishers) {
      const sent = Array.from({ length: MESSAGES }, (_, number) => `[{"n":"${from}","v":${number}}]`)
      expect(
        subscriber.payloads().filter((payload) => payload.includes(`"${from}"`)),
        `${from} by ${by}`,
      ).toEqual(sent)
    }
  }
  stack.dispose()
  await followersAre(before)
}, 180_000)

test('a slow subscriber among a thousand falls behind; the others get everything, in order', async () => {
  const FAST = 1000
  const LARGE_BYTES = 512 * 1024
  /** Far more than what may wait for a reader and what the system keeps for its socket. */
  const LARGE_MESSAGES = 48
  const channel = await aChannel()
  using stack = new DisposableStack()
  const before = plant.api.api.messages.followers
  const [device, slowDevice, publishing] = [
    await channel.newDevice(),
    await channel.newDevice(),
    await channel.newDevice(),
  ]
  const { path } = channel
  const fast: string[][] = []
  while (fast.length < FAST) {
    const opened = await Promise.all(Array.from({ length: 100 }, () => openSocket(device, `${path}/small`)))
    for (const { socket, got } of opened) {
      stack.defer(() => socket.terminate())
      fast.push(got)
    }
  }
  const slowSocket = stack.use((await PROTOCOLS[1]?.subscriber(slowDevice, `${path}/%23`)) as Subscriber)
  const slowReader = await openEvents(`http://${host}${path}/live`, as(slowDevice))
  stack.defer(slowReader.close)
  slowReader.pause()
  const { socket: paused } = await openSocket(slowDevice, `${path}/%23`)
  stack.defer(() => paused.terminate())
  paused.pause()
  await followersAre(before + FAST + 3)
  const publisher = stack.use((await PROTOCOLS[0]?.publisher(publishing, path)) as Publisher)
  const small = stack.use((await PROTOCOLS[0]?.publisher(publishing, `${path}/small`)) as Publisher)
  const closed = once(paused, 'close')
  for (let number = 0; number < LARGE_MESSAGES; number++) {
    await publisher.publish(`[{"n":"large","vs":"${'x'.repeat(LARGE_BYTES)}"}]`)
    await small.publish(`[{"n":"small","v":${number}}]`)
    // When they are disconnected, they receive the reason; a reader that does not read it soon is cut off.
    if (plant.api.api.messages.followers > before + FAST + 1) continue
    slowReader.resume()
    paused.resume()
  }
  const sent = Array.from({ length: LARGE_MESSAGES }, (_, number) => `[{"n":"small","v":${number}}]`)
  await until(() => fast.every((got) => got.length >= sent.length), 'everybody has everything', DELIVERY_DEADLINE_MS)
  expect(fast.filter((got) => got.join() !== sent.join())).toEqual([])
  // The one that reads at its pace is given all of it, those that do not read are let go.
  await until(() => slowSocket.payloads().length === 2 * LARGE_MESSAGES, 'the reader has it', DELIVERY_DEADLINE_MS)
  await followersAre(before + FAST + 1)
  slowReader.resume()
  paused.resume()
  const end = await until(() => slowReader.events.find(({ event }) => event === 'end'), 'the stream ends')
  expect(end.data).toMatchObject({ reason: 'slow_reader' })
  expect(slowReader.events.length).toBeLessThan(2 * LARGE_MESSAGES)
  expect((await closed)[0]).toBe(1013)
}, 180_000)
