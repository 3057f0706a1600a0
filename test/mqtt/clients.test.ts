/** The clients that devices have (contract section 7.3): Mosquitto's, Debian's paho for Python, mqtt.js, over TCP and WebSocket. */
import { execFile } from 'node:child_process'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { promisify } from 'node:util'
import mqtt from 'mqtt'
import { WebSocket } from 'ws'
import type { ClientOptions } from 'ws'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createMqttUpgrades } from '#api/adapters/mqtt/index.ts'
import { callerAddressBehind } from '#http/index.ts'
import { until } from '../harness/until.ts'
import { useWorld } from '../harness/world.ts'
import { startPlant } from '../messages/support.ts'
import type { Node, WebSockets } from './support.ts'
import { aDevice, listenForWebSockets, startNode } from './support.ts'

const run = promisify(execFile)
/** Short, so that a test sees several. */
const PING_MS = 50
const PACK = '[{"n":"t","v":1}]'
const PAHO = `
import sys, paho.mqtt.client as mqtt
port, user, password, topic, version = sys.argv[1:]
args = {'protocol': int(version)}
client = mqtt.Client(**args) if not hasattr(mqtt, 'CallbackAPIVersion') else mqtt.Client(mqtt.CallbackAPIVersion.VERSION1, **args)
client.username_pw_set(user, password)
client.on_connect = lambda c, *rest: c.subscribe(topic + '/#', 2)
client.on_subscribe = lambda c, *rest: c.publish(topic + '/paho', 'from paho', 2)
def received(c, data, message):
    print(message.topic, message.payload.decode(), message.qos)
    c.disconnect()
client.on_message = received
client.connect('127.0.0.1', int(port))
client.loop_forever()
`

const plant = useWorld(() => startPlant())
let node: Node
let webSockets: WebSockets

beforeAll(async () => {
  node = await startNode(plant.api)
  webSockets = await listenForWebSockets(plant.api, node)
}, 60_000)
afterAll(async () => {
  await webSockets.stop()
  await node.stop()
})

describe.each(['mqttv31', 'mqttv311', 'mqttv5'])('mosquitto_pub and mosquitto_sub, %s', (version) => {
  test.each([0, 1, 2])('exchange messages with QoS %i', async (qos) => {
    const device = await aDevice(plant, node.port)
    const access = ['-V', version, '-p', `${node.port}`, '-u', device.id, '-P', device.secret, '-q', `${qos}`]
    const subscribed = run('mosquitto_sub', [...access, '-t', `${device.topic}/+`, '-C', '1', '-W', '60', '-v'])
    await until(async () => (await device.connections()) > 0, 'the subscriber is connected')
    await run('mosquitto_pub', [...access, '-t', `${device.topic}/a`, '-m', PACK, '--repeat', '1'])
    expect((await subscribed).stdout).toBe(`${device.topic}/a ${PACK}\n`)
    await until(async () => (await device.stored()).length === 1, 'it is stored')
  })
})

test.each([4, 5])('paho for Python, protocol level %i, subscribes and publishes with QoS 2', async (version) => {
  const device = await aDevice(plant, node.port)
  const args = ['-c', PAHO, `${node.port}`, device.id, device.secret, device.topic, `${version}`]
  const { stdout } = await run('/usr/bin/python3', args, { timeout: 60_000 })
  expect(stdout).toBe(`${device.topic}/paho from paho 2\n`)
})

describe.each([
  ['TCP', () => `mqtt://127.0.0.1:${node.port}`],
  ['WebSocket', () => `ws://127.0.0.1:${webSockets.port}/mqtt`],
])('mqtt.js over %s', (_what, urlOf) => {
  test.each([4, 5] as const)('protocol level %i', async (protocolVersion) => {
    const device = await aDevice(plant, node.port)
    const client = await mqtt.connectAsync(urlOf(), {
      username: device.id,
      password: device.secret,
      protocolVersion,
      reconnectPeriod: 0,
    })
    try {
      const received = new Promise<string>((resolve) =>
        client.once('message', (topic, body) => resolve(`${topic} ${body.toString()}`)),
      )
      await client.subscribeAsync(`${device.topic}/#`, { qos: 2 })
      // Larger than one frame of the socket.
      const body = JSON.stringify([{ n: 'text', vs: 'x'.repeat(20_000) }])
      await client.publishAsync(`${device.topic}/big`, body, { qos: 2 })
      expect(await received).toBe(`${device.topic}/big ${body}`)
    } finally {
      await client.endAsync(true)
    }
  })
})

describe('a WebSocket that sends nothing', () => {
  /** An own server with short pings. */
  async function startPinging() {
    const http = createServer()
    const accepted: Duplex[] = []
    const given = { addressOf: callerAddressBehind([]), maxFrameBytes: 64 * 1024 }
    const upgrades = createMqttUpgrades((stream) => void accepted.push(stream), given, PING_MS)
    http.on('upgrade', (request, socket, head) => void upgrades.take(request, socket, head))
    await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
    const url = `ws://127.0.0.1:${(http.address() as AddressInfo).port}/mqtt`
    return {
      accepted,
      async connect(options: ClientOptions = {}) {
        const socket = new WebSocket(url, 'mqtt', options)
        const seen = { pings: 0, isClosed: false }
        socket.on('ping', () => seen.pings++)
        socket.on('close', () => (seen.isClosed = true))
        await new Promise((resolve) => socket.once('open', resolve))
        return { socket, seen }
      },
      [Symbol.dispose]() {
        for (const stream of accepted) stream.destroy()
        http.closeAllConnections()
        http.close()
      },
    }
  }

  test('is pinged, and stays open', async () => {
    using server = await startPinging()
    const { seen } = await server.connect()
    await until(() => seen.pings >= 4, 'four pings')
    expect(seen.isClosed).toBe(false)
  })

  test('and answers no ping is closed, unless the server does not read it', async () => {
    using server = await startPinging()
    const paused = await server.connect({ autoPong: false })
    const [stream] = server.accepted
    // The bytes fill the stream, which nobody reads, so that the socket is paused.
    for (let frame = 0; frame < 4; frame++) paused.socket.send(Buffer.alloc(60 * 1024))
    await until(() => (stream?.readableLength ?? 0) >= (stream?.readableHighWaterMark ?? 0), 'the bytes')
    const silent = await server.connect({ autoPong: false })
    await until(() => silent.seen.isClosed, 'the end of the silent one')
    expect(paused.seen.isClosed).toBe(false)
  })
})

test('a text frame is not MQTT: the WebSocket is closed with 1003', async () => {
  const socket = new WebSocket(`ws://127.0.0.1:${webSockets.port}/mqtt`, 'mqtt')
  await new Promise((resolve) => socket.once('open', resolve))
  const closed = new Promise<number>((resolve) => socket.once('close', resolve))
  socket.send('hello')
  expect(await closed).toBe(1003)
})
